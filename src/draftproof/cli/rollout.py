"""`draftproof rollout status|promote|stop|start|log`: a server's rollout, through its admin API or from its file.

Invariant: the file is only read; what changes a stage goes through the server.

Does not know: how stages are decided.
"""

from __future__ import annotations

import argparse
import datetime
import os
from pathlib import Path
from typing import Any

from draftproof.cli.console import number, percent, print_json, print_table
from draftproof.cli.rollout_client import Server
from draftproof.errors import InputError

_EPILOG = """examples:
  draftproof rollout status --server http://localhost:8000
  draftproof rollout stop --server http://localhost:8000 --reason "odd answers"     all buckets, at once
  draftproof rollout start --server http://localhost:8000 --bucket code
  draftproof rollout log --store rollout.db --limit 20

The server's key comes from --api-key or the environment variable DRAFTPROOF_API_KEY.
"""
_CHANGES = ("promote", "stop", "start")
_LIMIT = 100


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "rollout",
        help="see and move the stages of a server's rollout",
        description="Shows how far speculation is rolled out in each bucket of a server and why, and moves it by hand.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("action", choices=["status", *_CHANGES, "log"])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", metavar="URL", help="a running server")
    where.add_argument("--store", metavar="FILE", help="the file that a server keeps its rollout in (status, log)")
    add("--bucket", metavar="B", help="this bucket (stop, start: all of them; status, log: every one)")
    add("--reason", metavar="TEXT", help="for the log, with promote, stop and start")
    add("--limit", type=int, metavar="N", help=f"most lines of the log, newest first ({_LIMIT})")
    add("--api-key", metavar="K", help="the server's key")
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 where it was done."""
    _check(args)
    if args.store is not None:
        value = _from_store(args)
    else:
        value = _from_server(args, Server(args.server, args.api_key or os.environ.get("DRAFTPROOF_API_KEY")))
    if args.action == "status" and args.bucket is not None:
        value["status"]["buckets"] = {args.bucket: _bucket(value["status"], args.bucket)}
    if args.json:
        print_json(value)
    elif args.action == "status":
        _show_status(value["status"])
    else:
        _show_log(value["decisions"])
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises InputError for options that would be ignored."""
    changes = args.action in _CHANGES
    if changes and args.store is not None:
        raise InputError(f"--store only reads: {args.action} needs the running server, --server URL")
    if args.action == "promote" and args.bucket is None:
        raise InputError("promote needs the bucket: --bucket B")
    if args.reason is not None and not changes:
        raise InputError(f"--reason has no meaning with {args.action}")
    if args.limit is not None and args.action != "log":
        raise InputError(f"--limit has no meaning with {args.action}")
    if args.limit is not None and args.limit < 1:
        raise InputError(f"--limit must be at least 1, got {args.limit}")
    if args.api_key is not None and args.store is not None:
        raise InputError("--api-key has no meaning with --store")


def _from_store(args: argparse.Namespace) -> dict[str, Any]:
    from draftproof.rollout import Rollout, RolloutPolicy, RolloutStore

    with RolloutStore(Path(args.store), readonly=True) as store:
        if args.action == "log":
            return {"decisions": store.decisions(args.limit or _LIMIT, args.bucket)}
        state = store.load()
    if state is None or state.policy is None:
        raise InputError(f"{args.store} holds no rollout yet")
    rollout = Rollout(RolloutPolicy.from_json(state.policy), state)
    return {"status": rollout.status(), "policy": state.policy}


def _from_server(args: argparse.Namespace, server: Server) -> dict[str, Any]:
    if args.action == "status":
        return _expect(server.get("/admin/rollout", {}), "status")
    if args.action == "log":
        asked = {"limit": args.limit or _LIMIT, **({} if args.bucket is None else {"bucket": args.bucket})}
        return _expect(server.get("/admin/rollout/log", asked), "decisions")
    body = {"bucket": args.bucket, "reason": args.reason or ""}
    return _expect(server.post(f"/admin/rollout/{args.action}", body), "decisions")


def _expect(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or name not in value:
        raise InputError("the answer is not one of a draftproof server: is it the right address?")
    return value


def _bucket(status: dict[str, Any], name: str) -> Any:
    if name not in status["buckets"]:
        known = ", ".join(status["buckets"]) or "none yet"
        raise InputError(f"there is no bucket {name!r}; there are: {known}")
    return status["buckets"][name]


# ---------------------------------------------------------------------- for people


def _show_status(status: dict[str, Any]) -> None:
    if status["stopped"]:
        print("all buckets are stopped; stages are the ones to come back to, at most canary")
    rows = [
        [
            name,
            bucket["stage"],
            percent(bucket["share"]),
            _interval(bucket["acceptance"]),
            _interval(bucket["itl_ratio"]),
            str(bucket["requests"]["on"]),
            str(bucket["requests"]["off"]),
            _remark(bucket),
        ]
        for name, bucket in status["buckets"].items()
    ]
    if rows:
        print_table(
            ["bucket", "stage", "share", "acceptance", "ITL ratio", "speculated", "plain", "what it waits for"], rows
        )
    else:
        print("no bucket has been seen yet")


def _interval(value: dict[str, float | None] | None) -> str:
    if value is None:
        return "-"
    if value["low"] is None:
        return number(value["mean"], ".2f")
    return f"{number(value['mean'], '.2f')} ({number(value['low'], '.2f')}-{number(value['high'], '.2f')})"


def _remark(bucket: dict[str, Any]) -> str:
    if not bucket["enabled"]:
        return "disabled by the policy"
    if bucket["stopped"]:
        return "stopped: start"
    if bucket["probing"]:
        return "probe: is acceptance back?"
    if bucket["probe_at"] is not None:
        return f"probe at {_when(bucket['probe_at'])}, setbacks: {bucket['setbacks']}"
    if bucket["stage"] == "off":
        return "start"
    missing = [gate["name"] for gate in bucket["gates"] if not gate["passed"]]
    return ", ".join(missing) or ("-" if bucket["stage"] == "full" else "the next tick")


def _show_log(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        stages = (
            line["from_stage"]
            if line["from_stage"] == line["to_stage"]
            else f"{line['from_stage']} -> {line['to_stage']}"
        )
        print(f"{_when(line['time'])}  {line['bucket']}  {line['action']}  {stages}  {line['reason']}")
    if not lines:
        print("nothing was decided")


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")

"""`draftproof serve`: an OpenAI-compatible server for one model, with drafters that requests or a rollout turn on.

Does not know: HTTP, rollouts.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from draftproof.cli import options
from draftproof.cli.console import loading, note
from draftproof.errors import InputError

_EPILOG = """examples:
  draftproof serve --model demo --drafter suffix
  draftproof serve --model ./target --drafter suffix --drafter small=model:./drafter --port 9000
  draftproof serve --model demo --drafter cascade --tree auto
  draftproof serve --model ./target --drafter suffix --policy policy.yaml --state rollout.db
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}'

Without --policy a request speculates unless it says `"speculation": {"enabled": false}`; with one, the rollout decides.
An API key may also come in the environment variable DRAFTPROOF_API_KEY.
"""
_ENGINE = (
    *("model", "gamma", "tree", "draft_weights", "cost_file"),
    *("weights", "backend", "numerics", "kv_memory", "threads", "cache_dir"),
)
_ENGINE_ALSO = ("max_sequences", "chunk_rows", "enable_prefix_caching")


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP, as the OpenAI API does",
        description="Serves one model over HTTP, compatible with the OpenAI API; speculation per request, or by a "
        "rollout that turns it on step by step and takes it back.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, many = parser.add_argument, {"action": "append", "default": []}
    drafters = "ngram, suffix, early_exit[:LAYERS], model:PATH, fixed_tree[:LAYERS or :PATH], eagle[:PATH], "
    drafters += "cascade[:PATH], medusa:PATH; LABEL=... names one"
    add("--drafter", metavar="D", help=f"{drafters}; repeatable, the first is the default (none)", **many)
    options.add_draft_weights(add)
    add("--gamma", type=int, metavar="N", help="draft length (adapted to what is accepted)")
    options.add_tree(add)
    add("--cost-file", metavar="FILE", help="costs of this device, from `draftproof cost`, to choose draft lengths by")
    add("--policy", type=Path, metavar="FILE", help="the rollout's policy: who speculates")
    add("--state", type=Path, metavar="FILE", help="where the rollout's stages and decisions are kept")
    add("--name", metavar="NAME", help="what clients call the model (its own name)")
    add("--host", default="127.0.0.1", metavar="H", help="address to listen on (127.0.0.1: this machine only)")
    add("--port", type=int, default=8000, metavar="N", help="port, 0 for any free one (8000)")
    add("--api-key", metavar="K", help="a key that clients must send; repeatable (none)", **many)
    add("--admin-key", metavar="K", help="a key for /admin alone; repeatable (the API keys)", **many)
    for name, kind, text in (
        ("max-waiting", int, "most texts in line behind the running ones (128)"),
        ("max-body", options.memory, "most bytes of a request (4MiB)"),
        ("max-choices", int, "most texts for one prompt, the field n (16)"),
        ("request-timeout", float, "seconds that a request may take (600)"),
        ("grace", float, "seconds that running requests get at shutdown (30)"),
    ):
        add(f"--{name}", type=kind, default=argparse.SUPPRESS, metavar="S" if kind is float else "N", help=text)
    add("--max-sequences", type=int, default=argparse.SUPPRESS, metavar="N", help="most texts in one batch (32)")
    add("--chunk-rows", type=int, default=argparse.SUPPRESS, metavar="N", help="most prompt tokens of one step (256)")
    add("--otlp-traces-endpoint", metavar="URL", help="send one OpenTelemetry span a request there (none)")
    add("--quiet", action="store_true", help="no progress, and no line in the log for each request")
    options.add_model_options(parser, drafter=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 after a shutdown by signal."""
    try:
        from draftproof.serve.run import run_server  # an optional dependency
        from draftproof.serve.settings import ServeSettings, parse_drafters
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "draftproof":
            raise
        raise InputError(f"serving needs {error.name}: pip install 'draftproof[serve]'") from None
    engine = {name: getattr(args, name) for name in (*_ENGINE, *_ENGINE_ALSO) if name in args}
    given = {name: getattr(args, name) for name in ServeSettings.__dataclass_fields__ if name in args}
    from_environment = os.environ.get("DRAFTPROOF_API_KEY")
    settings = ServeSettings(
        drafters=parse_drafters(args.drafter),
        engine=engine,
        api_keys=(*args.api_key, *([from_environment] if from_environment else [])),
        admin_keys=tuple(args.admin_key),
        log_requests=not args.quiet,
        **given,
    )
    with loading(args.quiet) as progress:
        run_server(settings, progress, _ready)
    return 0


def _ready(address: str) -> None:
    note(f"serving at {address}")
    note(f"its page: {address}/ui")

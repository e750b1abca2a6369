"""Many streams against `draftproof serve` for minutes: is every answer right, is every page given back, is memory flat?

    python -m bench.soak [--warm-up 180] [--seconds 180] [--streams 64] [--model demo] [--drafter suffix ...]

Clients ask for greedy texts of the twelve workload prompts in mixed buckets, streamed and whole, with the default
drafter, with a named one, and plainly; some leave in the middle, some send nonsense. Every finished answer is compared
with the solo plain run of its prompt, made by the library before the server starts. Writes bench/results/soak.json.

Invariant: exit code 0 only without a mismatch, a lost answer, a leaked page, a 5xx other than "full", and with memory
that after the warm-up grew by no more than `SLOPE` along a fitted line.

Does not know: the server's inside; it reads /metrics as anybody would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import provenance, results
from bench.memory import Trend, trend
from bench.workloads import WORKLOADS
from draftproof import LLM, SamplingParams

SLOPE = 4.0  # MiB a minute: what allocators still round and fragment after the warm-up
KV_MEMORY = "384MiB"  # soon touched whole, and too little for all at once: sequences give back their pages and return
TOKENS = 48
NONSENSE = (b"{", b"[]", b'{"prompt": "a", "tools": 1}', b'{"prompt": [9999999]}', b'{"prompt": "a", "n": 999}', b"")


@dataclass
class Seen:
    """What the clients saw."""

    refused: Counter[int] = field(default_factory=Counter)  # by status, for bodies that must be refused
    full: int = 0  # 503: tried again after a second
    finished: Counter[str] = field(default_factory=Counter)  # streamed, whole
    left: int = 0
    mismatches: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    tokens: int = 0


@dataclass(frozen=True)
class Case:
    """One prompt and its plain text."""

    bucket: str
    prompt: str
    text: str


class Client:
    """One of the streams."""

    def __init__(self, number: int, cases: Sequence[Case], drafters: Sequence[str], seen: Seen) -> None:
        self._rng = random.Random(number)
        self._cases, self._seen = cases, seen
        self._wishes = [None, {"enabled": False}, *({"drafter": name} for name in drafters)]

    async def run(self, http: httpx.AsyncClient, end: float) -> None:
        """Asks until the time is over."""
        while time.monotonic() < end:
            kind = self._rng.random()
            try:
                if kind < 0.1:
                    await self._nonsense(http)
                else:
                    await self._ask(http, leaves=kind < 0.2, stream=kind < 0.8)
            except httpx.HTTPError as error:
                self._seen.faults.append(f"{type(error).__name__}: {error}"[:200])

    async def _nonsense(self, http: httpx.AsyncClient) -> None:
        kind = {"Content-Type": "application/json"}
        answer = await http.post("/v1/completions", content=self._rng.choice(NONSENSE), headers=kind)
        self._seen.refused[answer.status_code] += 1
        if not answer.json()["error"]["message"]:
            self._seen.faults.append("a refusal without a message")

    async def _ask(self, http: httpx.AsyncClient, *, leaves: bool, stream: bool) -> None:
        case, wish = self._rng.choice(self._cases), self._rng.choice(self._wishes)
        body: dict[str, Any] = {"messages": [{"role": "user", "content": case.prompt}], "temperature": 0}
        body |= {"max_tokens": TOKENS, "bucket": case.bucket, "stream": stream}
        body |= {} if wish is None else {"speculation": wish}
        if not stream:
            answer = await http.post("/v1/chat/completions", json=body)
            if await self._accepted(answer):
                self._compare(case, answer.json()["choices"][0]["message"]["content"], "whole")
            return
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            if await self._accepted(response):
                await self._read(case, response, self._rng.randrange(TOKENS // 2) if leaves else None)

    async def _read(self, case: Case, response: httpx.Response, leave_after: int | None) -> None:
        pieces: list[str] = []
        lines = response.aiter_lines()
        try:
            async for line in lines:
                if line == "data: [DONE]":
                    self._compare(case, "".join(pieces), "streamed")
                    return
                if line:
                    pieces.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
                if leave_after is not None and len(pieces) > leave_after:
                    self._seen.left += 1
                    return
        finally:
            await lines.aclose()
        self._seen.faults.append("a stream ended without [DONE]")

    async def _accepted(self, response: httpx.Response) -> bool:
        if response.status_code == 200:
            return True
        await response.aread()
        if response.status_code == 503 and response.headers.get("Retry-After"):
            self._seen.full += 1
            await asyncio.sleep(1.0)
        else:
            self._seen.faults.append(f"{response.status_code}: {response.text}"[:200])
        return False

    def _compare(self, case: Case, text: str, kind: str) -> None:
        self._seen.finished[kind] += 1
        if text != case.text:
            self._seen.mismatches.append(f"{case.bucket}: {text!r} is not {case.text!r}"[:300])


class Server:
    """`draftproof serve` in a process of its own."""

    def __init__(self, model: str, drafters: Sequence[str], waiting: int) -> None:
        options = [part for name in drafters for part in ("--drafter", name)]
        command = [sys.executable, "-m", "draftproof.cli.main", "serve", "--model", model, "--port", "0", "--quiet"]
        self._process = subprocess.Popen(
            [*command, "--max-waiting", str(waiting), "--kv-memory", KV_MEMORY, *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._address()
        self._watched = psutil.Process(self._process.pid)

    def _address(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("serving at "):
                return line.split()[-1]
            print(line, end="", file=sys.stderr)
        raise SystemExit("the server did not start")

    def memory(self) -> int:
        """Resident bytes."""
        return int(self._watched.memory_info().rss)

    def gauge(self, name: str) -> float:
        """A value of /metrics."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        found = re.search(rf"^draftproof_{name}(?:_total)? (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def stop(self) -> int:
        """Gracefully; the exit code."""
        self._process.terminate()
        return self._process.wait(120)


def plain_texts(model: str) -> list[Case]:
    """The solo greedy run of each workload prompt."""
    params = SamplingParams(max_new_tokens=TOKENS)
    with LLM(model) as llm:
        return [
            Case(bucket, prompt, llm.generate(prompt, params, chat=True)[0].text)
            for bucket, prompts in WORKLOADS.items()
            for prompt in prompts
        ]


async def soak(server: Server, cases: Sequence[Case], args: argparse.Namespace, seen: Seen) -> list[dict[str, float]]:
    """Runs the clients; the server's memory every few seconds."""
    begin = time.monotonic()
    end = begin + args.warm_up + args.seconds
    samples: list[dict[str, float]] = []

    async def watch() -> None:
        while True:
            samples.append({"seconds": time.monotonic() - begin, "mib": server.memory() / 2**20})
            await asyncio.sleep(min(3.0, args.seconds / 10))

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=args.streams)
    watching = asyncio.create_task(watch())
    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=limits) as http:
        clients = [Client(number, cases, args.drafter, seen) for number in range(args.streams)]
        await asyncio.gather(*(client.run(http, end) for client in clients))
    watching.cancel()
    samples.append({"seconds": time.monotonic() - begin, "mib": server.memory() / 2**20})
    return samples


def leaked_pages(server: Server) -> float:
    """Pages that are held although nothing runs; clients that left are noticed within a step."""
    for _ in range(100):
        if server.gauge("texts_running") == 0 and server.gauge("kv_pages_free") == server.gauge("kv_pages"):
            break
        time.sleep(0.1)
    return server.gauge("kv_pages") - server.gauge("kv_pages_free")


def verdict(seen: Seen, leaked: float, memory: Trend, code: int) -> dict[str, bool]:
    """What must hold."""
    return {
        "answers came": sum(seen.finished.values()) > 0,
        "every finished answer is its solo plain run": not seen.mismatches,
        "no answer was lost, no fault": not seen.faults,
        "every nonsense was refused, by 400 or for want of room": 400 in seen.refused
        and set(seen.refused) <= {400, 503},
        "no page leaked": leaked == 0,
        "memory is flat after the warm-up": memory.mib_per_minute <= SLOPE,
        "the server ended by itself with 0": code == 0,
    }


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--warm-up", type=float, default=180.0, help="seconds before memory is looked at (180)")
    parser.add_argument("--seconds", type=float, default=180.0, help="seconds after that (180)")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--drafter", action="append", default=[])
    parser.add_argument("--waiting", type=int, default=24, help="the server's line; 32 run, so 64 streams find it full")
    parser.add_argument("--out", type=Path, default=provenance.ROOT / "bench" / "results" / "soak.json")
    args = parser.parse_args(argv)
    args.drafter = args.drafter or ["suffix", "ngram"]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 where something does not hold."""
    args = options(argv)
    started = provenance.begin(list(argv if argv is not None else sys.argv[1:]), "bench.soak", 0)
    cases = plain_texts(args.model)
    server, seen = Server(args.model, args.drafter, args.waiting), Seen()
    try:
        samples = asyncio.run(soak(server, cases, args, seen))
        leaked = leaked_pages(server)
        tokens = re.findall(
            r"^draftproof_generated_tokens_total.* (\S+)$", httpx.get(f"{server.url}/metrics").text, re.M
        )
    finally:
        code = server.stop()
    memory = trend([sample for sample in samples if sample["seconds"] <= args.warm_up + args.seconds], args.warm_up)
    holds = verdict(seen, leaked, memory, code)
    content = {
        "group": "soak",
        "provenance": provenance.end(started),
        "settings": {name: getattr(args, name) for name in ("warm_up", "seconds", "streams", "drafter", "waiting")}
        | {"tokens": TOKENS, "kv_memory": KV_MEMORY},
        "holds": holds,
        "finished": dict(seen.finished),
        "left": seen.left,
        "refused": {str(status): count for status, count in sorted(seen.refused.items())},
        "full": seen.full,
        "generated_tokens": sum(map(float, tokens)),
        "mismatches": seen.mismatches[:20],
        "faults": seen.faults[:20],
        "leaked_pages": leaked,
        "memory_mib": memory.as_dict() | {"most_per_minute": SLOPE},
        "memory": samples,
    }
    results.write(args.out, content)
    for what, does in holds.items():
        print(f"{'yes' if does else 'NO '}  {what}")
    print({name: content[name] for name in ("finished", "left", "refused", "full", "memory_mib", "generated_tokens")})
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The server's engine as a worker, whose draft policies take turns: python -m bench.serving_ours OPTIONS

OPTIONS is a JSON object of `EngineOptions`. One model and one drafter are loaded; each draft policy has a scheduler of
its own over them, put together as `draftproof serve` does, so that policies differ in nothing but their budgets. `run`
keeps so many streams busy from a list of requests: the next one comes when one has ended.

`busy` is the time, and the tokens, until the last request has begun: so long all streams are busy. Texts of one length
end together where nothing is drafted, and one by one where something is, so that the end of a list says more about the
list than about a server, which always has the next request.

Invariant: one policy runs at a time; what one has learned is kept from run to run until `fresh`, as in a server.
Does not know: peers, statistics, HTTP.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.ours import COUNTED, plain_values
from bench.serve import Handler, Result, serve, timed, version
from draftproof import SamplingParams
from draftproof.engine import prompts as prompting
from draftproof.engine.build import build
from draftproof.engine.collect import Collector
from draftproof.engine.lengths import draft_policy
from draftproof.engine.options import EngineOptions
from draftproof.serve.build import Served, serve_built
from draftproof.serve.routes import PLAIN, Route
from draftproof.types import Request


class Ours:
    """One loaded model, and an engine for each policy that was asked for."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = EngineOptions(**options)
        self._built = build(self._options, lambda line: print(line, file=sys.stderr))
        self._engines: dict[int | None, Served] = {}
        versions = {**version("draftproof"), **version("openvino")}
        self.hello = {"versions": versions, "info": plain_values(self._built.info)}

    def fresh(self) -> dict[str, Any]:
        """Forgets what policies have learned."""
        self._engines.clear()
        return {}

    def run(self, requests: Sequence[tuple[str, str]], streams: int, gamma: int | None, num_tokens: int) -> Result:
        """requests: (bucket, prompt) each. gamma: None adapts, 0 is speculation turned off, else the draft length."""
        served = self._engine(gamma)
        built, route = self._built, PLAIN if gamma == 0 else Route(str(self._options.drafter))
        vocab_size = served.engine.target.vocab_size
        params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
        served.engine.meter.reset()
        collectors: list[Collector] = []
        seqs: dict[int, int] = {}
        busy, begin, num_decided = {}, time.perf_counter(), 0
        while len(collectors) < len(requests) or seqs:
            while len(collectors) < len(requests) and len(seqs) < streams:
                number, (bucket, text) = len(collectors), requests[len(collectors)]
                ids = prompting.encode(text, built.tokenizer, vocab_size, True)
                resolved = prompting.resolve(params, built.tokenizer, vocab_size)
                request = Request(number, ids, resolved, frozenset(), arrival=number, bucket=bucket)
                collectors.append(Collector(request, built.tokenizer, route.label or "none", 0.0))
                seqs[number] = served.engine.submit(request)
                served.routes.assign(seqs[number], route)
                if len(collectors) == len(requests) and streams > 1:
                    busy = {"busy": {"seconds": time.perf_counter() - begin, "tokens": num_decided}}
            for event in served.engine.step():
                collectors[event.request_id].take(event)
                num_decided += len(event.tokens)
                if event.finish is not None:
                    served.routes.close(seqs.pop(event.request_id))
        ids_of = [collector.output().token_ids for collector in collectors]
        meter = {name: getattr(served.engine.meter, name) for name in COUNTED}
        return Result([len(row) for row in ids_of], ids_of, {"meter": meter, **busy})

    def _engine(self, gamma: int | None) -> Served:
        if gamma not in self._engines:
            drafter, least = str(self._options.drafter), self._built.engine.target.min_rows
            policy = draft_policy(drafter, gamma, None, 0.0, least)  # drafting with it costs no model's time
            built = dataclasses.replace(self._built, policy=policy)
            self._engines[gamma] = serve_built([built], [drafter])
        return self._engines[gamma]


def main() -> int:
    """Entry of the child process."""
    options = json.loads(sys.argv[1])

    def start() -> tuple[Mapping[str, Any], Mapping[str, Handler]]:
        ours = Ours(options)
        return ours.hello, {"run": timed(ours.run), "fresh": ours.fresh}

    return serve(start)


if __name__ == "__main__":
    sys.exit(main())

"""draftproof as a worker: python -m bench.ours OPTIONS

OPTIONS is a JSON object of `LLM`'s own options. `run` gives texts, and what the engine's meter counted meanwhile;
`first_token` gives the time to the first token of one prompt, measured at the caller's end of a stream.

Does not know: peers, statistics.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.peers import WARM_UP
from bench.serve import Handler, Result, serve, timed, version
from draftproof import LLM, SamplingParams

COUNTED = ("steps", "rounds", "tokens", "drafted", "tested", "accepted", "forward_s", "draft_s", "total_s")


class Ours:
    """One LLM in one configuration."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # Prompts come again and again here, and each time is to be measured whole.
        shared = {"progress": lambda line: print(line, file=sys.stderr), "enable_prefix_caching": False}
        self._llm = LLM("demo", **shared, **options)
        self.hello = {
            "versions": {**version("draftproof"), **version("openvino")},
            "info": plain_values(self._llm.info),
        }

    def run(self, prompts: Sequence[str], num_tokens: int, sampling: Mapping[str, Any] | None = None) -> Result:
        """All prompts in one batch."""
        meter = self._llm.built.engine.meter
        meter.reset()
        outputs = self._llm.generate(list(prompts), _params(num_tokens, sampling), chat=True)
        ids = [output.token_ids for output in outputs]
        return Result([len(row) for row in ids], ids, {"meter": {name: getattr(meter, name) for name in COUNTED}})

    def first_token(self, prompt: str, num_tokens: int) -> dict[str, Any]:
        """Seconds from the call to the first token, and to the end."""
        begin, first = time.perf_counter(), None
        for chunk in self._llm.stream(prompt, _params(num_tokens, None), chat=True):
            if first is None and chunk.token_ids:
                first = time.perf_counter() - begin
        return {"ttft_s": first, "seconds": time.perf_counter() - begin, "counts": [num_tokens]}


def _params(num_tokens: int, sampling: Mapping[str, Any] | None) -> SamplingParams:
    return SamplingParams(max_new_tokens=num_tokens, ignore_eos=True, **(sampling or {}))


def plain_values(info: Mapping[str, Any]) -> dict[str, Any]:
    """What of an engine's info is a plain value."""
    return {name: value for name, value in info.items() if isinstance(value, (str, int, float, bool, type(None)))}


def main() -> int:
    """Entry of the child process."""
    options = json.loads(sys.argv[1])

    def start() -> tuple[Mapping[str, Any], Mapping[str, Handler]]:
        ours = Ours(options)
        ours.run([WARM_UP], 8)

        def fresh() -> dict[str, Any]:
            return {}  # nothing is kept between requests

        return ours.hello, {"run": timed(ours.run), "first_token": ours.first_token, "fresh": fresh}

    return serve(start)


if __name__ == "__main__":
    sys.exit(main())

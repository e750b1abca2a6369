"""`draftproof demo`: three prompts, greedy and sampled, plain against speculative: same text, how much sooner.

Each text is first made alone, twice: without drafts and with them; these runs are timed. Then all of them run once more
in one batch, with log-probabilities, and these must be equal to the last bit between plain and speculative, and the
tokens equal to those of the runs alone.

Does not know: drawing (`demo_screen`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.cli import compare, options
from draftproof.cli.console import loading, note, number, percent, print_json, print_table
from draftproof.cli.demo_prompts import DEMO_PROMPTS
from draftproof.cli.demo_screen import Screen, open_screen
from draftproof.engine.llm import LLM
from draftproof.engine.outputs import Output
from draftproof.engine.prompts import Prompt
from draftproof.errors import EngineError
from draftproof.types import SamplingParams

_EPILOG = """examples:
  draftproof demo
  draftproof demo --max-new-tokens 48 --drafter ngram
  draftproof demo --model ./my-model --weights float32 --json
"""
_HEAD = ("prompt", "mode", "plain", "drafted", "speed-up", "tok/pass", "accepted", "same", "bits")  # 80 columns


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt in one mode."""

    name: str
    mode: str
    prompt: Prompt
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class Result:
    """What one case gave. bits_equal: all log-probabilities of plain and speculative are the same numbers."""

    case: Case
    plain: Output
    output: Output
    identical: bool
    bits_equal: bool


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "demo",
        help="see it work: plain against speculative",
        description="Three prompts, greedy and sampled, plain against speculative. "
        "Exit code 1 if texts or promised bits differ.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="tokens of each text (128)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, at the end")
    parser.add_argument("--quiet", action="store_true", help="print the final table only")
    options.add_model_options(parser, drafter="suffix")
    parser.set_defaults(run=run)


def cases(num_tokens: int, has_template: bool) -> list[Case]:
    """All prompts, greedy and sampled."""
    greedy = SamplingParams(max_new_tokens=num_tokens, seed=7)
    sampled = replace(greedy, temperature=0.8, rule="coupled")
    found = []
    for name, text in DEMO_PROMPTS.items():
        prompt: Prompt = [{"role": "user", "content": text}] if has_template else text
        found += [Case(name, "greedy", prompt, greedy), Case(name, "sampled", prompt, sampled)]
    return found


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 if any text differs, or bits do where invariant numerics promise them."""
    SamplingParams(max_new_tokens=args.max_new_tokens)  # a bad number is said before a model is loaded
    with loading(args.quiet) as progress:
        llm = options.load(args, progress)
    with llm:
        every = cases(args.max_new_tokens, llm.tokenizer.has_chat_template)
        compare.warm_up(llm)
        with open_screen(args.quiet, llm.tokenizer.decode) as screen:
            timed = [_timed(llm, case, screen) for case in every]
        results = _checked(llm, every, timed)
        if args.json:
            print_json(as_json(llm.info, results))
        else:
            _report(llm.info, results)
        promised = llm.info["numerics"] == "invariant"
    return 0 if all(result.identical and (result.bits_equal or not promised) for result in results) else 1


def _timed(llm: LLM, case: Case, screen: Screen) -> tuple[Output, Output]:
    """Both runs of one case alone, shown as they go."""
    screen.begin(f"{case.name}, {case.mode}", case.params.max_new_tokens or 0)
    outputs = []
    for kind, params in (("plain", replace(case.params, max_draft_tokens=0)), ("speculative", case.params)):
        output = None
        for chunk in llm.stream(case.prompt, params):
            screen.chunk(kind, chunk)
            output = chunk.output
        if output is None or output.error is not None:
            raise EngineError(output.error if output and output.error else "a stream ended without a result")
        outputs.append(output)
    plain, speculative = outputs
    screen.end(plain, speculative)
    return plain, speculative


def _checked(llm: LLM, every: Sequence[Case], timed: Sequence[tuple[Output, Output]]) -> list[Result]:
    """All runs again in one batch, compared to the last bit."""
    params = [replace(case.params, logprobs=1) for case in every]
    prompts = [case.prompt for case in every]
    again = llm.generate([*prompts, *prompts], [*params, *(replace(p, max_draft_tokens=0) for p in params)])
    batch, batch_plain = again[: len(every)], again[len(every) :]
    results = []
    for case, (plain, output), spoken, quiet in zip(every, timed, batch, batch_plain, strict=True):
        tokens = {tuple(one.token_ids) for one in (plain, output, spoken, quiet)}
        texts = {one.text for one in (plain, output, spoken, quiet)}
        same = len(tokens) == 1 and len(texts) == 1
        results.append(Result(case, plain, output, same, same and _bits(spoken) == _bits(quiet)))
    return results


def _bits(output: Output) -> list[object]:
    return [(entry.token, entry.logprob, entry.top) for entry in output.logprobs or ()]


def _report(info: dict[str, Any], results: Sequence[Result]) -> None:
    rows = []
    for result in results:
        spoken = result.output.speculation
        rows.append(
            [
                result.case.name,
                result.case.mode,
                number(result.plain.timing.decode_tokens_per_second),
                number(result.output.timing.decode_tokens_per_second),
                number(compare.speedup(result.plain, result.output), ".2f") + "x",
                number(spoken.tokens_per_round, ".2f"),
                percent(spoken.acceptance),
                "yes" if result.identical else "NO",
                "yes" if result.bits_equal else "no",
            ]
        )
    title = f"{info['model']}, {info['weights']} weights, {info['backend']}, {info['numerics']} numerics"
    print_table(_HEAD, rows, title=f"{title}, drafter {info['drafter']} (plain and drafted in tokens/s)")
    if not all(result.identical for result in results):
        note("some text differs from plain decoding: run `draftproof doctor` on this machine")


def as_json(info: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """The table, JSON-ready."""
    rows = [
        {
            "prompt": result.case.name,
            "mode": result.case.mode,
            "text": result.output.text,
            "token_ids": result.output.token_ids,
            "plain_tokens_per_second": result.plain.timing.decode_tokens_per_second,
            "tokens_per_second": result.output.timing.decode_tokens_per_second,
            "speedup": compare.speedup(result.plain, result.output),
            "speculation": result.output.speculation.as_dict(),
            "identical": result.identical,
            "bits_equal": result.bits_equal,
        }
        for result in results
    ]
    return {"engine": info, "results": rows, "identical": all(result.identical for result in results)}

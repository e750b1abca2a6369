"""`draftproof generate`: one prompt's text as it comes, then what speculation did for it; or one JSON object.

Does not know: how text is made.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from draftproof.cli import compare, options
from draftproof.cli.console import loading, note, number, percent, print_json
from draftproof.engine.llm import LLM
from draftproof.engine.outputs import Output
from draftproof.engine.prompts import Prompt
from draftproof.errors import EngineError, InvalidParams, InvalidPrompt
from draftproof.types import SamplingParams

_EPILOG = """examples:
  draftproof generate "Why is the sky blue?"
  draftproof generate "Why is the sky blue?" --drafter suffix --compare
  cat notes.txt | draftproof generate - --system "Summarise the text." --drafter ngram
  draftproof generate "def add(a, b):" --no-chat --stop $'\\ndef ' --temperature 0.8 --seed 7
  draftproof generate "Why is the sky blue?" --drafter cascade --tree auto
  draftproof generate "Why is the sky blue?" --weights float32 --drafter model --draft-model demo --draft-weights int8
  draftproof generate --prompt-file prompt.txt --model ./my-model --weights float32 --json
"""

_SIDES = (("plain", "plain_"), ("speculative", ""))


def add_parser(commands: Any) -> None:
    """Adds the command to the top parser's."""
    parser = commands.add_parser(
        "generate",
        help="write on from a prompt, with or without a drafter",
        description="Streams the text of one prompt, then says what speculation did for it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; - reads it from standard input")
    parser.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a file")
    chat = argparse.BooleanOptionalAction
    parser.add_argument("--chat", action=chat, help="wrap the prompt in the model's chat template (where it has one)")
    parser.add_argument("--system", metavar="S", help="a system message before the prompt")
    parser.add_argument("--compare", action="store_true", help="run plain decoding too, and show the difference")
    parser.add_argument("--json", action="store_true", help="print one JSON object, at the end")
    parser.add_argument("--quiet", action="store_true", help="print the text only")
    options.add_model_options(parser, drafter="none")
    options.add_sampling_options(parser)
    parser.set_defaults(run=run)


def read_prompt(args: argparse.Namespace) -> str:
    """The prompt's text; one line end at the end of a file or of standard input is no part of it."""
    if (args.prompt is None) == (args.prompt_file is None):
        raise InvalidPrompt("give one prompt: a text, - for standard input, or --prompt-file FILE")
    try:
        if args.prompt_file is not None:
            text = Path(args.prompt_file).read_text(encoding="utf-8").removesuffix("\n")
        else:
            text = sys.stdin.read().removesuffix("\n") if args.prompt == "-" else args.prompt
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPrompt(f"can't read the prompt: {error}") from error
    if not text:
        raise InvalidPrompt("the prompt is empty: give a text")
    return str(text)


def as_prompt(text: str, args: argparse.Namespace, has_template: bool) -> Prompt:
    """Chat messages where asked for, or where the model has a template and nothing else was said; else the text."""
    if args.chat is False or (args.chat is None and args.system is None and not has_template):
        return text
    system = [{"role": "system", "content": args.system}] if args.system is not None else []
    return [*system, {"role": "user", "content": text}]


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 when the engine gave the request up."""
    if args.chat is False and args.system is not None:
        raise InvalidParams("--system needs a chat prompt: drop --no-chat")
    text, params = read_prompt(args), options.sampling_params(args)
    if params.logprobs is not None and not args.json:
        raise InvalidParams("--logprobs is shown with --json only: add it")
    params = compare.with_seed(params)
    with loading(args.quiet) as progress:
        llm = options.load(args, progress, one_text=not args.compare)
    with llm:
        prompt = as_prompt(text, args, llm.tokenizer.has_chat_template)
        if args.compare:
            compare.warm_up(llm)
        output = llm.generate([prompt], params)[0] if args.json else _stream(llm, prompt, params)
        if output.error is not None:
            raise EngineError(output.error)
        compared = compare.comparison(llm, compare.run_plain(llm, prompt, params, None), output) if args.compare else {}
        if args.json:
            print_json(as_json(llm.info, output) | compared)
        elif not args.quiet:
            _summary(output, compared)
    return 0


def _stream(llm: LLM, prompt: Prompt, params: SamplingParams) -> Output:
    """Writes the text as it comes; ends its line even when interrupted."""
    output = None
    try:
        for chunk in llm.stream(prompt, params):
            sys.stdout.write(chunk.text)
            sys.stdout.flush()
            output = chunk.output
    except KeyboardInterrupt:
        print(flush=True)
        raise
    print(flush=True)
    if output is None:
        raise EngineError("the stream ended without a result: please report this")
    return output


def _summary(output: Output, compared: dict[str, Any]) -> None:
    spoken, timing = output.speculation, output.timing
    speed, first = number(timing.decode_tokens_per_second), number(timing.ttft_s, ".2f")
    ended = f"{len(output.token_ids)} tokens ({output.finish_reason})"
    note(f"\n{ended}, {speed} tokens/s, first after {first} s, loaded in {number(timing.load_s)} s")
    passes = f"{number(spoken.tokens_per_round, '.2f')} tokens per target pass"
    share = f"acceptance {percent(spoken.acceptance)} ({spoken.accepted} accepted / {spoken.tested} tested)"
    note(f"drafter {spoken.drafter}, rule {spoken.rule}: {passes}, {share}")
    if spoken.acceptance_by_position:
        note("accepted by position: " + "  ".join(map(percent, spoken.acceptance_by_position)))
    if compared:
        _compared(output, compared)


def _compared(output: Output, compared: dict[str, Any]) -> None:
    speed = compared["plain"]["timing"]["decode_tokens_per_second"]
    note(f"plain decoding: {number(speed)} tokens/s; speed-up {number(compared['speedup'], '.2f')}x")
    if compared["identical"]:
        note("text: identical, token for token")
        return
    place = compared["first_difference"]
    sides = ", ".join(f"{name} {place[key + 'token']} (logit {place[key + 'logit']})" for name, key in _SIDES)
    note(f"text: differs from token {place['position']} on: {sides}")
    if output.speculation.rule in ("reject", "block"):
        note(f"rule {output.speculation.rule} keeps the law of the text, not the text: coupled keeps both")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def as_json(info: dict[str, Any], output: Output) -> dict[str, Any]:
    """One output as a JSON-ready object; a log-probability of minus infinity is null."""
    value: dict[str, Any] = {
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "usage": output.usage,
        "seed": output.seed,
        "speculation": {**output.speculation.as_dict(), "gamma": info.get("gamma")},
        "timing": output.timing.as_dict(),
        "engine": info,
    }
    if output.logprobs is not None:
        value["logprobs"] = [
            {
                "token": entry.token,
                "logprob": _finite(entry.logprob),
                "top": [{"token": token, "logprob": _finite(logprob)} for token, logprob in entry.top],
            }
            for entry in output.logprobs
        ]
    return value

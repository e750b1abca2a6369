"""Options that several commands share: of the model and engine, of sampling; and how they become library arguments.

Invariant: an option that was given reaches the library, which checks it; nothing is accepted and ignored.

Does not know: what the values mean. Ranges and names are checked where they are used, once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from draftproof.engine.llm import LLM
from draftproof.types import SamplingParams

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
ENGINE_OPTIONS = (
    *("draft_model", "draft_weights", "exit_layer", "gamma", "tree", "cost_file"),
    *("weights", "backend", "numerics", "kv_memory", "threads", "enable_prefix_caching"),
)


def memory(text: str) -> int:
    """Bytes of "1GiB", "512M" (binary), "2GB" (decimal) or a plain number."""
    match = _SIZE.fullmatch(text.strip())
    unit = match and _UNITS.get(match[2].lower())
    if not match or not unit:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory size: give a number with a unit, like 2GiB or 512MiB")
    size = int(float(match[1]) * unit)
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory size: it must be above 0")
    return size


def integers(text: str) -> tuple[int, ...]:
    """(1, 8) of "1,8"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be numbers with commas between, whole numbers like 1,8"
        ) from None


def bias(text: str) -> tuple[int, float]:
    """(token id, number) of "ID=VALUE"."""
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be ID=VALUE, like 42=-5 or 42=-inf") from None


def add_model_options(parser: argparse.ArgumentParser, *, drafter: str | None) -> None:
    """The target model, how it runs, and the drafter (with this default; None leaves the drafter's options out)."""
    group = parser.add_argument_group("model and engine")
    add = group.add_argument
    add("--model", default="demo", metavar="M", help="'demo', a Hugging Face folder or id, or a GGUF file (demo)")
    add("--weights", default="auto", metavar="W", help="auto, float32, bfloat16 or int8; int4 is not there yet (auto)")
    add("--backend", default="auto", metavar="B", help="auto, openvino or torch (auto: openvino without a GPU)")
    add("--numerics", default="auto", metavar="N", help="auto, invariant (bit-identical at any width) or fast (auto)")
    if drafter is not None:
        drafters = "none, ngram, suffix, model, early_exit, fixed_tree, eagle, medusa or cascade"
        add("--drafter", default=drafter, metavar="D", help=f"{drafters} ({drafter})")
        add("--draft-model", metavar="M", help="the drafter's model (model, fixed_tree) or head (the last three)")
        add_draft_weights(add)
        add("--exit-layer", type=int, metavar="K", help="layers that early_exit drafts with (a third of the target's)")
        add("--gamma", type=int, metavar="N", help="draft length (adapted to what is accepted)")
        add_tree(add)
        add(
            "--cost-file",
            metavar="FILE",
            help="costs of this device, from `draftproof cost`, to choose draft lengths by",
        )
    add("--kv-memory", type=memory, metavar="SIZE", help="memory for keys and values, like 512MiB (1GiB)")
    add(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        help="reuse the keys and values of prompts that begin alike (where that changes no bit)",
    )
    add("--threads", type=int, metavar="N", help="threads of the model's kernels (all cores)")
    add("--cache-dir", metavar="DIR", help="where converted models are kept (the user's cache folder)")


def add_draft_weights(add: Callable[..., Any]) -> None:
    """--draft-weights, wherever a drafter may have a second model."""
    text = "weights of the drafter's own model (model, early_exit, fixed_tree): as of --weights (auto: as the target's)"
    add("--draft-weights", default="auto", metavar="W", help=text)


def add_tree(add: Callable[..., Any]) -> None:
    """--tree, wherever a drafter may draft one."""
    text = (
        "let eagle, medusa or cascade draft trees: auto (branches where they pay), dynamic (the likeliest nodes), "
        "children by depth (3,2,1: three first tokens, two after each, one after each of these) or places "
        "('1 2 1.1': the best two first tokens, and the best one after the first); --gamma counts nodes (chains)"
    )
    add("--tree", metavar="SHAPE", help=text)


def add_sampling_options(parser: argparse.ArgumentParser, *, logprobs: bool = True) -> None:
    """Everything `SamplingParams` takes; what is not given keeps the library's default."""
    group = parser.add_argument_group("sampling")

    def add(name: str, text: str, kind: Callable[[str], Any] = float, **more: Any) -> None:
        group.add_argument(name, type=kind, help=text, default=argparse.SUPPRESS, **more)

    add("--temperature", "0 is greedy (0)", metavar="T")
    add("--top-k", "keep the K likeliest tokens", int, metavar="K")
    add("--top-p", "keep the likeliest tokens that make up P", metavar="P")
    add("--min-p", "keep tokens at least P times as likely as the likeliest", metavar="P")
    add("--repetition-penalty", "divide the logits of tokens seen (1)", metavar="X")
    add("--presence-penalty", "subtract from the logits of tokens written", metavar="X")
    add("--frequency-penalty", "the same, times how often", metavar="X")
    add("--logit-bias", "add to one token's logit; repeatable", bias, action="append", metavar="ID=VALUE")
    add(
        "--bad-word",
        "a word whose own tokens are banned, alone and after a space; repeatable",
        str,
        action="append",
        metavar="W",
        dest="bad_words",
    )
    add("--stop", "a text that ends the output; repeatable", str, action="append", metavar="S")
    add("--stop-id", "a token id that ends the output; repeatable", int, action="append", metavar="ID", dest="stop_ids")
    group.add_argument(
        "--ignore-eos", action="store_true", default=argparse.SUPPRESS, help="go on past the model's end"
    )
    add("--min-new-tokens", "write at least N tokens", int, metavar="N")
    add("--max-new-tokens", "write at most N tokens (128)", int, metavar="N")
    add("--seed", "the same seed gives the same tokens (a fresh one)", int, metavar="N")
    add(
        "--rule",
        "auto, reject, block, follow or coupled (auto: follow at temperature 0, else coupled)",
        str,
        metavar="R",
    )
    if logprobs:
        add("--logprobs", "report each token's log-probability and the N likeliest (with --json)", int, metavar="N")


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """What was given, checked. Raises InvalidParams."""
    names = [name for name in SamplingParams.__dataclass_fields__ if name in args]
    given = {name: getattr(args, name) for name in names}
    if "logit_bias" in given:
        given["logit_bias"] = dict(given["logit_bias"])
    return SamplingParams(**given)


def load(args: argparse.Namespace, progress: Callable[[str], None], *, one_text: bool = False) -> LLM:
    """The model and drafter that the options name. one_text: what makes later texts faster is not worth its time."""
    engine = {name: getattr(args, name) for name in ENGINE_OPTIONS} | {"huge_pages": not one_text}
    return LLM(args.model, drafter=args.drafter, cache_dir=args.cache_dir, progress=progress, **engine)

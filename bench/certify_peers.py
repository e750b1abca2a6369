"""Certificates of other engines: python -m bench.certify_peers SUBJECT [--temperature T] [--tokens N] --out FILE

SUBJECT is transformers-lookup, transformers-assisted (an assistant with the model's own layers, its weights moved at
random, so that it is right about as often as not), llama-cpp-lookup (on the GGUF file, in its own environment:
`python -m bench.run --install llamacpp`; with -flash: with its fused attention) or vllm (with --endpoint and
--baseline). llama-cpp-plain and vllm-plain are the baseline as its own subject: the control that shows what the
reference alone would raise.

The reference is teacher-forced: llama.cpp's own rows for llama.cpp, for all others the same weights in float32 by
transformers' own forward. Greedy differences are ties within twice the drift that is measured first: the largest
difference of a logit between the widths that decoding uses.

Does not know: what the tests are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import provenance
from bench.environments import ENVIRONMENTS
from draftproof.certify import Certificate, Job, LawReference, Plan, Sampler, dumps, run
from draftproof.certify.adapters import PEER_TESTS, PeerReference, PeerSampler, open_peer
from draftproof.certify.adapters.foreign import drift_of
from draftproof.certify.again import Given, PeerRecipe
from draftproof.certify.endpoint import Endpoint, EndpointOptions
from draftproof.certify.engine import hashes
from draftproof.certify.own import PROMPTS
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve
from draftproof.params import SamplingParams
from draftproof.text.tokenizer import Tokenizer

_ASSISTANT = {"assistant_layers": 30, "assistant_noise": 0.15, "assistant_tokens": 4}
_LOOKUP = {"lookup": 4, "ngram": 3}
_METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # SUBJECT: adapter, options beside the model
    "transformers-lookup": ("transformers", _LOOKUP),
    "transformers-assisted": ("transformers", _ASSISTANT),
    "llama-cpp-lookup": ("llama-cpp", _LOOKUP),
    "llama-cpp-plain": ("llama-cpp", {}),
    "llama-cpp-lookup-flash": ("llama-cpp", {**_LOOKUP, "flash": True}),
}
_DRIFT_TEXTS, _DRIFT_TOKENS = 4, 48


def plan_of(tokenizer: Tokenizer, args: argparse.Namespace) -> Plan:
    """The built-in prompts, this many tokens."""
    prompts = tuple(tuple(tokenizer.encode(text)) for text in PROMPTS)
    params = SamplingParams(temperature=args.temperature)
    settings = {"tokens": args.tokens, "max_tv": args.max_tv, "seed": args.seed, "batch": args.batch}
    return Plan(prompts, params, frozenset(tokenizer.eos_ids), tests=PEER_TESTS, **settings)


def certify(subject: Sampler, laws: LawReference, plain: Sampler, plan: Plan, out: Path) -> Certificate:
    """Goes on where it was, if it was killed."""

    def say(stage: str, done: int, of: int) -> None:
        print(f"{stage}: {done} of {of}", file=sys.stderr, flush=True)

    return run(subject, laws, plan, baseline=plain, state=Path(f"{out}.part"), progress=say)


def drift_by_width(plain: PeerSampler, plan: Plan) -> dict[str, float]:
    """By width of a step, the largest over some greedy texts."""
    found: dict[str, float] = {}
    for number in range(_DRIFT_TEXTS):
        prompt = plan.prompts[number % len(plan.prompts)]
        job = Job(number, prompt, SamplingParams(max_new_tokens=_DRIFT_TOKENS, seed=number))
        (sample,) = plain.sample([job])
        measured = plain.peer.drift([*prompt, *sample.tokens], len(prompt), [1, 2, 3, 5])
        found = {width: max(found.get(width, 0.0), value) for width, value in measured.items()}
    return found


def _peer(name: str, folder: str, tokenizer: Tokenizer, args: argparse.Namespace) -> Certificate:
    plan, (engine, method) = plan_of(tokenizer, args), _METHODS[name]
    python = ENVIRONMENTS["llamacpp"].python if engine == "llama-cpp" else None
    model = str(resolve("demo").path) if engine == "llama-cpp" else folder
    with ExitStack() as stack:
        base = {"model": model, "threads": args.threads, **{k: v for k, v in method.items() if k == "flash"}}
        plain = stack.enter_context(open_peer(engine, base, python=python))
        subject = stack.enter_context(open_peer(engine, {**base, **method}, python=python))
        drift = drift_by_width(plain, plan)
        laws = PeerReference(plain.peer, plain, max(drift.values()))
        made = certify(subject, laws, plain, plan, args.out)
    made["drift_by_width"] = drift
    again = PeerRecipe(engine, "demo", {"threads": args.threads, **method}, Given(python=python and str(python)))
    made["again"] = again.as_json()
    return made


def _vllm(name: str, folder: str, tokenizer: Tokenizer, args: argparse.Namespace) -> Certificate:
    plan = plan_of(tokenizer, args)
    with ExitStack() as stack:
        laws_peer = stack.enter_context(open_peer("transformers", {"model": folder, "threads": args.threads}))
        options = {"concurrency": args.batch}
        plain = stack.enter_context(Endpoint(EndpointOptions(args.baseline, **options), "vLLM, plain"))
        subject = plain
        if name == "vllm":
            subject = stack.enter_context(Endpoint(EndpointOptions(args.endpoint, **options), "vLLM, n-gram"))
        laws = PeerReference(laws_peer.peer)
        laws.drift = drift_of(plain, laws, plan, _DRIFT_TOKENS)
        before = subject.counters() or {}
        made = certify(subject, laws, plain, plan, args.out)
        after = subject.counters() or {}
    made["speculation_by_metrics"] = {key: after[key] - before.get(key, 0.0) for key in after}
    return made


def _without_paths(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_paths(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def main(argv: Sequence[str] | None = None) -> int:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=[*_METHODS, "vllm", "vllm-plain"])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--max-tv", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--endpoint", default="http://127.0.0.1:8000")
    parser.add_argument("--baseline", default="http://127.0.0.1:8001")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    given = list(sys.argv[1:] if argv is None else argv)
    started = provenance.begin(given, "bench.certify_peers", args.seed)
    folder = Loader(Cache(None), print).folder(resolve("demo"))
    tokenizer = Tokenizer.from_folder(folder)
    make = _peer if args.subject in _METHODS else _vllm
    made = make(args.subject, str(folder), tokenizer, args)
    gguf = resolve("demo").path
    made["model"] = {"name": "demo", "files": {**hashes(folder), **hashes(gguf)}}
    made["provenance"] = provenance.end(started)
    python = str(ENVIRONMENTS["llamacpp"].python)
    names = {str(folder): "demo", str(gguf): gguf.name, python: "the interpreter that has it"}
    args.out.write_text(dumps(_without_paths(made, names)) + "\n", encoding="utf-8")
    print(json.dumps({name: made[name] for name in ("verdict", "summary", "reasons", "fault")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

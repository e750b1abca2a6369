"""Why openvino-genai's prompt lookup says something else than its own plain decoding: python -m bench.certify_genai

Greedy, the twelve prompts of the bench, plain and with prompt lookup through the same `ContinuousBatchingPipeline`,
under settings of the CPU plugin that switch one source of width-dependent rounding after the other off. For each
setting: how many texts are equal; and over the tokens that both texts begin with, the largest difference of the same
token's log-probability at the same prefix, which is what a wider forward changes. As it comes, the plain texts go
through `LLMPipeline` as well, so that two pipelines are not taken for two roundings.

Does not know: our engine. Nothing is judged here: the file says what was seen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import provenance, results
from bench.environments import ENVIRONMENTS
from bench.ties import first_difference
from bench.workloads import WORKLOADS
from draftproof.certify.adapters import open_peer
from draftproof.certify.worker import WorkerPeer
from draftproof.engine import prompts as prompting
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve
from draftproof.text.tokenizer import Tokenizer

_KV = {"KV_CACHE_PRECISION": "f32"}
_NO_DQ = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "as it comes": {},
    "no dynamic quantisation": _NO_DQ,
    "float32": _F32,
    "float32, float32 cache": {**_F32, **_KV},
    "float32, no dynamic quantisation": {**_F32, **_NO_DQ},
    "float32, float32 cache, no dynamic quantisation": {**_F32, **_KV, **_NO_DQ},
}
_DRAFTED = 4
_ASKED = {"temperature": 0.0, "min_new_tokens": 0, "seed": 1, "stop_ids": [], "repetition_penalty": 1.0}
_ASKED |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}

Text = Mapping[str, Any]  # tokens, logprobs, score


def texts(model: str, prompts: Sequence[Sequence[int]], num_tokens: int, options: Mapping[str, Any]) -> list[Text]:
    """One a prompt, with log-probabilities where the pipeline gives them."""
    python = ENVIRONMENTS["openvino-genai"].python
    with open_peer("openvino-genai", {"model": model, **options}, python=python) as sampler:
        assert isinstance(sampler.peer, WorkerPeer)
        op = "scored" if options["pipeline"] == "batching" else "sample"
        asked = {**_ASKED, "max_new_tokens": num_tokens}
        return [sampler.peer.ask(op, prompt=list(prompt), asked=asked) for prompt in prompts]


def compare(plain: Sequence[Text], ours: Sequence[Text]) -> dict[str, Any]:
    """Equal texts, first differences, and how far the same token's log-probability moves at the same prefix."""
    moved: list[float] = []
    differences = []
    for number, (a, b) in enumerate(zip(plain, ours, strict=True)):
        at = first_difference(a["tokens"], b["tokens"])
        common = len(a["tokens"]) if at is None else at
        moved += [abs(x - y) for x, y in zip(a["logprobs"][:common], b["logprobs"][:common], strict=True)]
        if at is not None:
            said = {"plain": [a["tokens"][at], a["logprobs"][at]], "lookup": [b["tokens"][at], b["logprobs"][at]]}
            differences.append({"prompt": number, "position": at, **said})
    moved.sort()
    return {
        "texts": len(plain),
        "equal": len(plain) - len(differences),
        "tokens_at_equal_prefixes": len(moved),
        "logprob_moved_median": moved[len(moved) // 2],
        "logprob_moved_99": moved[int(0.99 * len(moved))],
        "logprob_moved_largest": moved[-1],
        "first_differences": differences,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    started = provenance.begin(list(sys.argv[1:] if argv is None else argv), "bench.certify_genai", 1)
    source = resolve("demo")
    tokenizer = Tokenizer.from_folder(Loader(Cache(None), print).folder(source))
    asked = [text for bucket in WORKLOADS.values() for text in bucket]
    size = tokenizer.vocab_size
    prompts = [prompting.encode([{"role": "user", "content": text}], tokenizer, size, None).tolist() for text in asked]
    rows: list[dict[str, Any]] = []
    for name, properties in SETTINGS.items():
        base = {"pipeline": "batching", "properties": dict(properties)}
        plain = texts(str(source.path), prompts, args.tokens, base)
        lookup = texts(str(source.path), prompts, args.tokens, {**base, "lookup": _DRAFTED})
        rows.append({"setting": name, "properties": dict(properties), **compare(plain, lookup)})
        if not properties:
            other = texts(str(source.path), prompts, args.tokens, {**base, "pipeline": "llm"})
            same = sum(a["tokens"] == b["tokens"] for a, b in zip(plain, other, strict=True))
            rows[-1]["plain_texts_equal_to_llm_pipeline"] = same
        print(name, rows[-1]["equal"], "of", len(prompts), rows[-1]["logprob_moved_largest"], flush=True)
        results.write(args.out, {"settings": rows, "provenance": provenance.end(started)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

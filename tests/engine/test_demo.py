"""The real demo model, 8-bit weights: the same tokens and bits with every drafter, alone, in a batch, in chunks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftproof import LLM, SamplingParams
from draftproof.models import selfcheck

pytestmark = pytest.mark.demo
PASSAGE = "The mill on the river was built in 1802, burned in 1866 and was built again of stone. Its wheel turns still."
PROMPTS = [
    f"{PASSAGE}\nRepeat the text above.",
    f"{PASSAGE}\nWhen was the mill built, and when did it burn?",
    "Write three short sentences about the sea.",
    "def add(a, b):\n    return a + b\n\nRepeat this function, then write one that subtracts.",
    "Why do leaves fall?",
    "List the numbers from one to ten, each on a line of its own.",
    "Say hello in five languages.",
    f"Summarise: {PASSAGE}",
]
SAMPLED = SamplingParams(temperature=0.8, seed=7, rule="coupled", max_new_tokens=24, logprobs=0)
GREEDY = SamplingParams(max_new_tokens=24, logprobs=0)
DRAFTERS = {
    "ngram": {},
    "suffix": {},
    "early_exit": {"exit_layer": 4, "gamma": 3},  # an early exit pays nowhere: left to itself it would not draft
    "model": {"draft_model": "demo"},
    "fixed_tree": {"exit_layer": 4, "gamma": 5},
    "eagle": {"gamma": 3},
    "eagle with trees": {"gamma": 5, "tree": "dynamic"},
}


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caller's cache if there is one, so that the model is converted once."""
    named = os.environ.get("DRAFTPROOF_CACHE_DIR")
    return Path(named) if named else tmp_path_factory.mktemp("demo-cache")


@pytest.fixture(scope="module")
def plain(cache_dir: Path):
    """Tokens and last log-probabilities of plain decoding, one prompt at a time."""
    with LLM("demo", cache_dir=cache_dir, kv_memory=1 << 28) as llm:
        findings = selfcheck.full(llm.built.engine.target)
        assert len(findings) > 30
        assert all(finding.equal for finding in findings)
        return [[llm.generate(prompt, params, chat=True)[0] for prompt in PROMPTS] for params in (GREEDY, SAMPLED)]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_each_drafter_gives_plain_decodings_tokens_and_bits(drafter: str, plain, cache_dir: Path) -> None:
    name = drafter.partition(" ")[0]
    with LLM("demo", drafter=name, cache_dir=cache_dir, kv_memory=1 << 28, chunk_rows=19, **DRAFTERS[drafter]) as llm:
        assert llm.info["numerics"] == "invariant"
        assert llm.info["weights"] == "int8"
        for params, want in zip((GREEDY, SAMPLED), plain, strict=True):
            alone = [llm.generate(prompt, params, chat=True)[0] for prompt in PROMPTS[:3]]
            batch = llm.generate(PROMPTS, params, chat=True)
            for found, truth in zip([*alone, *batch], [*want[:3], *want], strict=True):
                assert found.token_ids == truth.token_ids
                assert [entry.logprob for entry in found.logprobs] == [entry.logprob for entry in truth.logprobs]
        assert llm.built.engine.meter.accepted > 0

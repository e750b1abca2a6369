"""Each sampling parameter, with each drafter, equals the plain one-token loop: alone, in ragged batches, in chunks, and
after pre-emption. The targets read every token back from the pages, so a row out of place changes the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.model import EarlyExitDrafter, ModelDrafter
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.none import NoneDrafter
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.types import Draft, SamplingParams

V = 11
OPTIONS = ToyOptions(max_len=96, num_pages=400, page_size=4, min_rows=2)


def target(**options):
    """Every visible token and position counts; a lone row takes "another kernel"."""
    return HashTarget(V, seed=5, window=3, scale=3.0, options=OPTIONS, **options)


def second(**options):
    return HashTarget(V, seed=5, window=3, scale=3.0, options=OPTIONS, **options), PageLedger(400, 4), V


def wild(item):
    """Random trees, most of them wrong."""
    rng = np.random.default_rng([item.seq, item.round])
    count = int(rng.integers(0, 6))
    parents = np.array([rng.integers(0, i + 1) for i in range(count)], np.int32)
    return Draft(rng.integers(0, V, count).astype(np.int32), parents)


DRAFTERS = {
    "none": NoneDrafter,
    "ngram": lambda: NgramDrafter(3, 1),
    "suffix": lambda: SuffixDrafter(min_match=1, min_probability=0.05),
    "suffix-memory": lambda: SuffixDrafter(min_match=1, min_probability=0.05, memory_tokens=200),
    "self": lambda: ModelDrafter(*second()),
    "model": lambda: ModelDrafter(*second(jitter=0.4)),
    "early_exit": lambda: EarlyExitDrafter(*second(jitter=0.8)),
    "fixed_tree": lambda: FixedTreeDrafter(*second(jitter=0.4), widths=(2, 2, 1)),
    "wild-trees": lambda: ScriptedDrafter(wild),
}

PARAMETERS = {
    "greedy": {},
    "temperature": {"temperature": 0.9},
    "hot": {"temperature": 3.0},
    "cold": {"temperature": 1e-6},
    "top_k": {"temperature": 1.0, "top_k": 3},
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "min_p": {"temperature": 1.0, "min_p": 0.3},
    "all truncations": {"temperature": 1.2, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 1.1, "temperature": 0.7},
    "frequency": {"frequency_penalty": 0.8},
    "bias": {"logit_bias": {1: 2.0, 4: -np.inf, 7: -3.0}, "temperature": 0.8},
    "bad words": {"bad_words": ((2,), (3, 5), (1, 1, 6))},
    "min tokens": {"min_new_tokens": 9},
    "follow": {"temperature": 1.0, "rule": "follow"},
    "capped": {"max_draft_tokens": 1, "temperature": 0.5},
}
STOP = frozenset({9, 10})


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_with_each_drafter_equals_the_plain_loop(name, drafter, truth, engine_of, play):
    requests = [
        ([3, 1, 4, 1, 5], SamplingParams(seed=7, max_new_tokens=24, **PARAMETERS[name])),
        ([2], SamplingParams(seed=2**64 - 1, max_new_tokens=17, **PARAMETERS[name])),
        (list(range(8)) * 3, SamplingParams(seed=9, max_new_tokens=None, **PARAMETERS[name])),
    ]
    runs = play(engine_of(target(), DRAFTERS[drafter](), gamma=5), requests, stop_ids=STOP)
    for (prompt, params), run in zip(requests, runs, strict=True):
        assert (run.tokens, run.finish) == truth(target(), prompt, params, STOP)


PARAMS = st.builds(
    lambda seed, cap, kind, draft: SamplingParams(
        seed=seed, max_new_tokens=cap, max_draft_tokens=draft, **PARAMETERS[kind]
    ),
    st.integers(0, 2**64 - 1),
    st.integers(0, 30),
    st.sampled_from([name for name in PARAMETERS if name != "capped"]),
    st.sampled_from([None, 0, 1, 3]),
)
REQUESTS = st.lists(st.tuples(st.lists(st.integers(0, V - 1), min_size=1, max_size=40), PARAMS), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    requests=REQUESTS,
    drafter=st.sampled_from(list(DRAFTERS)),
    gamma=st.integers(0, 7),
    pages=st.integers(26, 60),
    chunk=st.integers(1, 20),
    running=st.integers(1, 5),
)
def test_batches_chunks_and_preemption_change_nothing(
    requests, drafter, gamma, pages, chunk, running, truth, engine_of, play
):
    engine = engine_of(
        target(), DRAFTERS[drafter](), gamma=gamma, pages=pages, chunk_rows=chunk, max_sequences=running,
        max_step_rows=max(24, 2 * running),
    )  # fmt: skip
    runs = play(engine, requests, stop_ids=STOP)
    for (prompt, params), run in zip(requests, runs, strict=True):
        assert (run.tokens, run.finish) == truth(target(), prompt, params, STOP)


def test_pressure_really_preempts(engine_of, play, truth):
    """The property above would say nothing if pages never ran out."""
    engine = engine_of(target(), NgramDrafter(3, 1), pages=26)
    evicted = []
    evict = engine.scheduler._evict
    engine.scheduler._evict = lambda state: (evicted.append(state.seq), evict(state))
    requests = [([1 + i] * 20, SamplingParams(seed=i, max_new_tokens=40, temperature=1.0)) for i in range(4)]
    runs = play(engine, requests)
    assert evicted
    for (prompt, params), run in zip(requests, runs, strict=True):
        assert (run.tokens, run.finish) == truth(target(), prompt, params)


@pytest.mark.parametrize("num", [8, 32])
def test_wide_batches_of_mixed_requests_equal_their_solo_runs(num, engine_of, play, truth):
    rng = np.random.default_rng(num)
    kinds = [name for name in PARAMETERS if name != "capped"]
    requests = [
        (
            rng.integers(0, V, int(rng.integers(1, 40))).tolist(),
            SamplingParams(
                seed=int(rng.integers(0, 2**40)),
                max_new_tokens=int(rng.integers(1, 30)),
                max_draft_tokens=int(rng.integers(0, 6)),
                **PARAMETERS[kinds[i % len(kinds)]],
            ),
        )
        for i in range(num)
    ]
    engine = engine_of(target(), ModelDrafter(*second(jitter=0.4)), gamma=6, max_sequences=num)
    runs = play(engine, requests, stop_ids=STOP)
    for (prompt, params), run in zip(requests, runs, strict=True):
        assert (run.tokens, run.finish) == truth(target(), prompt, params, STOP)


def test_the_memory_budget_is_a_context_limit(engine_of, play, truth):
    """Seven pages of four rows hold 28 tokens: the text ends there with "length", as plain decoding with that limit."""
    prompt, params = [1, 2, 3], SamplingParams(max_new_tokens=None)
    run = play(engine_of(target(), ModelDrafter(*second()), pages=7), [(prompt, params)])[0]
    assert (run.tokens, run.finish) == truth(target(), prompt, params, max_len=28)

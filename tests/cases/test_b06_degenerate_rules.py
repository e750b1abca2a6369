"""B06: an empty residual or a NaN never turns into an ordinary token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import RowError
from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, decide_batch, emitted, reject
from draftproof.types import SamplingParams, StepItem, TargetOutput, chain

NOISE = PhiloxNoise()
RULES = ["auto", "reject", "follow", "coupled"]


class AlwaysRefuse:
    def accept(self, node, target_mass, draft_mass):
        return False

    def draw(self, node, weights):
        return int(np.argmax(weights))


def step_item(seq=0, **params):
    return StepItem(seq, np.zeros(3, np.int32), 1, 1, 1, 4, SamplingParams(**{"seed": seq, **params}), 0)


def test_case_a_forced_refusal_of_equal_laws():
    half = np.array([0.5, 0.5], np.float32)
    verdict = reject(chain([0], "iid", half[None]), lambda node: half, AlwaysRefuse())
    assert verdict.next_token in (0, 1)
    assert (verdict.path, verdict.empty_residuals) == ((), 1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_b_target_row_of_nan(rule, temperature):
    rows = np.full((2, 2), np.nan, np.float32)
    item, draft = step_item(temperature=temperature, rule=rule), chain([0], "iid", np.array([[0.5, 0.5]]))
    with pytest.raises(RowError):
        decide(item, draft, HostLogits(rows), 0, 2, NOISE)


@pytest.mark.parametrize("rule", RULES)
def test_case_b_draft_row_of_nan(rule):
    rows = np.array([[-np.inf, 0.0], [0.0, 0.0]], np.float32)
    draft = chain([0], "iid", np.full((1, 2), np.nan, np.float32))
    verdict = decide(step_item(temperature=1.0, rule=rule), draft, HostLogits(rows), 0, 2, NOISE)
    assert emitted(draft, verdict) == (1,)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(RULES), min_size=2, max_size=6))
def test_kind_every_row_gives_a_token_of_the_vocabulary_or_an_error_and_mates_are_unchanged(seed, rules):
    rng = np.random.default_rng(seed)
    vocab, size = 4, 3
    items = [step_item(seq, temperature=float(rng.choice([0, 1e-40, 1])), rule=r) for seq, r in enumerate(rules)]
    laws = rng.dirichlet(np.ones(vocab), (len(rules), size))
    drafts = [chain(rng.integers(0, vocab, size), "iid", law) for law in laws]
    rows = rng.integers(0, 2, (len(rules), size + 1, vocab)).astype(np.float32)
    offsets = np.arange(len(rules) + 1) * (size + 1)

    def decided(broken):
        logits = HostLogits(np.where(broken[..., None], np.nan, rows).reshape(-1, vocab))
        return decide_batch(items, drafts, TargetOutput(logits, offsets), vocab, NOISE)

    whole = decided(np.zeros(rows.shape[:2], bool))
    sick = int(rng.integers(len(rules)))
    broken = np.zeros(rows.shape[:2], bool)
    broken[sick, rng.integers(size + 1)] = True
    for seq, (healthy, verdict) in enumerate(zip(whole, decided(broken), strict=True)):
        if isinstance(verdict, RowError):
            assert seq == sick
        else:
            assert verdict == healthy
            assert 0 <= verdict.next_token < vocab
    if broken[sick, 0]:
        assert isinstance(decided(broken)[sick], RowError)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_kind_nearly_equal_float_laws_stay_in_the_support(seed):
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(5, 0.3)).astype(np.float32)
    target[rng.integers(5)] = 0
    target /= target.sum()
    drafted = np.nextafter(target, np.float32(rng.choice([0, 1])))
    token = int(target.argmax())
    verdict = reject(chain([token], "iid", drafted[None]), lambda node: target, AlwaysRefuse())
    assert target[verdict.next_token] > 0

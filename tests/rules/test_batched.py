"""decide_batch equals decide for every sequence of random ragged batches."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import RowError
from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, decide_batch
from draftproof.types import Draft, SamplingParams, StepItem, TargetOutput, chain

NOISE = PhiloxNoise()
VOCAB = 5

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    top_p=st.sampled_from([1.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    bad_words=st.sampled_from([(), ([1, 2],)]),
    seed=st.integers(0, 9),
    rule=st.sampled_from(["auto", "reject", "follow", "coupled"]),
)


def random_draft(rng):
    size = int(rng.integers(0, 6))
    tree = rng.random() < 0.5
    parents = np.array([int(rng.integers(0, i + 1)) if tree else i for i in range(size)], np.int32)
    siblings = rng.choice(["fixed", "iid"])
    laws = rng.dirichlet(np.ones(VOCAB), size + 1)
    row = parents.copy()  # siblings share the row of their parent
    tokens = np.array([rng.choice(VOCAB, p=laws[r]) for r in row], np.int32)
    return Draft(tokens, parents, str(siblings), laws if siblings == "iid" else None, row)


def random_batch(seed, params):
    """Items, drafts and rows: ties, broken rows and prompt chunks included."""
    rng = np.random.default_rng(seed)
    items, drafts, sizes = [], [], []
    for seq, wanted in enumerate(params):
        chunk = rng.random() < 0.2
        tokens = rng.integers(0, VOCAB, 6).astype(np.int32)
        items.append(StepItem(seq, tokens, 2, 3, 2 if chunk else 3, 8, wanted, int(rng.integers(9)), frozenset({0})))
        drafts.append(chain([]) if chunk else random_draft(rng))
        sizes.append(0 if chunk else len(drafts[-1]) + 1)
    rows = rng.integers(0, 3, (sum(sizes), VOCAB)).astype(np.float32)
    rows[rng.random(len(rows)) < 0.1, rng.integers(VOCAB)] = np.nan
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return items, drafts, TargetOutput(HostLogits(rows), offsets)


def alone(item, draft, output, first_row):
    if not item.decides:
        return None
    try:
        return decide(item, draft, output.logits, first_row, VOCAB, NOISE)
    except RowError as error:
        return type(error)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(PARAMS, min_size=1, max_size=8))
def test_equals_decide(seed, params):
    items, drafts, output = random_batch(seed, params)
    verdicts = decide_batch(items, drafts, output, VOCAB, NOISE)
    expected = [alone(*each) for each in zip(items, drafts, [output] * len(items), output.offsets, strict=False)]
    assert [type(v) if isinstance(v, RowError) else v for v in verdicts] == expected


def test_greedy_batches_fetch_no_row():
    class OnlyArgmax:
        def argmax(self):
            return np.array([3, 1, 2, 4, 0])

    items = [StepItem(seq, np.zeros(2, np.int32), 1, 1, 1, 4, SamplingParams(), 0) for seq in range(2)]
    output = TargetOutput(OnlyArgmax(), np.array([0, 3, 5], np.int32))
    first, second = decide_batch(items, [chain([3, 1]), chain([0])], output, VOCAB, NOISE)
    assert (first.path, first.next_token, first.source) == ((1, 2), 2, "bonus")
    assert (second.path, second.next_token, second.source) == ((), 4, "correction")


def test_a_sampled_batch_asks_for_no_argmax():
    class OnlyRows:
        def row(self, index):
            return np.zeros(VOCAB)

    item = StepItem(0, np.zeros(2, np.int32), 1, 1, 1, 4, SamplingParams(temperature=1.0, seed=1), 0)
    (verdict,) = decide_batch([item], [chain([])], TargetOutput(OnlyRows(), np.array([0, 1])), VOCAB, NOISE)
    assert 0 <= verdict.next_token < VOCAB

"""The toy targets: faithful to their pages, and strict."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.errors import EngineError
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.toy import ConstTarget, CycleTarget, HashTarget, TableTarget, ToyOptions
from draftproof.types import Moves, Slots

V = 11
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def ids(tokens):
    return np.array(tokens, np.int32)


def slots(start=0, rows=0, first_page=0):
    return Slots(np.arange(first_page, first_page + 12, dtype=np.int32), start, rows)


def rows(target, tokens, start=0, parents=None, first_page=0, feed=None):
    """float[n, V]: logits of the wanted rows of one sequence."""
    feed = len(tokens) if feed is None else feed
    batch = flat_batch([Rows(ids(tokens), feed, slots(start, len(tokens), first_page), parents)], 1)
    output = target.verify(batch)
    return np.stack([output.logits.row(i) for i in range(len(batch.logit_rows))])


def whole(tokens, **options):
    return rows(HashTarget(V, seed=5, **options), tokens)[-1]


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_chunks_and_batch_mates_change_no_bit(window, size):
    target = HashTarget(V, seed=5, window=window)
    for start in range(0, len(PROMPT), size):
        last = rows(target, PROMPT[start : start + size], start)[-1]
    assert np.array_equal(last, whole(PROMPT, window=window))
    pair = [Rows(ids(PROMPT), 8, slots()), Rows(ids(PROMPT[:5]), 5, slots(0, 5, 20))]
    output = HashTarget(V, seed=5, window=window).verify(flat_batch(pair, 1))
    assert np.array_equal(output.logits.row(0), last)
    assert np.array_equal(output.logits.row(1), whole(PROMPT[:5], window=window))


def test_every_earlier_token_counts_and_its_order():
    base = whole(PROMPT)
    for index in range(len(PROMPT)):
        changed = [*PROMPT[:index], (PROMPT[index] + 1) % V, *PROMPT[index + 1 :]]
        assert not np.array_equal(whole(changed), base)
    assert not np.array_equal(whole([1, 3, *PROMPT[2:]]), base)
    assert not np.array_equal(whole([0, *PROMPT]), base)


def test_a_window_forgets_and_repeats():
    assert np.array_equal(whole([7, 7, 7, 1, 2], window=2), whole([8, 1, 2], window=2))
    assert not np.array_equal(whole([7, 0, 2], window=2), whole([7, 1, 2], window=2))


def test_logits_are_spread_over_the_scale():
    sample = np.concatenate([whole([a, b], scale=2.0) for a in range(V) for b in range(V)])
    assert -2 <= sample.min() < -1.9 < 1.9 < sample.max() <= 2
    assert abs(sample.mean()) < 0.2
    assert not np.array_equal(whole(PROMPT, jitter=0.3), whole(PROMPT))


def test_a_node_of_a_tree_sees_its_ancestors_only():
    """B17's tree: A and B on the root, C on A, D on B; each row equals a plain forward over its path."""
    target, parents = HashTarget(V, seed=5), ids([0, 0, 1, 2])
    logits = rows(target, [*PROMPT, 10, 7, 8, 0], 0, parents, feed=8)
    paths = [[], [10], [7], [10, 8], [7, 0]]
    for row, path in zip(logits, paths, strict=True):
        assert np.array_equal(row, whole(PROMPT + path))


def test_moved_rows_read_as_if_written_there():
    target, parents = HashTarget(V, seed=5), ids([0, 0, 2])
    rows(target, [*PROMPT, 10, 7, 8], 0, parents, feed=8)  # slots 8, 9, 10: keep 9 and 10
    target.move(Moves(ids([[2, 1], [2, 2]]), ids([[2, 0], [2, 1]])))
    assert np.array_equal(rows(target, [4], 10)[-1], whole([*PROMPT, 7, 8, 4]))
    assert [a.tolist() for a in target.read(np.arange(12), 11)] == [[*PROMPT, 7, 8, 4], list(range(11))]


def test_a_move_that_was_forgotten_or_wrong_is_seen():
    target, parents = HashTarget(V, seed=5), ids([0, 0])
    rows(target, [*PROMPT, 10, 7], 0, parents, feed=8)
    assert not np.array_equal(rows(target, [4], 9)[-1], whole([*PROMPT, 7, 4]))  # the refused sibling is still there
    target.move(Moves(ids([[0, 3]]), ids([[2, 0]])))
    with pytest.raises(EngineError, match="another position"):
        rows(target, [4], 9)


def test_copied_pages_are_the_same_text():
    target = HashTarget(V, seed=5)
    rows(target, PROMPT)
    target.copy_pages([(0, 30), (1, 31)])
    assert np.array_equal(rows(target, [2], 8, first_page=30)[-1], whole([*PROMPT, 2]))


def test_faults_are_refused_at_once():
    target = HashTarget(V, options=ToyOptions(max_len=20))
    with pytest.raises(EngineError, match="never written"):
        rows(target, [1], 3)
    with pytest.raises(EngineError, match="context limit 20"):
        rows(target, [1] * 21)
    with pytest.raises(EngineError, match="no slot 4"):
        target.verify(flat_batch([Rows(ids([1] * 5), 5, Slots(ids([0]), 0, 5))], 1))
    with pytest.raises(EngineError, match="same slot"):
        target.verify(flat_batch([Rows(ids([1]), 1, slots())] * 2, 1))


def test_logits_end_with_the_next_forward():
    target = CycleTarget()
    output = target.verify(flat_batch([Rows(ids([1]), 1, slots())], 1))
    assert output.logits.argmax().tolist() == [2]
    rows(target, [1])
    for read in (output.logits.argmax, lambda: output.logits.row(0)):
        with pytest.raises(EngineError, match="next forward"):
            read()


def test_a_narrow_step_gives_other_logits_on_purpose():
    """A packer that forgets the padding row is caught; one that pads is not, and one that may forget declares it."""
    target = CycleTarget(options=ToyOptions(min_rows=2))
    assert rows(target, [1])[-1].argmax() != 2
    assert target.verify(flat_batch([Rows(ids([1]), 1, slots())], 2)).logits.argmax().tolist() == [2]
    assert rows(CycleTarget(options=ToyOptions(min_rows=2, narrow_differs=False)), [1])[-1].argmax() == 2


def test_the_simple_kinds():
    assert rows(ConstTarget([1, 1, 0]), [2, 2])[-1].tolist() == [1, 1, 0]
    assert [int(rows(CycleTarget(), [t])[-1].argmax()) for t in range(8)] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert sorted(set(rows(CycleTarget(8, 5.0), [3])[-1].tolist())) == [0, 5]
    assert rows(TableTarget([[1, 2, 3], [4, 5, 6]]), [0, 1])[-1].tolist() == [4, 5, 6]
    nan = ConstTarget([0, np.nan, 1]).verify(flat_batch([Rows(ids([0]), 1, slots())], 1))
    assert nan.logits.argmax().tolist() == [-1]
    tie = ConstTarget([0, 1, 1]).verify(flat_batch([Rows(ids([0]), 1, slots())], 1))
    assert tie.logits.argmax().tolist() == [1]


def test_rows_and_forwards_are_counted_and_rows_are_read_only():
    target = CycleTarget()
    output = target.verify(flat_batch([Rows(ids([1, 2, 3]), 3, slots())], 1))
    assert (target.num_forwards, target.num_rows) == (1, 3)
    with pytest.raises(ValueError, match="read-only"):
        output.logits.row(0)[0] = 1

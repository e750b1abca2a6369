"""A tie is the only excuse, and each of its conditions is needed."""

import numpy as np
import pytest

from bench import ties


@pytest.mark.parametrize(
    ("reference", "ours", "at"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 5, 3], 1), ([1, 2, 3], [1, 2], 2), ([1], [1, 2], 1), ([], [], None)],
)
def test_first_difference(reference, ours, at):
    assert ties.first_difference(reference, ours) == at


def test_drift_is_the_largest_difference_and_wants_rows_of_one_text():
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    other = rows + np.array([[0.0, 1e-4], [-3e-4, 0.0]], np.float32)
    assert ties.drift(rows, other) == pytest.approx(3e-4, rel=1e-2)
    with pytest.raises(ValueError):
        ties.drift(rows, other[:1])


def _difference(theirs, ours, *, tokens=(1, 2), drift=1e-4):
    rows = (np.array(theirs, np.float64), np.array(ours, np.float64))
    return ties.examine(17, tokens, rows, drift, ties.DRIFT_CEILING)


CLOSE = 10.0 + 5e-5


def test_two_close_tokens_swapped_by_rounding_are_a_tie():
    found = _difference([0, CLOSE, 10.0, 1], [0, 10.0, CLOSE, 1])
    assert found.is_tie
    assert (found.reference_gap, found.our_gap) == (pytest.approx(5e-5), pytest.approx(5e-5))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("the reference's gap is above the drift", {"theirs": [0, 10.1, 10.0, 1], "ours": [0, 10.0, CLOSE, 1]}),
        ("our gap is above the drift", {"theirs": [0, CLOSE, 10.0, 1], "ours": [0, 10.0, 10.1, 1]}),
        ("we emitted what we did not compute", {"theirs": [0, CLOSE, 10.0, 1], "ours": [0, CLOSE, 10.0, 1]}),
        ("a third token is larger", {"theirs": [0, CLOSE, 10.0, 11], "ours": [0, 10.0, CLOSE, 1]}),
        ("a third token is larger in ours", {"theirs": [0, CLOSE, 10.0, 1], "ours": [11, 10.0, CLOSE, 1]}),
        ("the token is another one", {"theirs": [0, CLOSE, 10.0, 1], "ours": [0, 10.0, CLOSE, 1], "tokens": (1, 3)}),
        (
            "the drift itself is no rounding",
            {"theirs": [0, CLOSE, 10.0, 1], "ours": [0, 10.0, CLOSE, 1], "drift": 2 * ties.DRIFT_CEILING},
        ),
    ],
)
def test_everything_else_is_a_fault(name, arguments):
    assert not _difference(**arguments).is_tie, name


def test_the_report_carries_both_logits_of_both_sides():
    shown = _difference([0, CLOSE, 10.0, 1], [0, 10.0, CLOSE, 1]).as_dict()
    assert shown["reference_logits"] == (CLOSE, 10.0)
    assert shown["our_logits"] == (10.0, CLOSE)
    assert shown["tie"] is True

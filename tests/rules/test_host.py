"""HostLogits: argmax ties, broken rows, read-only rows."""

import numpy as np
import pytest

from draftproof.rules import HostLogits


def test_argmax_takes_the_lowest_of_ties_and_marks_broken_rows():
    rows = np.array([[1, 2, 2], [np.nan, 1, 0], [3, 1, np.nan], [-np.inf] * 3, [0, np.inf, 0]], np.float32)
    assert HostLogits(rows).argmax().tolist() == [1, -1, -1, -1, -1]


def test_no_rows():
    logits = HostLogits(np.zeros((0, 5), np.float32))
    assert len(logits) == 0
    assert logits.argmax().tolist() == []


def test_rows_are_read_only_views():
    rows = np.zeros((2, 3))
    logits = HostLogits(rows)
    assert np.shares_memory(logits.row(1), rows)
    with pytest.raises(ValueError, match="read-only"):
        logits.row(1)[0] = 1
    rows[1, 0] = 5  # the owner still may
    assert logits.row(1)[0] == 5

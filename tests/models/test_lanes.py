"""Steps of changing width: padded where that is cheaper, in a lane that is ready, and never with other logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.models.batch import Rows, flat_batch
from draftproof.models.flat import layout, padded
from draftproof.models.lanes import Lanes
from draftproof.types import Slots


@given(
    num_lanes=st.integers(1, 4),
    shape_rows=st.floats(0, 50),
    steps=st.lists(st.integers(0, 300), min_size=1, max_size=60),  # 0 is a prompt step
)
def test_no_step_loses_rows_or_gets_more_than_is_worth_it(num_lanes, shape_rows, steps):
    lanes, padding = Lanes(num_lanes, shape_rows), int(shape_rows / 4)
    for rows in steps:
        lane, shape = lanes.choose(rows) if rows else (lanes.prompt(), 0)
        assert 0 <= lane < num_lanes
        assert 0 <= shape - rows <= padding


def test_widths_that_alternate_settle_in_lanes_of_their_own():
    lanes = Lanes(3, 8.0)
    for _ in range(3):
        seen = {rows: lanes.choose(rows) for rows in (2, 9, 17)}
    assert len({lane for lane, _ in seen.values()}) == 3
    assert [shape for _, shape in seen.values()] == [2, 9, 17]
    assert lanes.choose(15) == (seen[17][0], 17)  # padded, not prepared anew
    assert lanes.choose(8) == (seen[9][0], 9)


def test_a_prompt_takes_the_lane_unused_for_longest_and_leaves_it_free():
    lanes = Lanes(3, 8.0)
    first, second, third = (lanes.choose(rows)[0] for rows in (2, 9, 17))
    assert lanes.prompt() == first
    assert lanes.choose(9)[0] == second
    assert lanes.prompt() == first  # it is still free
    assert lanes.choose(40)[0] == first
    assert lanes.prompt() == third


def test_the_lane_unused_for_longest_is_prepared_anew():
    lanes = Lanes(2, 8.0)
    first, second = lanes.choose(2)[0], lanes.choose(25)[0]
    lanes.choose(2)
    assert lanes.choose(100)[0] == second
    assert lanes.choose(2)[0] == first


def test_without_padding_a_step_keeps_its_rows():
    lanes = Lanes(1, 0.0)
    assert [lanes.choose(rows)[1] for rows in (1, 4, 7, 40)] == [1, 4, 7, 40]


def test_one_lane_forgets_its_shape_after_a_prompt():
    lanes = Lanes(1, 36.0)
    assert lanes.choose(9) == (0, 9)
    assert lanes.choose(2) == (0, 9)
    lanes.prompt()
    assert lanes.choose(2) == (0, 2)


@given(
    num_lanes=st.integers(1, 4),
    shape_rows=st.floats(0, 50),
    steps=st.lists(st.integers(0, 60), max_size=40),
    rows=st.integers(1, 60),
)
def test_what_a_step_costs_is_foretold(num_lanes, shape_rows, steps, rows):
    lanes = Lanes(num_lanes, shape_rows)
    for step in steps:
        lanes.choose(step) if step else lanes.prompt()
    ready = set(lanes._shapes)
    said = lanes.rows_like(rows)
    assert said == lanes.rows_like(rows)  # asking changes nothing
    _, shape = lanes.choose(rows)
    fits = [other for other in ready if 0 <= other - rows <= int(shape_rows / 4)]
    assert said == min(fits, default=rows + 0.75 * shape_rows)  # a shape that padding has paid for is never foretold
    assert shape == rows if not fits else shape in (rows, min(fits))
    assert lanes.rows_like(rows) == shape  # it is ready now


def test_a_width_that_is_padded_for_long_gets_its_own_shape():
    lanes = Lanes(3, 8.0)
    assert lanes.choose(3) == (0, 3)
    seen = [lanes.choose(2) for _ in range(12)]
    assert seen == [(0, 3)] * 8 + [(1, 2)] * 4  # eight rows of padding are what a shape costs
    assert lanes.choose(3) == (0, 3)


def test_padding_takes_no_lane_that_is_in_use():
    lanes = Lanes(2, 8.0)
    for _ in range(40):
        used = [lanes.choose(rows) for rows in (3, 20, 2)]
    assert [shape for _, shape in used] == [3, 20, 3]
    lanes = Lanes(2, 8.0)
    lanes.choose(20)
    lanes.choose(3)
    assert [lanes.choose(2)[1] for _ in range(9)] == [3] * 8 + [2]  # the lane of 20 stood idle


def test_a_lone_lane_becomes_narrow_again_unless_its_width_is_filled():
    lanes = Lanes(1, 8.0)
    assert lanes.choose(4) == (0, 4)
    assert [lanes.choose(2)[1] for _ in range(6)] == [4, 4, 4, 4, 2, 2]  # eight rows of padding, then its own
    for _ in range(20):
        assert lanes.choose(4) == (0, 4)
        assert [lanes.choose(2)[1] for _ in range(3)] == [4, 4, 4]


@given(
    num_lanes=st.integers(1, 4),
    shape_rows=st.floats(1, 50),
    steps=st.lists(st.integers(1, 12), min_size=1, max_size=200),
)
def test_shapes_that_padding_pays_for_cost_no_more_than_the_padding(num_lanes, shape_rows, steps):
    lanes, padding, bought = Lanes(num_lanes, shape_rows), 0, 0
    for rows in steps:
        ready = list(lanes._shapes)
        _, shape = lanes.choose(rows)
        padding += shape - rows
        bought += shape not in ready and any(0 <= other - rows <= int(shape_rows / 4) for other in ready)
    assert bought * shape_rows <= padding


@pytest.mark.parametrize("num_rows", [5, 6, 9])
def test_padding_adds_sequences_of_their_own_and_changes_nothing_before(num_rows):
    tables = [np.array([3, 4], np.int32), np.array([7], np.int32)]
    rows = [
        Rows(np.array([5, 6, 7], np.int32), 3, Slots(tables[0], 31, 3)),
        Rows(np.array([8, 9], np.int32), 1, Slots(tables[1], 4, 2)),
    ]
    plain = layout(flat_batch(rows, 1), doubled=True).inputs
    wide = padded(plain, num_rows, page=63)
    extra = num_rows - len(plain["input_ids"])
    for name, length in (("input_ids", 5), ("position_ids", 5), ("past_lens", 5), ("subsequence_begins", 6)):
        assert wide[name][:length].tolist() == plain[name].tolist()
        assert len(wide[name]) == length + extra
        assert wide[name].dtype == plain[name].dtype
    assert len(wide["rows"]) == num_rows
    assert wide["rows"][: len(plain["rows"])].tolist() == plain["rows"].tolist()
    assert np.diff(wide["subsequence_begins"])[5:].tolist() == [1] * extra
    begins = wide["block_indices_begins"]
    assert len(begins) == num_rows + 1
    assert wide["block_indices"][begins[5] : begins[-1]].tolist() == [63] * extra
    assert len(wide["block_indices"]) % 32 == 0
    assert wide["max_context_len"] == plain["max_context_len"]

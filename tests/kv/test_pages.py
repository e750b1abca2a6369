"""The physical store, on NumPy and torch alike."""

from functools import partial

import numpy as np
import pytest
import torch

from draftproof.kv.pages import LayerShape, PagedStore, paged_store
from draftproof.kv.slots import slot_store
from draftproof.types import NO_MOVES, Moves

SHAPES = [LayerShape(2, 4, 4), LayerShape(1, 6, 3)]  # layers need not look alike


@pytest.fixture(params=["numpy", "torch", "view"])
def store(request):
    """5 pages of 4 rows; every number is different. A view is memory that another library owns."""
    made = paged_store(SHAPES, 5, 4, np.zeros)
    for index, side in enumerate((made.keys, made.values)):
        for layer, array in enumerate(side):
            array[...] = np.arange(array.size).reshape(array.shape) + 10_000 * (2 * layer + index)
    if request.param == "torch":
        return PagedStore([torch.from_numpy(a) for a in made.keys], [torch.from_numpy(a) for a in made.values])
    if request.param == "view":
        return PagedStore([a[:] for a in made.keys], [a[:] for a in made.values])
    return made


def arrays(store):
    """Copies of everything, keys and values."""
    return [np.asarray(a).copy() for side in (store.keys, store.values) for a in side]


def test_moves_with_overlap_read_before_they_write(store):
    before = arrays(store)
    source, to = [(0, 2), (0, 3), (3, 1)], [(0, 1), (0, 2), (0, 3)]  # row 2 is read and written
    store.move(Moves(np.array(source, np.int32), np.array(to, np.int32)))
    for old, new in zip(before, arrays(store), strict=True):
        expected = old.copy()
        for (page, offset), (own, place) in zip(source, to, strict=True):
            expected[own, :, place] = old[page, :, offset]
        assert np.array_equal(new, expected)
        assert not np.array_equal(new, old)


def test_copy_pages(store):
    before = arrays(store)
    store.copy_pages([(4, 0), (2, 1)])
    for old, new in zip(before, arrays(store), strict=True):
        assert np.array_equal(new, old[[4, 2, 2, 3, 4]])


def test_nothing_to_do_changes_nothing(store):
    before = arrays(store)
    store.move(NO_MOVES)
    store.copy_pages(())
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays(store), strict=True))


def test_paged_equals_contiguous():
    """The same rows kept through a page table and in one slot, under the same random moves."""
    rng, zeros = np.random.default_rng(0), partial(torch.zeros, dtype=torch.float64)
    paged, slots = paged_store(SHAPES, 8, 4, zeros), slot_store(SHAPES, 2, 32, zeros)
    table = rng.permutation(8)
    rows = [torch.from_numpy(rng.normal(size=(32, a.shape[1], a.shape[3]))) for a in (*slots.keys, *slots.values)]
    places = np.stack([table[np.arange(32) // 4], np.arange(32) % 4], 1).astype(np.int32)
    for array, twin, row in zip((*paged.keys, *paged.values), (*slots.keys, *slots.values), rows, strict=True):
        array[places[:, 0].astype(int), :, places[:, 1].astype(int)] = row
        twin[1] = row.transpose(0, 1)
    for start in rng.integers(0, 24, 20):
        kept = np.sort(rng.choice(8, 4, replace=False)) + start
        to = np.arange(start, start + 4)
        paged.move(Moves(places[kept], places[to]))
        slots.move(Moves(*(np.stack([np.ones(4), side], 1).astype(np.int32) for side in (kept, to))))
    for array, twin in zip((*paged.keys, *paged.values), (*slots.keys, *slots.values), strict=True):
        assert torch.equal(array[torch.from_numpy(table)].transpose(1, 2).flatten(0, 1), twin[1].transpose(0, 1))
        assert not twin[0].any()
    assert (slots.page_size, paged.page_size) == (32, 4)


def test_a_store_of_unequal_layers_is_refused():
    a, b = np.zeros((3, 1, 4, 2)), np.zeros((3, 1, 8, 2))
    with pytest.raises(ValueError, match="size of pages"):
        PagedStore([a], [b])
    with pytest.raises(ValueError, match="as many"):
        PagedStore([a], [])

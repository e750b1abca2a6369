"""What the torch target hands out, and what stale memory may do to it."""

import numpy as np
import pytest
import torch

from draftproof.errors import EngineError, InvalidParams
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.hf import TorchLogits, TorchTarget
from draftproof.types import Slots


def test_ties_go_to_the_lowest_id_and_broken_rows_to_minus_one():
    rows = torch.zeros(6, 70_000)
    rows[0, [69_999, 12, 40_000]] = 1.0
    rows[1] = -torch.inf
    rows[2, 5], rows[2, 4] = torch.inf, torch.inf
    rows[3, 69_999] = torch.nan
    rows[4, 1] = 2.0
    rows[4, 0] = torch.nan
    rows[5] = -1.0
    assert TorchLogits(rows).argmax().tolist() == [12, -1, -1, -1, -1, 0]
    assert TorchLogits(rows).argmax().dtype == np.int64
    assert TorchLogits(rows[:0]).argmax().shape == (0,)


@pytest.mark.parametrize(
    ("dtype", "host"), [(torch.bfloat16, np.float32), (torch.float32, np.float32), (torch.float64, np.float64)]
)
def test_rows_come_to_the_host_read_only(dtype, host):
    row = TorchLogits(torch.tensor([[1.0, 2.0], [3.0, 4.5]], dtype=dtype)).row(1)
    assert row.dtype == host
    assert row.tolist() == [3.0, 4.5]
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 0.0


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_nan_left_in_freed_pages_harms_nobody(numerics, tiny_model, tape):
    target = TorchTarget(tiny_model("llama"), num_pages=30, page_size=4, numerics=numerics)
    text = list(range(5, 19))  # few enough rows to be padded together with its mate
    clean = tape(target, 3).feed(text)
    for side in (*target.store.keys, *target.store.values):
        side[:-1] = torch.nan
    run = tape(target, 3)
    run.tables = list(np.arange(30, dtype=np.int32).reshape(3, 10))  # nobody writes page 0
    got = run.run(run.rows(1, text), run.rows(2, [4, 5]))
    assert np.abs(got[0] - clean).max() <= (0 if numerics == "invariant" else 1e-10)
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(dtype, tiny_model, tape, stock):
    model = tiny_model("llama", dtype)
    text = list(range(10, 30))
    truth = stock(model.float(), text)
    got = tape(TorchTarget(model.to(dtype), num_pages=8, page_size=4)).feed(text)
    assert np.abs(got - truth).max() < 0.1 * np.abs(truth).max()


def test_prompt_chunks_want_no_logits(tiny_model, tape):
    for numerics in ("fast", "invariant"):
        target = TorchTarget(tiny_model("gpt2"), num_pages=8, page_size=4, numerics=numerics)
        rows = Rows(np.arange(5, 11, dtype=np.int32), 6, Slots(np.arange(2, dtype=np.int32), 0, 6), None, False)
        batch = flat_batch([rows], 1)
        output = target.verify(batch)
        assert output.logits.argmax().shape == (0,)
        assert output.offsets.tolist() == [0, 0]


def test_max_len(tiny_model):
    assert TorchTarget(tiny_model("llama"), num_pages=4).max_len == 256
    assert TorchTarget(tiny_model("llama"), num_pages=4, max_len=99).max_len == 99
    with pytest.raises(InvalidParams, match="256"):
        TorchTarget(tiny_model("llama"), num_pages=4, max_len=257)


def test_a_model_set_to_our_attention_says_how_to_run_it(tiny_model):
    target = TorchTarget(tiny_model("llama"), num_pages=4)
    with pytest.raises(EngineError, match="TorchTarget"):
        target._model(torch.tensor([[5, 6]]), use_cache=False)


def test_pages_for_a_budget(tiny_model):
    model = tiny_model("llama", torch.float32)
    page = 2 * 2 * 2 * 8 * 4 * 32  # keys and values, layers, heads, dim, bytes, rows
    pages = TorchTarget.pages_for(model, 9 * page + 5)
    target = TorchTarget(model, num_pages=pages)
    held = sum(array.nbytes for side in (target.store.keys, target.store.values) for array in side)
    assert (pages, held) == (8, 9 * page)
    with pytest.raises(InvalidParams, match=str(2 * page)):
        TorchTarget.pages_for(model, 2 * page - 1)

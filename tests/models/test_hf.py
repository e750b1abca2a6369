"""The torch target against stock transformers, on every architecture."""

import copy

import numpy as np
import pytest
import torch

from draftproof.models.hf import TorchTarget
from draftproof.types import Moves

VOCAB = 97
# Parents of nodes 0.., node 0 the root. BUSHY: two branches, one of which branches again. DEEP: three children of the
# root, then a line under the last that is longer than any tested window.
BUSHY = [-1, 0, 0, 1, 2, 3, 3]
DEEP = [-1, 0, 0, 0, *range(3, 14)]


def tokens(count, seed=0):
    return np.random.default_rng(seed).integers(3, VOCAB, count).tolist()


@pytest.fixture
def pair(tiny_model):
    """pair(arch, dtype) -> (our target, stock module with the same weights)."""

    def make(arch, dtype=torch.float64, **settings):
        model = tiny_model(arch, dtype)
        return TorchTarget(copy.deepcopy(model), **({"num_pages": 60, "page_size": 4} | settings)), model

    return make


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_prefill(arch, dtype, pair, tape, stock, close):
    target, model = pair(arch, dtype)
    text = tokens(41)
    got = tape(target).feed(text)
    assert got.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    close(got, stock(model, text), arch)


def test_chunks_with_rejected_rows_in_between(arch, pair, tape, stock, close):
    target, model = pair(arch)
    text, rng, run = tokens(45), np.random.default_rng(1), tape(target)
    truth, start = stock(model, text), 0
    while start < len(text):
        size, wrong = int(rng.integers(1, 7)), tokens(int(rng.integers(0, 6)), start + 50)
        part = text[start : start + size]
        got = run.run(run.rows(0, part + wrong))[0][: len(part)]
        close(got, truth[start : start + len(part)], arch)
        run.kept[0] += len(part)
        start += len(part)


def test_ragged_batch(arch, pair, tape, stock, close):
    target, model = pair(arch, num_pages=100)
    run = tape(target, 5)
    pasts, widths = [3, 0, 17, 9, 0], [1, 5, 4, 20, 33]
    texts = [tokens(past + width, seed) for seed, (past, width) in enumerate(zip(pasts, widths, strict=True))]
    for seq, past in enumerate(pasts):
        if past:
            run.feed(texts[seq][:past], seq)
    got = run.run(*(run.rows(seq, text[past:]) for seq, (text, past) in enumerate(zip(texts, pasts, strict=True))))
    for seq, past in enumerate(pasts):
        close(got[seq], stock(model, texts[seq])[past:], arch)


def lines(parents):
    """For each node the nodes from the root down to it."""
    found = [[0]]
    for node, parent in enumerate(parents[1:], 1):
        found.append([*found[parent], node])
    return found


@pytest.mark.parametrize(("past", "parents"), [(3, BUSHY), (9, DEEP)])
def test_tree(arch, past, parents, pair, tape, stock, close):
    target, model = pair(arch)
    run, prefix, nodes = tape(target, 2), tokens(past), tokens(len(parents), 9)
    run.feed(prefix)
    other = run.rows(1, tokens(3, 5))  # a batch mate without a tree
    got = run.run(other, run.rows(0, nodes, parents[1:]))[1]
    for node, line in enumerate(lines(parents)):
        close(got[node], stock(model, prefix + [nodes[i] for i in line])[-1], arch)


def test_a_kept_branch_goes_on_after_its_move(arch, pair, tape, stock, close):
    target, model = pair(arch)
    run, prefix, nodes = tape(target), tokens(6), tokens(len(BUSHY), 9)
    run.feed(prefix)
    run.run(run.rows(0, nodes, BUSHY[1:]))
    kept = [0, 2, 4]
    places = [(run.tables[0][(6 + i) // 4], (6 + i) % 4) for i in range(len(nodes))]
    target.move(Moves(np.array([places[i] for i in kept], np.int32), np.array(places[: len(kept)], np.int32)))
    run.kept[0] += len(kept)
    after = tokens(5, 11)
    truth = stock(model, prefix + [nodes[i] for i in kept] + after)[-5:]
    close(run.feed(after), truth, arch)


def test_contiguous_store_gives_the_same(arch, pair, tape):
    (paged, _), (slots, _) = pair(arch), pair(arch, num_pages=1, page_size=64)
    text, one, other = tokens(41), tape(paged), tape(slots)
    for start, end in ((0, 19), (19, 20), (20, 41)):
        a, b = one.feed(text[start:end]), other.feed(text[start:end])
        assert np.abs(a - b).max() <= 1e-12 * max(1.0, np.abs(b).max())
    for layer in range(2):
        for side, twin in ((paged.store.keys, slots.store.keys), (paged.store.values, slots.store.values)):
            rows = side[layer][torch.from_numpy(one.tables[0][:11].astype(np.int64))].transpose(1, 2).flatten(0, 1)
            gap = (rows[:41] - twin[layer][0].transpose(0, 1)[:41]).abs().max()
            assert gap <= 1e-12 * max(1.0, rows.abs().max())


def test_greedy_text_is_that_of_generate(arch, pair, tape, stock):
    target, model = pair(arch)
    prompt = tokens(7, 3)
    run, text, pending = tape(target), list(prompt), list(prompt)
    for _ in range(40):
        row = run.feed(pending)[-1]
        pending = [int(row.argmax())]
        text += pending
    stock(model, prompt)  # sets its attention
    ids = torch.tensor([prompt])
    options = {"max_new_tokens": 40, "min_new_tokens": 40, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    theirs = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    assert text == theirs
    assert len(set(text)) > 5  # not a text on which any model would agree

"""`numerics="invariant"`: a row's logits are the same bits at any draft length, batch and chunking."""

import numpy as np
import pytest
import torch

from draftproof.models.hf import TorchTarget

MODELS = ("llama", "gemma2", "mistral_window", "gpt2")


def tokens(count, seed=0):
    return np.random.default_rng(seed).integers(3, 97, count).tolist()


@pytest.fixture(params=MODELS)
def target(request, tiny_model):
    return TorchTarget(tiny_model(request.param, torch.float32), num_pages=120, page_size=4, numerics="invariant")


def test_widths_batches_and_chunks(target, tape):
    text, run = tokens(24), tape(target, 4)
    base = np.concatenate([run.feed([token]) for token in text])
    run.kept = [0, 0, 0, 0]
    run.feed(tokens(9, 5), 3)
    whole, chunk, mate = run.run(run.rows(1, text), run.rows(2, text[:7]), run.rows(3, tokens(5, 6)))
    run.kept[2] = 7
    rest = run.run(run.rows(2, text[7:]))[0]
    assert np.array_equal(whole, base)
    assert np.array_equal(np.concatenate([chunk, rest]), base)
    assert not np.array_equal(mate, base[:5])


def test_tree_nodes_are_their_chains(target, tape):
    run, prefix, nodes, parents = tape(target, 2), tokens(10), tokens(6, 1), [0, 0, 1, 2, 2]
    run.feed(prefix, 0)
    tree = run.run(run.rows(0, nodes, parents))[0]
    run.feed(prefix, 1)
    chain = run.run(run.rows(1, [nodes[i] for i in (0, 2, 5)]))[0]
    assert np.array_equal(tree[[0, 2, 5]], chain)


def test_fast_is_close_to_it(target, tape, tiny_model, close):
    fast = TorchTarget(target._model, num_pages=120, page_size=4)
    close(tape(fast).feed(tokens(30)), tape(target).feed(tokens(30)))

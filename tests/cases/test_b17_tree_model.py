"""B17: rotary positions and the mask of a tree come from depth and ancestors, never from the index in the flat tree."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof.models.batch import Rows, flat_batch
from draftproof.models.hf import TorchTarget
from draftproof.types import Slots

PREFIX = np.arange(3, 12, dtype=np.int32)  # positions 0..8 are cached; the root is position 9
NODES = np.array([20, 21, 22, 23, 24], np.int32)  # root, A, B, C, D
PARENTS = np.array([0, 0, 1, 2], np.int32)  # A and B hang on the root, C on A, D on B
LINES = {0: [0], 1: [0, 1], 2: [0, 2], 3: [0, 1, 3], 4: [0, 2, 4]}


@pytest.fixture(scope="module", params=["fast", "invariant"])
def target(request):
    with torch.random.fork_rng():
        torch.manual_seed(17)
        size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64}
        config = LlamaConfig(vocab_size=31, num_attention_heads=4, num_key_value_heads=2, **size)
        config.initializer_range = 0.3
        return TorchTarget(LlamaForCausalLM(config).double(), num_pages=8, page_size=4, numerics=request.param)


def run(target, tokens, start, parents=None, change=lambda batch: batch):
    """Logits of the last feed row and every node."""
    nodes = 0 if parents is None else len(parents)
    slots = Slots(np.array([5, 1, 7, 0], np.int32), start, len(tokens))
    rows = Rows(np.asarray(tokens, np.int32), len(tokens) - nodes, slots, parents)
    logits = target.verify(change(flat_batch([rows], target.min_rows))).logits
    return np.array([logits.row(i) for i in range(nodes + 1)])


def tree(target, change=lambda batch: batch):
    run(target, PREFIX, 0)
    return run(target, NODES, len(PREFIX), PARENTS, change)


def plain(target, line):
    return run(target, [*PREFIX, *NODES[line]], 0)[-1]


def test_positions_are_depths():
    slots = Slots(np.arange(4, dtype=np.int32), 9, 5)
    batch = flat_batch([Rows(NODES, 1, slots, PARENTS)], 1)
    assert batch.positions.tolist() == [9, 10, 10, 11, 11]
    assert np.flatnonzero(batch.ancestors[0][4]).tolist() == [0, 2, 4]


def test_every_node_equals_a_plain_forward_over_its_line(target):
    rows = tree(target)
    for node, line in LINES.items():
        assert np.abs(rows[node] - plain(target, line)).max() < 1e-10


def test_flat_positions_or_a_causal_mask_would_be_seen(target):
    truth = plain(target, LINES[4])
    flat = tree(target, lambda batch: replace(batch, positions=np.arange(9, 14)))
    causal = tree(target, lambda batch: replace(batch, ancestors=(None,)))
    assert np.abs(flat[4] - truth).max() > 1e-3
    assert np.abs(causal[4] - truth).max() > 1e-3

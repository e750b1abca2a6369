"""Hidden states of tree rows: under invariant numerics the very bits that plain decoding has after the same tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch

from draftproof.kv.ledger import PageLedger
from draftproof.models import convert, forks
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.openvino import OpenVINOTarget

pytestmark = pytest.mark.filterwarnings("ignore")
PARENTS, NODES, LAYERS = (0, 0, 1, 1, 2), (50, 51, 52, 53, 54), (1, 2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any) -> Path:
    """A tiny Llama whose graph gives the states after each of its two layers."""
    model = tiny_model("llama", torch.float32)
    made, layers = convert.build_graph(model, LAYERS)
    folder = tmp_path_factory.mktemp("states")
    ov.save_model(made, folder / "graph.xml", compress_to_fp16=False)
    meta = {"layers": layers, "vocab_size": model.config.vocab_size, "max_len": 256, "features": 64}
    (folder / "attention.json").write_text(json.dumps(meta))
    return folder


class Line:
    """One sequence on a target of its own."""

    def __init__(self, folder: Path, numerics: str, scratch_pages: int) -> None:
        self.target = OpenVINOTarget(
            folder, kv_bytes=1 << 22, numerics=numerics, scratch_pages=scratch_pages, threads=1
        )
        self.ledger = PageLedger(self.target.num_pages, self.target.page_size)

    def step(self, tokens: list[int], parents: tuple[int, ...] = (), kept: Any = None) -> tuple[Any, Any]:
        """(states, logits) of the rows; the last len(parents) tokens are draft nodes."""
        slots = self.ledger.reserve(0, len(tokens) + 1)
        nodes = np.array(parents, np.int32) if parents else None
        rows = Rows(np.array(tokens, np.int32), len(tokens) - len(parents), slots, nodes, wide=slots.start < 20)
        output = self.target.verify(flat_batch([rows], self.target.packed_rows))
        count = int(output.offsets[-1])
        self.target.move(self.ledger.commit(0, range(len(tokens)) if kept is None else kept))
        return output.features.copy(), [output.logits.row(row).copy() for row in range(count)]


def paths() -> list[list[int]]:
    """For each node, the root first, the tokens from the root's child down to it."""
    found: list[list[int]] = [[]]
    for parent, token in zip(PARENTS, NODES, strict=True):
        found.append([*found[parent], token])
    return found


def plain_states(folder: Path, numerics: str, prompt: list[int], path: list[int]) -> Any:
    """The state after the last token, every token after the prompt fed alone."""
    line = Line(folder, numerics, 0)
    line.step(prompt)
    for token in [9, *path]:
        states, _ = line.step([token])
    return states[0]


@pytest.mark.parametrize("scratch_pages", [2, 3, 8])
@pytest.mark.parametrize("past", [20, 31, 63])
def test_states_of_tree_rows_are_plain_decodings_bit_for_bit(past: int, scratch_pages: int, graph: Path) -> None:
    prompt = np.random.default_rng(past).integers(1, 97, past).tolist()
    line = Line(graph, "invariant", scratch_pages)
    line.step(prompt)
    states, _ = line.step([9, *NODES], PARENTS, kept=(0, 2, 5))
    assert states.shape == (6, 64)
    for row, path in enumerate(paths()):
        assert np.array_equal(states[row], plain_states(graph, "invariant", prompt, path))
    after, _ = line.step([60])  # and what follows a kept branch
    assert np.array_equal(after[0], plain_states(graph, "invariant", prompt, [51, 54, 60]))


def test_states_of_a_masked_tree_are_close(graph: Path) -> None:
    prompt = list(range(1, 38))
    line = Line(graph, "fast", 0)
    line.step(prompt)
    states, _ = line.step([9, *NODES], PARENTS)
    for row, path in enumerate(paths()):
        np.testing.assert_allclose(states[row], plain_states(graph, "fast", prompt, path), atol=1e-4)


def test_states_of_rows_in_another_order_are_noticed(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison with states put to their rows in the order of the forward."""
    run = forks.Forks._run

    def mixed(self: Any, batch: Any, group: Any) -> Any:
        logits, rows, states = run(self, batch, group)
        return logits, rows, states[::-1]

    monkeypatch.setattr(forks.Forks, "_run", mixed)
    line = Line(graph, "invariant", 8)
    line.step(list(range(1, 38)))
    states, _ = line.step([9, *NODES], PARENTS)
    truth = [plain_states(graph, "invariant", list(range(1, 38)), path) for path in paths()]
    assert not all(np.array_equal(one, other) for one, other in zip(states, truth, strict=True))

"""The CPU backend: converted graphs against stock transformers, trees both ways, and bits that do not move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch

from draftproof.errors import InputError, NumericsError, UnsupportedModel
from draftproof.models import convert, proof, selfcheck, support
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.openvino import OpenVINOTarget
from draftproof.types import Slots

PARENTS = (0, 0, 1, 1, 2)  # two branches under the root, two under the first

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("_one_thread")]


@pytest.fixture
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any) -> Any:
    """graph_folder(arch) -> folder with the converted tiny model; converted once a session."""
    done: dict[str, Path] = {}

    def make(arch: str) -> Path:
        if arch not in done:
            model = tiny_model(arch, torch.float32)
            support.check_supported(model.config, backend="openvino")
            stock = proof.stock_logits(model)
            graph, layers = convert.build_graph(model)
            meta = {"layers": layers, "vocab_size": model.config.vocab_size, "max_len": 256}
            proof.prove(model, graph, meta, stock)
            folder = tmp_path_factory.mktemp(arch)
            ov.save_model(graph, folder / "graph.xml", compress_to_fp16=False)
            (folder / "attention.json").write_text(json.dumps(meta))
            done[arch] = folder
        return done[arch]

    return make


def _target(folder: Path, numerics: str = "invariant", scratch_pages: int = 8) -> OpenVINOTarget:
    return OpenVINOTarget(folder, kv_bytes=1 << 22, numerics=numerics, scratch_pages=scratch_pages, threads=1)


@pytest.fixture
def refused() -> frozenset[str]:
    return frozenset({"gemma2", "mixtral"})


def test_logits_equal_stock_transformers(
    arch: str, graph_folder: Any, tiny_model: Any, tape: Any, stock: Any, close: Any, refused: frozenset[str]
) -> None:
    if arch in refused:
        with pytest.raises(UnsupportedModel, match=arch):
            graph_folder(arch)
        return
    ids = np.random.default_rng(3).integers(1, 97, 64).tolist()
    want = stock(tiny_model(arch, torch.float32), ids)
    run = tape(_target(graph_folder(arch)), 2)
    close(run.feed(ids[:40]), want[:40])
    run.run(run.rows(0, [5, 6, 7, 8]))  # rows that are not kept
    close(run.feed(ids[40:47]), want[40:47])
    rest, other = run.run(run.rows(0, ids[47:]), run.rows(1, ids[:9]))
    close(rest, want[47:])
    close(other, want[:9])


@pytest.mark.parametrize("numerics", ["invariant", "fast"])
@pytest.mark.parametrize("past", [5, 31, 32, 63])
def test_tree_nodes_equal_plain_forwards(
    numerics: str, past: int, graph_folder: Any, tiny_model: Any, tape: Any, stock: Any, close: Any
) -> None:
    model = tiny_model("llama", torch.float32)
    rng = np.random.default_rng(past)
    prefix, root, nodes = rng.integers(1, 97, past).tolist(), 11, rng.integers(1, 97, len(PARENTS)).tolist()
    run = tape(_target(graph_folder("llama"), numerics))
    run.feed(prefix)
    rows = run.run(run.rows(0, [root, *nodes], PARENTS))[0]
    for node in range(len(PARENTS) + 1):
        path, at = [], node
        while at:
            path.append(nodes[at - 1])
            at = PARENTS[at - 1]
        close(rows[node], stock(model, [*prefix, root, *path[::-1]])[-1])


def test_tree_branches_are_bit_equal_to_chains_under_invariant(graph_folder: Any, tape: Any) -> None:
    folder = graph_folder("llama")
    prefix, nodes = list(range(1, 38)), [50, 51, 52, 53, 54]
    tree = tape(_target(folder))
    tree.feed(prefix)
    rows = tree.run(tree.rows(0, [9, *nodes], PARENTS))[0]
    plain = tape(_target(folder))
    plain.feed(prefix)
    chain = plain.run(plain.rows(0, [9, 50, 53]))[0]
    assert (rows[0] == chain[0]).all()
    assert (rows[1] == chain[1]).all()
    assert (rows[4] == chain[2]).all()


@pytest.mark.parametrize("scratch_pages", [2, 3, 8])
def test_kept_branch_goes_on_as_if_fed_plainly(scratch_pages: int, graph_folder: Any, tape: Any) -> None:
    """Keys and values of a branch reach their slots, also when scratch holds one branch at a time."""
    from draftproof.kv.ledger import PageLedger
    from draftproof.models.batch import Rows, flat_batch

    folder = graph_folder("llama")
    target = _target(folder, scratch_pages=scratch_pages)
    ledger = PageLedger(target.num_pages, target.page_size)
    prefix, nodes = np.arange(1, 32, dtype=np.int32), np.array([50, 51, 52, 53, 54], np.int32)
    slots = ledger.reserve(0, 31)
    target.verify(flat_batch([Rows(prefix, 31, slots)], 2))
    ledger.commit(0, range(31))
    slots = ledger.reserve(0, 6)
    tokens = np.concatenate([[9], nodes]).astype(np.int32)
    target.verify(flat_batch([Rows(tokens, 1, slots, np.array(PARENTS, np.int32))], 2))
    target.move(ledger.commit(0, (0, 2, 5)))  # root, node 2, node 5 below it
    slots = ledger.reserve(0, 2)
    output = target.verify(flat_batch([Rows(np.array([60, 61], np.int32), 2, slots)], 2))
    plain = tape(_target(folder))
    plain.feed([*prefix.tolist(), 9, 51, 54])
    assert (output.logits.row(0) == plain.feed([60, 61])[-1]).all()


def test_prompt_rows_and_later_rows_have_the_same_bits_in_any_pieces(graph_folder: Any) -> None:
    """A prompt of 33 tokens in any chunks, and what follows it fed again in any pieces."""
    from draftproof.models.batch import Rows, flat_batch
    from draftproof.types import Slots

    text, table = np.arange(3, 60, dtype=np.int32), np.arange(4, dtype=np.int32)

    def last(*cuts: int) -> np.ndarray:
        """Logits after the whole text, fed in these pieces."""
        target = _target(graph_folder("llama"))
        for begin, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
            part = text[begin:end]
            slots = Slots(table, begin, max(2, len(part)))
            output = target.verify(flat_batch([Rows(part, len(part), slots, wide=begin < 33)], target.packed_rows))
        return output.logits.row(0).copy()

    whole = last(33, 40)
    for cuts in ((33,), (32, 33), (1, 32, 33, 34), (10, 33, 34, 56), (33, 56), (31, 33), tuple(range(1, 57))):
        assert (last(*cuts) == whole).all()


def test_invariance_holds_and_a_broken_claim_is_caught(graph_folder: Any) -> None:
    folder = graph_folder("llama")
    findings = selfcheck.quick(_target(folder))
    assert len(findings) > 8
    assert all(finding.equal for finding in findings)
    selfcheck.hold(_target(folder), findings)
    liar = _target(folder, "fast")
    found = selfcheck.quick(liar)
    assert any(not finding.equal for finding in found)  # one row alone takes another kernel
    liar.numerics = "invariant"
    with pytest.raises(NumericsError, match="differ"):
        selfcheck.hold(liar, found)


def test_a_budget_too_small_for_two_pages_is_refused(graph_folder: Any) -> None:
    with pytest.raises(InputError, match="--kv-memory"):
        OpenVINOTarget(graph_folder("llama"), kv_bytes=100)


def test_trees_without_scratch_are_refused_under_invariant(graph_folder: Any, tape: Any) -> None:
    run = tape(_target(graph_folder("llama"), scratch_pages=0))
    with pytest.raises(InputError, match="scratch"):
        run.run(run.rows(0, [9, 1, 2], (0, 0)))


@pytest.mark.parametrize("numerics", ["invariant", "fast"])
def test_lanes_and_padding_change_no_bit(numerics: str, graph_folder: Any, tape: Any) -> None:
    """Steps of every width, in turn, on one lane and on three: under invariant numerics the very same rows."""
    ids = np.random.default_rng(5).integers(1, 100, 120).astype(np.int32)
    widths = [1, 4, 1, 9, 2, 7, 1, 16, 3, 1, 12]
    found = []
    for lanes in (1, 4):
        target = OpenVINOTarget(graph_folder("llama"), kv_bytes=1 << 22, numerics=numerics, lanes=lanes, threads=1)
        table, at, rows = np.arange(8, dtype=np.int32), 20, []
        target.verify(flat_batch([Rows(ids[:20], 1, Slots(table, 0, 20), wide=True)], 1))
        for width in widths:
            batch = flat_batch([Rows(ids[at : at + width], 1, Slots(table, at, width))], 1)
            output = target.verify(batch)
            rows += [output.logits.row(row).copy() for row in range(width)]
            at += 1  # the other rows are drafts that were refused: written over by the next step
        found.append(np.stack(rows))
    if numerics == "invariant":
        assert np.array_equal(found[0], found[1])
    else:
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-3)


@pytest.mark.parametrize("numerics", ["invariant", "fast"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_warm_up_changes_nothing(numerics: str, lanes: int, graph_folder: Any) -> None:
    """Neither what steps say afterwards, nor what was written before it, nor what lanes count on."""
    ids = np.random.default_rng(5).integers(1, 100, 40).astype(np.int32)
    table, found = np.arange(4, dtype=np.int32), []
    for warm in (False, True):
        target = OpenVINOTarget(graph_folder("llama"), kv_bytes=1 << 22, numerics=numerics, lanes=lanes, threads=1)
        target.verify(flat_batch([Rows(ids[:20], 1, Slots(table, 0, 20), wide=True)], 1))
        target.verify(flat_batch([Rows(ids[20:24], 1, Slots(table, 20, 4))], 1))
        if warm:
            assert target.rows_like(4) == 4.0
            target.warm_up()
            assert target.rows_like(4) > 4.0  # it is to be prepared again
        output = target.verify(flat_batch([Rows(ids[24:27], 1, Slots(table, 24, 3))], 1))
        found.append(np.stack([output.logits.row(row).copy() for row in range(3)]))
    assert np.array_equal(*found)

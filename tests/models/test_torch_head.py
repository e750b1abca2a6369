"""Draft heads on the torch backend against the training modules run over whole texts, and against OpenVINO's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof.drafters.tree_pages import Branches, rows_ahead
from draftproof.errors import EngineError, InputError
from draftproof.models.batch import Rows, flat_batch
from draftproof.models.eagle import EagleHead
from draftproof.models.eagle_config import EagleConfig, RopeScaling
from draftproof.models.medusa import MedusaHeads
from draftproof.models.medusa_config import MedusaConfig
from draftproof.models.torch_head import TorchHead
from draftproof.models.torch_medusa import TorchMedusa
from draftproof.types import Moves, Slots

SIZE = {"vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG = LlamaConfig(**SIZE, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3)
IDS = torch.arange(1, 61, 3)
CHANGES = {
    "shared rows": {},
    "own rows": {"own_output": True, "own_embedding": True, "norm_before_residual": True},
    "stretched angles": {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 16)},
}


def made(change, dtype=torch.float64):
    """(head in float32, target's module) with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32).eval().to(dtype)
        config = EagleConfig.of_target(CONFIG, draft_vocab_size=len(IDS))
        head = EagleHead(replace(config, **CHANGES[change])).eval()
    head.set_draft_ids(IDS)
    return head, model


@pytest.fixture(scope="module", params=CHANGES)
def parts(request):
    return made(request.param)


def paged(parts, **options):
    return TorchHead(*parts, **{"kv_bytes": 1 << 19, "page_size": 4} | options)


@torch.no_grad()
def whole(parts, text, states, num_own):
    """(logits [T, Vd], outputs [T, H]): the training module over all rows at once, with a causal mask and no cache.

    The last num_own rows take the head's own output of the row before, so they are found one by one.
    """
    head, model = parts
    head = EagleHead(head.config).to(model.dtype)
    head.load_state_dict(parts[0].state_dict())
    table = head.embed_tokens if head.config.own_embedding else model.get_input_embeddings()
    output = head.lm_head.weight if head.config.own_output else model.get_output_embeddings().weight[IDS]

    def attend(query, key, value):
        scores = torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(2, 1)) * query.shape[-1] ** -0.5
        mask = torch.ones(len(query), len(query), dtype=torch.bool).tril()
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
        return torch.einsum("hqk,khd->qhd", weights, value.repeat_interleave(2, 1))

    given = len(text) - num_own
    fused = head.fc(torch.from_numpy(states[:given]).to(model.dtype))
    while True:
        ids, places = torch.from_numpy(text[: len(fused)].astype(np.int64)), torch.arange(len(fused))
        hidden = head(table(ids), fused, places, attend)
        if len(fused) == len(text):
            return functional.linear(head.norm(hidden), output).numpy(), hidden.numpy()
        fused = torch.cat([fused, hidden[-1:]])


def near(found, wanted, limit=1e-6):
    """7e-16 was seen in float64; a norm, which is taken in float32, may round the other way: 6e-8."""
    assert np.abs(found - wanted).max() <= limit * np.abs(wanted).max()


def inputs(size, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 61, size).astype(np.int32), rng.standard_normal((size, 192)).astype(np.float32)


def part(text, table, first, size, **more):
    return Rows(text[first : first + size], size, Slots(table, first, size), **more)


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
@pytest.mark.parametrize("pieces", [(14,), (9, 5), (1, 1, 12)])
def test_it_says_what_the_training_module_says_over_the_whole_text(parts, pieces, numerics):
    head = paged(parts, numerics=numerics)
    text, states = inputs(17, len(pieces))
    truth, outputs = whole(parts, text, states, 3)
    table, place, own = np.array([7, 2, 5, 1, 3], np.int32), 0, None
    for size in pieces:
        piece = flat_batch([part(text, table, place, size)], 1)
        logits, own = head.draft(piece, states[place : place + size], None)
        place += size
        near(logits.row(0), truth[place - 1])
        near(own[0], outputs[place - 1])
    while place < 17:
        logits, own = head.draft(flat_batch([part(text, table, place, 1)], 1), None, own)
        near(logits.row(0), truth[place])
        place += 1
    assert head.draft_ids.tolist() == IDS.tolist()
    assert own.shape == (1, 64)


def test_sequences_of_one_forward_keep_to_themselves(parts):
    """Of different lengths, one of them without wanted rows; under invariant numerics with the bits of being alone."""
    texts = [inputs(size, size) for size in (6, 1, 19, 3)]
    tables = np.arange(40, dtype=np.int32)[::-1].reshape(4, 10)
    rows = [
        part(text, table, 0, len(text), wants_logits=len(text) != 3)
        for (text, _), table in zip(texts, tables, strict=True)
    ]
    together = np.concatenate([states for _, states in texts])
    for numerics in ("fast", "invariant"):
        logits, own = paged(parts, numerics=numerics).draft(flat_batch(rows, 1), together, None)
        assert len(own) == 3
        for index, (text, states) in enumerate(texts[:3]):
            near(logits.row(index), whole(parts, text, states, 0)[0][-1])
            if numerics == "invariant":
                alone, _ = paged(parts, numerics=numerics).draft(flat_batch(rows[index : index + 1], 1), states, None)
                assert np.array_equal(logits.row(index), alone.row(0))


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_branches_on_pages_of_their_own(parts, numerics):
    """A tree of 1, 2, 4 rows behind a text: each leaf's row is that of its line as a text."""
    head, length, lines = paged(parts, numerics=numerics), 10, {0: ()}
    text, states = inputs(length, 3)
    table = (
        np.random.default_rng(1).permutation(head.num_pages)[: rows_ahead(length, 3, 4, 4) + length].astype(np.int32)
    )
    branches = Branches(table, length, 3, 4, 4)
    _, own = head.draft(flat_batch([part(text, table, 0, length)], 1), states, None)
    level, held, tokens = [0], {0: own[0]}, np.random.default_rng(5).integers(0, 61, 32).astype(np.int32)
    for depth in (1, 2, 3):
        ends = [2 * node + 1 + child for node in level for child in range(1 if depth == 1 else 2)]
        parents = [node for node in level for _ in range(1 if depth == 1 else 2)]
        slots, copies = branches.go_on(ends, parents, depth)
        head.copy_pages(copies)
        rows = [Rows(tokens[end : end + 1], 1, slot) for end, slot in zip(ends, slots, strict=True)]
        logits, own = head.draft(flat_batch(rows, 1), None, np.array([held[parent] for parent in parents]))
        for index, (end, parent) in enumerate(zip(ends, parents, strict=True)):
            lines[end], held[end] = (*lines[parent], tokens[end]), own[index]
            line = np.concatenate([text, lines[end]]).astype(np.int32)
            near(logits.row(index), whole(parts, line, states, depth)[0][-1])
        level = ends
    assert len(level) == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", ["shared rows", "stretched angles"])
def test_both_backends_say_the_same_in_float32(change, tmp_path, converted_head):
    """7e-7 of the largest logit was seen."""
    head, model = made(change, torch.float32)
    ours, theirs = paged((head, model)), converted_head(*made(change, torch.float32), tmp_path)
    text, states = inputs(40, 8)
    place, own = 0, (None, None)
    for size in (30, 1, 4):
        given = states[place : place + size]
        found = [
            each.draft(flat_batch([part(text, np.arange(12, dtype=np.int32), place, size)], 1), given, None)
            for each in (ours, theirs)
        ]
        place += size
        near(found[0][0].row(0), found[1][0].row(0), 1e-5)
        own = [output for _, output in found]
    while place < 40:
        batch = flat_batch([part(text, np.arange(12, dtype=np.int32), place, 1)], 1)
        found = [each.draft(batch, None, before) for each, before in zip((ours, theirs), own, strict=True)]
        near(found[0][0].row(0), found[1][0].row(0), 1e-5)
        own, place = [output for _, output in found], place + 1


def test_it_takes_one_line_of_states_a_row_and_nothing_else(parts):
    head = paged(parts)
    text, states = inputs(3, 0)
    batch = flat_batch([part(text, np.arange(2, dtype=np.int32), 0, 3)], 1)
    for given in ((None, None), (states, states), (states[:2], None)):
        with pytest.raises(EngineError, match="one line of states for each row"):
            head.draft(batch, *given)
    with pytest.raises(EngineError, match="needs the target's states"):
        head.verify(batch)


def test_its_pages_are_what_the_budget_holds_and_of_use(parts):
    page = 4 * 2 * 2 * 16 * 8  # rows, sides, heads, numbers, bytes
    assert paged(parts, kv_bytes=10 * page).num_pages == 9  # and the zero page
    assert paged(parts, kv_bytes=1 << 40).num_pages == 64 * 32
    with pytest.raises(InputError, match="holds no two pages of the draft head"):
        paged(parts, kv_bytes=2 * page)


def test_rows_are_moved(parts):
    head = paged(parts)
    text, states = inputs(6, 4)
    table = np.array([3, 4], np.int32)
    head.draft(flat_batch([part(text, table, 0, 6)], 1), states, None)
    head.move(Moves(np.array([[3, 0], [3, 1]], np.int32), np.array([[8, 2], [8, 3]], np.int32)))
    keys = head._store.keys[0]
    assert torch.equal(keys[3, :, :2], keys[8, :, 2:])
    assert keys[3].abs().sum() > 0


@pytest.mark.parametrize("own_output", [False, True])
def test_medusa_heads_say_what_the_training_module_says(own_output):
    _, model = made("shared rows")
    with torch.random.fork_rng():
        torch.manual_seed(4)
        heads = MedusaHeads(MedusaConfig(64, 3, 2, 61, len(IDS), 4, 128, own_output=own_output)).eval()
        for parameter in heads.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    heads.set_draft_ids(IDS)
    states = np.random.default_rng(0).standard_normal((9, 64))
    with torch.no_grad():
        wide = MedusaHeads(heads.config).double()
        wide.load_state_dict(heads.state_dict())
        truth = wide(torch.from_numpy(states), model.get_output_embeddings().weight[IDS]).numpy()
    for numerics in ("fast", "invariant"):
        ours = TorchMedusa(heads, model, numerics=numerics)
        near(ours.guess(states), truth, 1e-12)
        assert ours.draft_ids.tolist() == IDS.tolist()
    narrow = TorchMedusa(heads, made("shared rows", torch.float32)[1], numerics="invariant")
    alone = np.concatenate([narrow.guess(states[i : i + 1].astype(np.float32)) for i in range(9)])
    assert alone.dtype == np.float32
    assert np.array_equal(narrow.guess(states.astype(np.float32)), alone)

"""Hidden states of the torch target: those of transformers, at their rows, in any step; invariant where promised."""

import copy

import numpy as np
import pytest
import torch

from draftproof.errors import InvalidParams, UnsupportedModel
from draftproof.models.batch import flat_batch
from draftproof.models.hf import TorchTarget

LAYERS = (2, 0, 1)  # behind the last norm, the embedding, a depth between
PARENTS = [0, 0, 1, 2, 2]  # of draft nodes 1.. of a tree


def tokens(count, seed=0):
    return np.random.default_rng(seed).integers(3, 97, count).tolist()


@torch.inference_mode()
def stock_states(model, ids):
    """float[T, F] of one forward."""
    model.set_attn_implementation("eager" if getattr(model.config, "attn_logit_softcapping", None) else "sdpa")
    found = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    return torch.cat([found[layer][0] for layer in LAYERS], -1).numpy()


def step(target, *rows):
    """float[R, F] of one step, all rows of the batch."""
    return target.verify(flat_batch(rows, target.min_rows)).features


class Shifted(TorchTarget):
    """A mutant: each row is given the states of the row before."""

    def verify(self, batch):
        output = super().verify(batch)
        return type(output)(output.logits, output.offsets, np.roll(output.features, 1, 0))


def states_at_their_rows(make, tape, tiny_model, close, arch):
    """Chunks with refused rows behind them, a batch of three, a tree: each row's states are those of its own text."""
    model = tiny_model(arch)
    target = make(copy.deepcopy(model), num_pages=90, page_size=4, features=LAYERS)
    run, text, prefix = tape(target, 3), tokens(30), tokens(9, 4)
    truth, start = stock_states(model, text), 0

    def same(found, wanted):
        for mine, theirs in zip(np.split(found, 3, -1), np.split(wanted, 3, -1), strict=True):
            close(mine, theirs, arch)

    for size in (9, 1, 4, 7):
        found = step(target, run.rows(0, text[start : start + size] + tokens(3, start)))
        same(found[:size], truth[start : start + size])
        start += size
        run.kept[0] = start
    run.run(run.rows(1, prefix))
    run.kept[1] = len(prefix)
    nodes, mate = tokens(6, 8), tokens(5, 9)
    found = step(target, run.rows(0, text[start:]), run.rows(1, nodes, PARENTS), run.rows(2, mate))
    same(found[: 30 - start], truth[start:])
    same(found[36 - start :], stock_states(model, mate))
    lines = [[0]]
    for node, parent in enumerate(PARENTS, 1):
        lines.append([*lines[parent], node])
    for node, line in enumerate(lines):
        same(found[30 - start + node], stock_states(model, prefix + [nodes[i] for i in line])[-1])


def test_they_are_those_of_transformers(arch, tape, tiny_model, close):
    states_at_their_rows(TorchTarget, tape, tiny_model, close, arch)


def test_states_one_row_off_are_found_out(tape, tiny_model, close):
    with pytest.raises(AssertionError):
        states_at_their_rows(Shifted, tape, tiny_model, close, "llama")


@pytest.mark.parametrize("name", ["llama", "gemma2", "mistral_window", "gpt2"])
def test_invariant_states_are_the_same_bits_in_any_step(name, tape, tiny_model):
    target = TorchTarget(
        tiny_model(name, torch.float32), num_pages=120, page_size=4, numerics="invariant", features=LAYERS
    )
    text, run = tokens(20), tape(target, 4)
    base = []
    for token in text:
        base.append(step(target, run.rows(0, [token])))
        run.kept[0] += 1
    base = np.concatenate(base)
    assert base.dtype == np.float32
    mate = run.rows(3, tokens(5, 6))
    whole = step(target, run.rows(1, text), mate)
    assert np.array_equal(whole[:20], base)
    assert not np.array_equal(whole[20:], base[:5])
    chunk = step(target, mate, run.rows(2, text[:7]))[5:]
    run.kept[2] = 7
    assert np.array_equal(np.concatenate([chunk, step(target, run.rows(2, text[7:]))]), base)
    run.kept[1] = 14  # the rest is drafted again, with branches beside it
    tree = step(target, run.rows(1, [text[14], 3, *text[15:20]], [0, 0, 2, 3, 4, 5]))
    assert np.array_equal(tree[[0, 2, 3, 4, 5, 6]], base[14:])


def test_logits_keep_their_bits_and_states_are_there_only_where_asked_for(tape, tiny_model):
    text = tokens(12)
    plain, other = (TorchTarget(tiny_model("llama"), num_pages=20, features=each) for each in ((), (1,)))
    assert np.array_equal(tape(plain).feed(text), tape(other).feed(text))
    assert step(plain, tape(plain).rows(0, text)) is None
    assert step(other, tape(other).rows(0, text)).shape == (12, 32)


def test_layers_that_are_not_there_are_refused(tiny_model):
    for layer in (3, -1):
        with pytest.raises(InvalidParams, match="this model has 0 to 2"):
            TorchTarget(tiny_model("llama"), num_pages=20, features=(1, layer))


def test_a_module_whose_states_are_not_its_rows_is_refused_by_its_numbers(tiny_model):
    """Found at construction: one that gives a row the states of the forward's last one."""
    model = tiny_model("llama")
    forward = model.forward

    def wrong(*args, **options):
        output = forward(*args, **options)
        if output.hidden_states is not None:
            states = list(output.hidden_states)
            states[1] = states[1][:, -1:].expand_as(states[1])
            output.hidden_states = tuple(states)
        return output

    model.forward = wrong
    TorchTarget(model, num_pages=20, features=(2,))
    with pytest.raises(UnsupportedModel, match="hidden states after 1 layers differ"):
        TorchTarget(model, num_pages=20, features=(2, 1))

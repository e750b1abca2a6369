"""Drafters by name: nothing unknown is accepted, nothing accepted is ignored."""

from __future__ import annotations

import pytest

from draftproof.drafters import DRAFTERS, check_name, make
from draftproof.errors import PairingError, UnknownDrafter
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import CycleTarget
from draftproof.models.toy_head import HashHead
from draftproof.models.toy_medusa import HashHeads

NAMES = ["none", "ngram", "suffix", "model", "early_exit", "fixed_tree", "eagle", "medusa", "cascade", "scripted"]


def test_the_names_and_who_needs_a_model():
    assert list(DRAFTERS) == NAMES
    assert [name for name in NAMES if DRAFTERS[name].needs_model] == ["model", "early_exit", "fixed_tree"]
    assert [name for name in NAMES if DRAFTERS[name].needs_head] == ["eagle", "medusa", "cascade"]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_made_under_its_own_name(name):
    arguments = {"script": [[1]]} if name == "scripted" else {}
    if DRAFTERS[name].needs_model:
        arguments = {"target": CycleTarget(), "ledger": PageLedger(8, 4), "vocab_size": 8}
    if DRAFTERS[name].needs_head:
        arguments = {"target": HashHead(3), "ledger": PageLedger(8, 4), "vocab_size": 8, "mapping": [1, 4, 7]}
    if name == "medusa":
        arguments = {"target": HashHeads(3), "vocab_size": 8, "mapping": [1, 4, 7]}
    assert make(name, **arguments).name == name
    assert check_name(name).summary


def test_an_unknown_name_lists_the_known_ones():
    for call in (check_name, make):
        with pytest.raises(UnknownDrafter, match=r"'hydra'.*none, ngram, suffix, model"):
            call("hydra")


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(UnknownDrafter, match=r"no option 'n'.*max_ngram, min_ngram"):
        make("ngram", n=2)
    with pytest.raises(UnknownDrafter, match="no option 'mapping'"):
        make("suffix", mapping=[1])
    with pytest.raises(UnknownDrafter, match="options: none"):
        make("none", gamma=2)


def test_a_missing_argument_is_named():
    with pytest.raises(UnknownDrafter, match="'scripted' can't be made without 'script'"):
        make("scripted")
    with pytest.raises(UnknownDrafter, match="'model' can't be made without 'target'"):
        make("model")


def test_options_reach_the_drafter():
    supplied = {"target": CycleTarget(), "ledger": PageLedger(8, 4), "vocab_size": 8}
    with pytest.raises(UnknownDrafter, match="early_exit needs min_probability"):
        make("early_exit", **supplied, min_probability=1.5)
    with pytest.raises(UnknownDrafter, match="widths"):
        make("fixed_tree", **supplied, widths=(2, 0))
    with pytest.raises(PairingError, match="mapping"):
        make("model", **supplied, mapping=[0, 1])

"""Drafters as they are written on the command line."""

from __future__ import annotations

import pytest

from draftproof.errors import UnknownDrafter
from draftproof.measure.specs import DrafterSpec, parse_drafter, parse_drafters


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("ngram", DrafterSpec("ngram", "ngram")),
        ("suffix", DrafterSpec("suffix", "suffix")),
        ("early_exit", DrafterSpec("early_exit", "early_exit")),
        ("early_exit:10", DrafterSpec("early_exit:10", "early_exit", exit_layer=10)),
        ("model:./a/b", DrafterSpec("model:./a/b", "model", model="./a/b")),
        ("small=model:C:/x=y", DrafterSpec("small", "model", model="C:/x=y")),
        ("ee=early_exit:3", DrafterSpec("ee", "early_exit", exit_layer=3)),
        ("eagle", DrafterSpec("eagle", "eagle")),
        ("mine=eagle:./head", DrafterSpec("mine", "eagle", model="./head")),
        ("medusa:./heads", DrafterSpec("medusa:./heads", "medusa", model="./heads")),
        ("cascade", DrafterSpec("cascade", "cascade")),
    ],
)
def test_a_drafter_and_its_label(text: str, spec: DrafterSpec) -> None:
    assert parse_drafter(text) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no drafter is called ''"),
        ("oracle", "no drafter is called 'oracle'; there are: none, ngram"),
        ("none", "plain decoding has no drafts"),
        ("fixed_tree", "only chains have an acceptance by position"),
        ("scripted", "made in Python"),
        ("model", "write model:PATH"),
        ("model:", "write model:PATH"),
        ("suffix:3", "takes no argument, got '3'"),
        ("eagle:", "write eagle:PATH"),
        ("ngram:", "takes no argument"),
        ("early_exit:", "number of layers"),
        ("early_exit:ten", "number of layers"),
        ("early_exit:-1", "number of layers"),
        ("x=none", "plain decoding"),
    ],
)
def test_what_can_t_be_measured_says_why(text: str, message: str) -> None:
    with pytest.raises(UnknownDrafter) as error:
        parse_drafter(text)
    assert message in str(error.value)


def test_labels_are_unique() -> None:
    assert len(parse_drafters(["suffix", "early_exit", "early_exit:10"])) == 3
    with pytest.raises(UnknownDrafter, match="two drafters are called 'suffix'"):
        parse_drafters(["suffix", "suffix"])
    with pytest.raises(UnknownDrafter, match="two drafters are called 'a'"):
        parse_drafters(["a=suffix", "a=ngram"])
    with pytest.raises(UnknownDrafter, match="no drafter: give --drafter"):
        parse_drafters([])


def test_a_draft_model_is_that_of_the_one_drafter_that_takes_one() -> None:
    found = parse_drafters(["suffix", "eagle", "two=cascade:./b"], "./a")
    assert [spec.model for spec in found] == [None, "./a", "./b"]
    assert parse_drafters(["model"], "./a") == (DrafterSpec("model", "model", model="./a"),)
    with pytest.raises(UnknownDrafter, match="none here could take it"):
        parse_drafters(["suffix", "eagle:./b"], "./a")
    with pytest.raises(UnknownDrafter, match="2 here could take it"):
        parse_drafters(["eagle", "cascade"], "./a")

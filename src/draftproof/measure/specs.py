"""What a user calls a drafter on the command line -> what the engine is to build.

    ngram   suffix   early_exit   early_exit:10   model:PATH   eagle   eagle:HEAD   medusa:HEADS   cascade
    cascade:HEAD   LABEL=any of these

The label names the drafter in tables and files; without one it is the text itself. `--draft-model` names the model or
head of the one drafter that takes one and has none yet. Only drafters that propose chains can be measured: acceptance
by position, and a draft length, mean nothing for a tree.

Invariant: labels are unique; a name that can't be measured is refused with the reason.
Does not know: how drafters are built, whether a path is a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.drafters import check_name
from draftproof.engine.options import HEAD_DRAFTERS
from draftproof.errors import UnknownDrafter

_LABELLED = re.compile(r"([A-Za-z0-9_.+-]+)=(.+)", re.DOTALL)
_WITH_MODEL = ("model", *HEAD_DRAFTERS)
_REFUSED = {
    "none": "plain decoding has no drafts to accept; `draftproof cost` measures its price",
    "fixed_tree": "it proposes trees, and only chains have an acceptance by position; measure its model as model:PATH "
    "or early_exit:K",
}


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One drafter to measure.

    model: the second model of "model"; the folder of a head, where None is the one that ships. exit_layer: of
    "early_exit", None is the default.
    """

    label: str
    kind: str
    model: str | None = None
    exit_layer: int | None = None


def parse_drafters(texts: Sequence[str], draft_model: str | None = None) -> tuple[DrafterSpec, ...]:
    """All of them. draft_model: of the one drafter that takes one and names none.

    Raises UnknownDrafter for one that can't be measured, for a label that is used twice, and for a draft model that no
    drafter takes, or more than one.
    """
    if not texts:
        raise UnknownDrafter(
            "no drafter: give --drafter ngram, suffix, early_exit[:LAYERS], model:PATH, eagle, medusa or cascade"
        )
    if draft_model is not None and (takers := sum(map(_wants_model, texts))) != 1:
        raise UnknownDrafter(
            f"--draft-model names the model or head of one drafter, and {takers or 'none'} here could take it: write "
            "KIND:PATH, like --drafter eagle:PATH"
        )
    specs = tuple(parse_drafter(text, draft_model) for text in texts)
    labels = [spec.label for spec in specs]
    for label in labels:
        if labels.count(label) > 1:
            raise UnknownDrafter(f"two drafters are called {label!r}: name one of them, like --drafter other={label}")
    return specs


def parse_drafter(text: str, draft_model: str | None = None) -> DrafterSpec:
    """One drafter from "kind", "kind:argument" or "label=kind:argument". draft_model: in place of no argument."""
    label, kind, colon, argument = _parts(text)
    check_name(kind)
    if kind in _REFUSED:
        raise UnknownDrafter(f"drafter {kind!r} can't be measured: {_REFUSED[kind]}")
    if kind == "scripted":
        raise UnknownDrafter("drafter 'scripted' is made in Python, for tests")
    if colon and kind not in ("early_exit", *_WITH_MODEL):
        raise UnknownDrafter(f"drafter {kind!r} takes no argument, got {argument!r}")
    if kind not in _WITH_MODEL:
        return DrafterSpec(label, kind, exit_layer=_layer(argument) if colon else None)
    if (colon and not argument) or (kind == "model" and not (argument or draft_model)):
        what = "a draft model" if kind == "model" else "a head after the colon, or no colon"
        raise UnknownDrafter(f"drafter {kind!r} needs {what}: write {kind}:PATH")
    return DrafterSpec(label, kind, model=argument or draft_model)


def _parts(text: str) -> tuple[str, str, str, str]:
    """(label, kind, colon, argument)."""
    match = _LABELLED.fullmatch(text)
    label, given = (match[1], match[2]) if match else (text, text)
    return (label, *given.partition(":"))


def _wants_model(text: str) -> bool:
    _, kind, colon, _ = _parts(text)
    return kind in _WITH_MODEL and not colon


def _layer(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise UnknownDrafter(f"early_exit takes a number of layers, like early_exit:10, got {text!r}")
    return int(text)

"""What a user calls a drafter on the command line -> what the engine is to build.

    ngram   suffix   early_exit   early_exit:10   model:PATH   LABEL=any of these

The label names the drafter in tables and files; without one it is the text itself. Only drafters that propose chains
can be measured: acceptance by position, and a draft length, mean nothing for a tree.

Invariant: labels are unique; a name that can't be measured is refused with the reason.
Does not know: how drafters are built, whether a path is a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.drafters import check_name
from draftproof.errors import UnknownDrafter

_LABELLED = re.compile(r"([A-Za-z0-9_.+-]+)=(.+)", re.DOTALL)
_HEAD = "it reads hidden states of the target as it runs, which measuring does not hand it yet; compare it with plain "
_HEAD += "decoding by `draftproof generate --compare`"
_REFUSED = {
    "eagle": _HEAD,
    "medusa": _HEAD,
    "cascade": _HEAD,
    "none": "plain decoding has no drafts to accept; `draftproof cost` measures its price",
    "fixed_tree": "it proposes trees, and only chains have an acceptance by position; measure its model as model:PATH "
    "or early_exit:K",
}


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One drafter to measure. model: the second model of "model"; exit_layer: of "early_exit", None is the default."""

    label: str
    kind: str
    model: str | None = None
    exit_layer: int | None = None


def parse_drafters(texts: Sequence[str]) -> tuple[DrafterSpec, ...]:
    """All of them. Raises UnknownDrafter for one that can't be measured, and for a label that is used twice."""
    specs = tuple(parse_drafter(text) for text in texts)
    if not specs:
        raise UnknownDrafter("no drafter: give --drafter ngram, suffix, early_exit[:LAYERS] or model:PATH")
    labels = [spec.label for spec in specs]
    for label in labels:
        if labels.count(label) > 1:
            raise UnknownDrafter(f"two drafters are called {label!r}: name one of them, like --drafter other={label}")
    return specs


def parse_drafter(text: str) -> DrafterSpec:
    """One drafter from "kind", "kind:argument" or "label=kind:argument"."""
    match = _LABELLED.fullmatch(text)
    label, given = (match[1], match[2]) if match else (text, text)
    kind, colon, argument = given.partition(":")
    check_name(kind)
    if kind in _REFUSED:
        raise UnknownDrafter(f"drafter {kind!r} can't be measured: {_REFUSED[kind]}")
    if kind == "scripted":
        raise UnknownDrafter("drafter 'scripted' is made in Python, for tests")
    if colon and kind not in ("model", "early_exit"):
        raise UnknownDrafter(f"drafter {kind!r} takes no argument, got {argument!r}")
    if kind == "model":
        if not argument:
            raise UnknownDrafter("drafter 'model' needs a draft model: write model:PATH")
        return DrafterSpec(label, kind, model=argument)
    return DrafterSpec(label, kind, exit_layer=_layer(argument) if colon else None)


def _layer(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise UnknownDrafter(f"early_exit takes a number of layers, like early_exit:10, got {text!r}")
    return int(text)

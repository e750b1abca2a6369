"""The drafters by name: one explicit dict, no discovery.

A drafter that needs a second model is built by whoever loads models (it gets the model and a ledger of its own); the
others need their options only. An unknown name, or an option that a drafter does not have, is an error that lists what
there is: nothing is accepted and ignored.

Does not know: how models are loaded, which drafter pays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from numpy.typing import ArrayLike

from draftproof.drafters.cascade import Cascade
from draftproof.drafters.eagle import MIN_PATH, EagleDrafter, Head
from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.model import EarlyExitDrafter, ModelDrafter
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.none import NoneDrafter
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.drafters.tree_shape import Shape
from draftproof.errors import UnknownDrafter
from draftproof.protocols import Drafter, KVCache

_LOOKED_UP = 2  # tokens that must have stood together before: where one does, the head knows better (docs/LOG.md)
_SUPPLIED = ("target", "ledger", "vocab_size", "mapping", "script")  # by the code that loads models, not by a user


@dataclass(frozen=True, slots=True)
class DrafterEntry:
    """What the registry says of one drafter."""

    name: str
    summary: str
    factory: Callable[..., Drafter]
    needs_model: bool = False  # factory(target, ledger, vocab_size, **options) instead of factory(**options)
    needs_head: bool = False  # factory(head, ...) with a draft head, which reads the target's hidden states

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options a user may set."""
        return tuple(name for name in inspect.signature(self.factory).parameters if name not in _SUPPLIED)


def _suffix_then_eagle(
    target: Head,
    ledger: KVCache,
    vocab_size: int,
    *,
    mapping: ArrayLike | None = None,
    min_path: float = MIN_PATH,
    tree: Shape | None = None,
) -> Cascade:
    eagle = EagleDrafter(target, ledger, vocab_size, mapping=mapping, min_path=min_path, tree=tree)
    return Cascade([SuffixDrafter(min_match=_LOOKED_UP), eagle])


DRAFTERS: dict[str, DrafterEntry] = {
    entry.name: entry
    for entry in (
        DrafterEntry("none", "plain decoding", NoneDrafter),
        DrafterEntry("ngram", "copies what followed the last few tokens before", NgramDrafter),
        DrafterEntry("suffix", "a suffix automaton over the request, and optionally past ones", SuffixDrafter),
        DrafterEntry("model", "a second, smaller model", ModelDrafter, needs_model=True),
        DrafterEntry("early_exit", "the target's own first layers with its head", EarlyExitDrafter, needs_model=True),
        DrafterEntry("fixed_tree", "a tree of a second model's best tokens", FixedTreeDrafter, needs_model=True),
        DrafterEntry("eagle", "a trained head on the target's own hidden states", EagleDrafter, needs_head=True),
        DrafterEntry("medusa", "trained heads, each guessing one token apart", MedusaDrafter, needs_head=True),
        DrafterEntry("cascade", "suffix, and eagle where it has nothing", _suffix_then_eagle, needs_head=True),
        DrafterEntry("scripted", "drafts on command, for tests", ScriptedDrafter),
    )
}


def check_name(name: str) -> DrafterEntry:
    """The entry of a name. Raises UnknownDrafter, which lists the known ones."""
    if name not in DRAFTERS:
        known = ", ".join(known for known in DRAFTERS if known != "scripted")  # that one is made in Python
        raise UnknownDrafter(f"no drafter is called {name!r}; there are: {known}")
    return DRAFTERS[name]


def make(name: str, **arguments: object) -> Drafter:
    """A drafter by name: its options, and what the code that loads models supplies (target, ledger, vocab_size, ...).

    Raises UnknownDrafter for an unknown name, an option that this drafter does not have, or a missing argument.
    """
    entry = check_name(name)
    parameters = inspect.signature(entry.factory).parameters
    for argument in arguments:
        if argument not in parameters:
            known = ", ".join(entry.options) or "none"
            raise UnknownDrafter(f"drafter {name!r} has no option {argument!r}; its options: {known}")
    for parameter in parameters.values():
        if parameter.default is inspect.Parameter.empty and parameter.name not in arguments:
            raise UnknownDrafter(f"drafter {name!r} can't be made without {parameter.name!r}")
    return entry.factory(**arguments)

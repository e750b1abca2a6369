"""Shared by the engine-level cases: scripts that draft the same tokens every round."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftproof.drafters.scripted import ScriptedDrafter


@pytest.fixture
def always() -> Callable[..., ScriptedDrafter]:
    """always(a, b, c): a drafter that proposes these tokens in every round."""

    def make(*tokens: int) -> ScriptedDrafter:
        return ScriptedDrafter(lambda item: list(tokens))

    return make

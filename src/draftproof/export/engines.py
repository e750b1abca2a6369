"""The engines by name, and one call for all of them.

Does not know: what any of them is told.
"""

from __future__ import annotations

from collections.abc import Callable

from draftproof.errors import InputError
from draftproof.export import llama_cpp, sglang, tensorrt_llm, vllm
from draftproof.export.exported import Exported
from draftproof.export.policy import Policy

ENGINES: dict[str, Callable[[Policy], Exported]] = {
    "vllm": vllm.export,
    "sglang": sglang.export,
    "tensorrt-llm": tensorrt_llm.export,
    "llama.cpp": llama_cpp.export,
}


def export(policy: Policy, engine: str) -> Exported:
    """The policy in an engine's words. Raises InputError for an unknown engine."""
    if engine not in ENGINES:
        raise InputError(f"no engine is called {engine!r}; there are: {', '.join(ENGINES)}")
    return ENGINES[engine](policy)

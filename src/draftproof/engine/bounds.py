"""What an engine's options say about how much runs at once, and what its sequences may share.

Does not know: how an engine is built, models beyond their own bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.engine.options import HEAD_DRAFTERS, EngineOptions
from draftproof.errors import InvalidParams
from draftproof.protocols import Target
from draftproof.sched.limits import Limits


def name_of(options: EngineOptions) -> str:
    """The drafter's name."""
    return options.drafter if isinstance(options.drafter, str) else options.drafter.name


def prefix_caching(options: Sequence[EngineOptions], target: Target) -> bool:
    """Whether prompts share rows: by default where no bit depends on who computed them, and every drafter copes.

    options: of the engines over one target, alike in this. Raises InvalidParams where it was asked for in vain.
    """
    asked = options[0].enable_prefix_caching
    readers = [name_of(each) for each in options if _reads_states(each)]
    if asked and readers:
        raise InvalidParams(
            f"drafter {readers[0]!r} reads the target's hidden states of the whole prompt, which a prefix cache does "
            "not keep: drop --enable-prefix-caching"
        )
    return target.numerics == "invariant" and not readers if asked is None else asked


def _reads_states(options: EngineOptions) -> bool:
    drafter = options.drafter
    return drafter in HEAD_DRAFTERS if isinstance(drafter, str) else "features" in drafter.wants


def limits_of(options: EngineOptions, target: Target, *, prefix_cache: bool) -> Limits:
    """The scheduler's. A draft length that was asked for is never cut for want of rows."""
    sequences, least = options.max_sequences, target.min_rows
    rows = options.chunk_rows + sequences * (least + options.gamma) if options.gamma is not None else 0
    return Limits(
        max_len=target.max_len,
        max_sequences=sequences,
        max_step_rows=max(512, sequences * 20, options.chunk_rows, rows),
        chunk_rows=options.chunk_rows,
        min_rows=least,
        prefix_cache=prefix_cache,
    )

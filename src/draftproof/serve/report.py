"""What speculation did for a request, as the answer says it and as the rollout counts it.

Names as of vLLM's per-request metrics: num_spec_steps counts rounds with drafts, acceptance_histogram[j] those that
accepted exactly j draft tokens, mean_acceptance_length = 1 + accepted / steps, draft_acceptance_rate = accepted /
drafted. Beside them draftproof's own: acceptance = accepted / tested, and what was applied. Several texts of a request
are summed.

Drafts in shadow were never emitted: they are reported under "shadow", and vLLM's names stay at nothing.

Does not know: streams, routes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from draftproof.drafters.shadow import ShadowCounts
from draftproof.engine.outputs import Output
from draftproof.serve.treatment import Applied, Became


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all texts of a request."""

    applied: Applied
    rule: str
    numerics: str
    seed: int
    num_spec_tokens: int  # longest draft that could be asked for


def describe(terms: Terms, outputs: Sequence[Output], shadow: Mapping[int, ShadowCounts]) -> dict[str, Any]:
    """The object `speculative_decoding` of an answer."""
    drafted, tested, accepted = _counts(outputs)
    steps = sum(output.speculation.drafting_rounds for output in outputs)
    rounds = sum(output.speculation.rounds for output in outputs)
    applied = terms.applied
    told: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted / steps if steps else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": _histogram(outputs, terms.num_spec_tokens),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": terms.num_spec_tokens,
        "num_tested_draft_tokens": tested,
        "acceptance": accepted / tested if tested else None,
        "tokens_per_round": sum(len(output.token_ids) for output in outputs) / rounds if rounds else None,
        "mode": applied.mode,
        "stage": applied.stage,
        "bucket": applied.bucket,
        "drafter": applied.route.label or "none",
        "rule": terms.rule,
        "lossless": True,
        "numerics": terms.numerics,
        "seed": terms.seed,
    }
    if applied.mode == "shadow":
        told["shadow"] = _shadow(shadow.values())
    return told


def _shadow(counts: Any) -> dict[str, Any]:
    each = list(counts)
    drafted, tested, accepted = (sum(getattr(c, name) for c in each) for name in ("drafted", "tested", "accepted"))
    return {
        "num_spec_steps": sum(c.rounds for c in each),
        "num_draft_tokens": drafted,
        "num_tested_draft_tokens": tested,
        "num_accepted_draft_tokens": accepted,
        "acceptance": accepted / tested if tested else None,
    }


def _counts(outputs: Sequence[Output]) -> tuple[int, int, int]:
    """(drafted, tested, accepted) of all texts."""
    spoken = [output.speculation for output in outputs]
    return sum(s.drafted for s in spoken), sum(s.tested for s in spoken), sum(s.accepted for s in spoken)


def _histogram(outputs: Sequence[Output], longest: int) -> list[int]:
    """Rounds with drafts by the number of accepted ones, 0..longest."""
    counts = [0] * (longest + 1)
    for output in outputs:
        spoken = output.speculation
        reached = [
            spoken.drafting_rounds,
            *(round(s * spoken.drafting_rounds) for s in spoken.acceptance_by_position),
            0,
        ]
        for accepted, (here, further) in enumerate(pairwise(reached)):
            counts[accepted] += here - further
    return counts


def became(applied: Applied, outputs: Sequence[Output], shadow: Mapping[int, ShadowCounts], *, error: bool) -> Became:
    """For the rollout: latencies are means over the texts, counts are sums; in shadow those of the shadow drafts."""
    speeds = [output.timing.decode_tokens_per_second for output in outputs]
    gaps = [1 / speed for speed in speeds if speed]
    firsts = [output.timing.ttft_s for output in outputs if output.timing.ttft_s is not None]
    drafted, tested, accepted = (0, 0, 0) if applied.mode == "off" else _counts(outputs)
    if applied.mode == "shadow":
        drafted, tested, accepted = (
            sum(getattr(counts, name) for counts in shadow.values()) for name in ("drafted", "tested", "accepted")
        )
    return Became(
        itl_s=sum(gaps) / len(gaps) if gaps else None,
        ttft_s=sum(firsts) / len(firsts) if firsts else None,
        tokens=sum(len(output.token_ids) for output in outputs),
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        error=error,
    )

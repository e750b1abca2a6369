"""TensorRT-LLM: `trtllm-serve MODEL --config FILE`, FILE with a `speculative_config`.

Names and limits from the API reference of 1.4.0rc4 and llm_args.py: `draft_len_schedule` maps the largest batch size of
a step to its length, off above the last; its first length must be `max_draft_len`; it excludes `max_concurrency`.
The drafters that live in the target's forward (DraftTarget, SA) are no more switched off by it since PR #16888. The
acceptance window counts accepted / drafted over the whole server and switches drafting off for good.

Does not know: plans, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.export.exported import Engine, Exported, Expressed, plain, steps, summary, written
from draftproof.export.heads import CASCADE
from draftproof.export.policy import NGRAM_MAX, Candidate, Policy, Tier

_KINDS = frozenset({"ngram", "suffix", "model"})
_INSTEAD = {"eagle": "Eagle3, but none of draftproof's heads was tried there", "cascade": CASCADE}
ENGINE = Engine("TensorRT-LLM", "1.4.0rc4", _KINDS, _KINDS, _INSTEAD)
_WINDOW = 1000  # decoding iterations that the rolling acceptance is taken over

_TYPES = {"ngram": "NGram", "suffix": "SA", "model": "DraftTarget"}


def export(policy: Policy) -> Exported:
    """The policy as a YAML file and the command that reads it."""
    words = ("trtllm-serve", policy.model)
    chosen = policy.best(ENGINE.kinds, ENGINE.by_load)
    if chosen is not None and not chosen.by_load[0].gamma:
        why = f"it pays at heavier loads only, and {ENGINE.name} can't draft there without drafting at the lightest"
        return plain(policy, ENGINE, words, f"{summary(policy, ENGINE, chosen)}; {why}")
    return written(policy, ENGINE, words, _express)


def _express(policy: Policy, chosen: Candidate) -> Expressed:
    config = _config(policy, chosen)
    notes = _notes(policy, chosen, config["speculative_config"])
    return Expressed(config, _peculiar(policy, chosen), notes, file_option="--config")


def _config(policy: Policy, chosen: Candidate) -> dict[str, Any]:
    first = chosen.by_load[0]
    inner: dict[str, Any] = {"decoding_type": _TYPES[chosen.kind], "max_draft_len": first.gamma}
    if chosen.kind == "model":
        inner["speculative_model"] = chosen.model
    if chosen.kind == "ngram":
        inner |= {
            "max_matching_ngram_size": NGRAM_MAX,
            "is_keep_all": True,
            "is_use_oldest": False,  # the most recent occurrence goes on, as in draftproof's drafter
            "is_public_pool": False,  # of the same request only
        }
    if not policy.one_load:
        inner |= _lengths(chosen.by_load)
    if first.floor is not None:
        inner |= {"acceptance_rate_window_size": _WINDOW, "acceptance_rate_threshold": round(first.floor, 3)}
    outer = {"disable_overlap_scheduler": True} if chosen.kind == "ngram" else {}
    return {**outer, "speculative_config": inner}


def _lengths(tiers: Sequence[Tier]) -> dict[str, Any]:
    """A length for each load; no length above the first, which is the largest there can be; off above the last."""
    most = tiers[0].gamma
    capped = [Tier(tier.concurrency, min(tier.gamma, most), tier.speedup, tier.floor) for tier in tiers]
    rows = steps(capped)
    while not rows[-1][2]:
        rows.pop()  # off above the last
    if len(rows) == 1:
        return {"max_concurrency": rows[0][1]}
    return {"draft_len_schedule": {last: gamma for _, last, gamma in rows}}


def _peculiar(policy: Policy, chosen: Candidate) -> list[str]:
    lines = []
    most = chosen.by_load[0].gamma
    if any(tier.gamma > most for tier in chosen.by_load):
        lines.append(f"more tokens at a heavier load than at the lightest: no load drafts more than {most}")
    if chosen.kind != "ngram" and not policy.one_load:
        lines.append("drafting switched off at a load: builds with PR #16888 draft at least one token at every load")
    if chosen.kind == "model" and policy.temperature > 0 and policy.rule != "follow":
        lines.append("drafts drawn from the draft's law: they are its likeliest tokens, so acceptance will differ")
    if chosen.kind == "suffix":
        lines.append("where a suffix draft ends: SA drafts as far as its match goes on")
    return lines


def _notes(policy: Policy, chosen: Candidate, inner: Mapping[str, Any]) -> list[str]:
    notes = []
    if not policy.one_load and chosen.kind == "ngram":
        notes.append(f"drafting stops above {policy.concurrency[-1]} sequences: larger loads were not planned")
    if "draft_len_schedule" in inner:
        notes.append(
            "older releases read a key of draft_len_schedule as the smallest batch size of its step, and want a key 1"
        )
    if "acceptance_rate_threshold" in inner:
        notes.append(
            "acceptance_rate_threshold is the share of draftproof's drafts at which a round costs what plain decoding "
            "does, at the lightest load; below it drafting stops for the whole server, until a restart"
        )
    return notes

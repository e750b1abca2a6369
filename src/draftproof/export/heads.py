"""Draft heads in other engines' words: the format that each reads, and the options that name the head's folder.

`draftproof heads export` writes the folder; `draftproof export` says which one it takes.

Names read in vllm 0.32.0 (config/speculative.py; methods eagle3 and medusa, the latter gone in 0.33) and sglang 0.5.23
(srt/arg_groups/fields/spec.py; EAGLE3, no Medusa).

Does not know: tensors, plans.
"""

from __future__ import annotations

import json
import shlex
from pathlib import PurePath
from typing import Any

from draftproof.export.exported import shell
from draftproof.export.policy import Candidate

FORMATS = {
    "speculators": "vLLM",
    "eagle3": "SGLang, EAGLE",
    "medusa": "FasterDecoding, TGI",
    "vllm-medusa": "vLLM up to 0.32",
}
VLLM = {"eagle": "speculators", "medusa": "vllm-medusa"}  # kind of drafter -> format
SGLANG = {"eagle": "eagle3"}
CASCADE = "none of the kind cascade: one drafter drafts there (its parts can be measured apart, as suffix and eagle)"
ALWAYS = "where a head ends a chain that it is too unsure of: every draft has the full length"
_METHODS = {"speculators": "eagle3", "vllm-medusa": "medusa"}


def vllm_config(form: str, folder: str, tokens: int) -> dict[str, Any]:
    """`--speculative-config` for a head in one of vLLM's formats."""
    return {"method": _METHODS[form], "model": folder, "num_speculative_tokens": tokens}


def sglang_options(folder: str, tokens: int, algorithm: str = "EAGLE3") -> list[tuple[str, str]]:
    """The server's options for a chain of so many drafts; `tokens + 1`, for it counts the last committed token too."""
    return [
        ("--speculative-algorithm", algorithm),
        ("--speculative-draft-model-path", folder),
        ("--speculative-num-steps", str(tokens)),
        ("--speculative-eagle-topk", "1"),
        ("--speculative-num-draft-tokens", str(tokens + 1)),
    ]


def serve_command(form: str, target: str, folder: str, tokens: int) -> str | None:
    """What starts a server with a head in this format; None where no server that takes it has a command for that."""
    if form == "eagle3":
        words = ("python3", "-m", "sglang.launch_server", "--model-path", target)
        return shell(words, sglang_options(folder, tokens), between=" ")
    if form not in _METHODS:
        return None
    config = json.dumps(vllm_config(form, folder, tokens))
    return shell(("vllm", "serve", target), [("--speculative-config", config)], between=" ")


def folder_of(chosen: Candidate, engine: str) -> str:
    """What an engine's copy of a candidate's head is called, where nobody has said."""
    return f"{PurePath(str(chosen.model)).name}-{engine}"


def write_note(chosen: Candidate, model: str, form: str, folder: str) -> str:
    """How that copy is written. model: the target."""
    head = [] if chosen.is_shipped else [str(chosen.model)]
    words = ["draftproof", "heads", "export", *head, "--to", form, "--model", model, "--out", folder]
    return f"write the head for it first: {shlex.join(words)} (--target-name: what this engine calls the target)"

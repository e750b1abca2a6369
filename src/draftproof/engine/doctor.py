"""`draftproof doctor`: does this machine keep the promise, and what do the chosen weights cost in quality?

Proves the declared numerics with the full self-check, measures how far "fast" kernels drift on the same model, compares
the weights with float32 on a fixed text (teacher-forced: KL divergence in nats per token, share of equal argmaxes,
perplexity), and lists versions, threads and memory.

Does not know: printing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from draftproof.engine.build import OF_ONE_START
from draftproof.engine.llm import LLM
from draftproof.engine.machine import cpu_name
from draftproof.engine.score import score
from draftproof.models import selfcheck
from draftproof.models.selfcheck import Finding

Report = Callable[[str], None]
_PACKAGES = ("draftproof", "openvino", "torch", "transformers", "nncf", "numpy", "tokenizers", "safetensors")

TEXT = (
    "A river does not choose its bed once and for all. In spring, when the snow melts in the hills, it carries gravel "
    "and broken branches down to the plain and drops them where the slope ends; by autumn the water has found a way "
    "around what it left behind. People who live beside it learn to read the bank: where the roots of an alder hang "
    "free, the ground will be gone in a few years, and where willows stand in a row on new sand, a meadow is being "
    "made. In 1893 the parish counted four bridges. Two of them crossed dry ditches by 1920, because the river had "
    "moved half a mile to the east and nobody had money to move the bridges after it. The engineers who came later "
    "laid stone along both sides and dug a straight channel. It held for thirty years. Then, in one night of rain, "
    "the water went back to its old bed, took the mill, and was found in the morning running under the two bridges "
    "that everyone had laughed at.\n\n"
    "def moving_average(values, width):\n"
    "    total, result = 0.0, []\n"
    "    for index, value in enumerate(values):\n"
    "        total += value\n"
    "        if index >= width:\n"
    "            total -= values[index - width]\n"
    "        result.append(total / min(index + 1, width))\n"
    "    return result\n"
)


def run(llm: LLM, report: Report = lambda _: None) -> dict[str, Any]:
    """JSON-ready findings. `ok` is False only where a declared property does not hold."""
    target = llm.built.engine.target
    report(f"proving {target.numerics} numerics")
    findings = selfcheck.full(target, report)
    numerics = {"declared": target.numerics, **_summary(findings)}
    return {
        "ok": bool(target.numerics == "fast" or numerics["all_equal"]),
        "machine": _machine(llm),
        "engine": {key: value for key, value in llm.info.items() if key not in OF_ONE_START},
        "numerics": numerics,
        "fast_drift": _fast_drift(llm, report),
        "weights": _weights(llm, report),
    }


def _summary(findings: Sequence[Finding]) -> dict[str, Any]:
    worst = max(findings, key=lambda finding: finding.drift)
    return {
        "checks": len(findings),
        "bit_equal": sum(finding.equal for finding in findings),
        "all_equal": all(finding.equal for finding in findings),
        "largest_drift": worst.drift,
        "largest_drift_at": worst.what if worst.drift else None,
        "flipped_argmaxes": sum(finding.flipped for finding in findings),
    }


def _fast_drift(llm: LLM, report: Report) -> dict[str, Any] | None:
    """The same checks with rows as narrow as they come: what the invariant form saves the user from."""
    target = llm.built.engine.target
    if target.min_rows == 1:
        return None
    report("measuring the drift of fast numerics")
    with selfcheck.narrow(target):
        return _summary(selfcheck.full(target))


def _machine(llm: LLM) -> dict[str, Any]:
    memory = psutil.virtual_memory()
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": llm.info["threads"],
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "process_bytes": psutil.Process().memory_info().rss,
        "kv_bytes": llm.info["kv_bytes"],
        "kv_tokens": llm.info["kv_tokens"],
        "versions": versions,
    }


def _weights(llm: LLM, report: Report) -> dict[str, Any] | None:
    """How far these weights are from float32; None where they are float32."""
    if llm.info["weights"] == "float32":
        return None
    report(f"comparing {llm.info['weights']} weights with float32")
    ids = llm.tokenizer.encode(TEXT)
    ours = _log_laws(llm, ids)
    options = replace(llm.options, weights="float32", drafter="none", draft_model=None, exit_layer=None, gamma=None)
    with LLM.from_options(options, report) as other:
        truth = _log_laws(other, ids)
    kl = (np.exp(truth) * (truth - ours)).sum(axis=1)
    return {
        "weights": llm.info["weights"],
        "tokens": len(ids),
        "kl_nats_per_token": float(kl.mean()),
        "argmax_agreement": float((truth.argmax(axis=1) == ours.argmax(axis=1)).mean()),
        "perplexity": _perplexity(ours, ids),
        "perplexity_float32": _perplexity(truth, ids),
    }


def _log_laws(llm: LLM, ids: Sequence[int]) -> NDArray[np.float64]:
    """float64[T, V]: log-softmax after each token."""
    rows = [np.array(row, np.float64) for row in score(llm.built.engine.target, llm.built.ledger, ids)]
    logits = np.stack(rows)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def _perplexity(log_laws: NDArray[np.float64], ids: Sequence[int]) -> float:
    following = np.array(ids[1:])
    return float(np.exp(-log_laws[np.arange(len(following)), following].mean()))

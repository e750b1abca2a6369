"""Where and with what something was measured: machine, versions, commit, command.

Does not know: what was measured.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from draftproof import __version__
from draftproof.engine.machine import cpu_name

_PACKAGES = ("openvino", "torch", "transformers", "tokenizers", "numpy", "pyarrow")
_GPU = Path("/dev/nvidiactl")


def provenance(command: list[str]) -> dict[str, Any]:
    """The fields of run.json that say when, where, with what. JSON-ready."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "draftproof": __version__,
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and, where there is one, GPU. JSON-ready."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "gpu": _gpu_name(),
    }


def versions() -> dict[str, str | None]:
    """Versions of the packages that results depend on; None for one that is not installed."""
    return {name: _version(name) for name in _PACKAGES}


def commit() -> str | None:
    """The commit of draftproof's own checkout; None where it was installed from a package."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        tracked = subprocess.run([*command[:3], "ls-files", __file__], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip() or None if ran.returncode == 0 and tracked.stdout else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu_name() -> str | None:
    """Asked only where a device node is and torch is loaded already: importing it takes seconds."""
    torch = sys.modules.get("torch")
    if torch is None or not _GPU.exists() or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name())

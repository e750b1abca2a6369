"""The public names: complete, sorted, few."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import draftproof


def test_public_names_are_complete_and_few() -> None:
    names = draftproof.__all__  # their order is ruff's to hold
    public = {n for n, v in vars(draftproof).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    assert set(names) == public | {"__version__"}
    assert len(set(names)) == len(names) <= 25


def test_importing_the_package_does_not_import_what_costs_seconds() -> None:
    code = "import sys, draftproof; print(sorted({'torch', 'transformers', 'openvino', 'nncf'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

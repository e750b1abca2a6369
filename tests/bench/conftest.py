"""Makes the `bench` folder importable: it lies beside the package, not in it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture
def make_run():
    """A run of one configuration: 100 tokens in `seconds`."""

    def make(config, prompt, seconds, *, repeat=0, bucket="edit", digest=None, **extra):
        return {
            "config": config,
            "bucket": bucket,
            "prompt": prompt,
            "repeat": repeat,
            "seconds": seconds,
            "counts": [100],
            "digests": [digest or f"text of {prompt}"],
            **extra,
        }

    return make

"""What runs of several kinds of drafters are tested on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof.train.texts import Text


@pytest.fixture(scope="session")
def texts():
    """texts(target's module, count, length=24) -> its own greedy answers to prompts of five tokens, 3..60."""

    def write(target, count, length=24):
        rng = torch.Generator().manual_seed(3)
        prompts = torch.randint(3, 61, (count, 5), generator=rng)
        found = target.generate(prompts, do_sample=False, max_new_tokens=length, pad_token_id=0, eos_token_id=None)
        return [Text(line.numpy().astype(np.int32), 5) for line in found]

    return write

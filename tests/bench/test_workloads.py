"""The prompts are what every figure stands on: they must not change unnoticed."""

import hashlib
import json

from bench.workloads import BUCKETS, PROMPTS, WORKLOADS, spread


def test_the_twelve_prompts_are_the_fixed_ones():
    assert BUCKETS == ("edit", "passage", "chat")
    assert [len(WORKLOADS[bucket]) for bucket in BUCKETS] == [4, 4, 4]
    text = json.dumps([prompt.text for prompt in PROMPTS])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "9a08f8a386b4eabb"


def test_prompts_are_numbered_through_the_buckets():
    assert [prompt.index for prompt in PROMPTS] == list(range(12))
    assert [prompt.bucket for prompt in PROMPTS] == ["edit"] * 4 + ["passage"] * 4 + ["chat"] * 4


def test_a_few_prompts_come_from_all_buckets():
    assert [prompt.index for prompt in spread(3)] == [0, 4, 8]
    assert sorted(prompt.index for prompt in spread(12)) == list(range(12))
    assert len({prompt.index for prompt in spread(7)}) == 7

"""Two reports that are not bugs, as must-pass cases of the production decision, on samples.

An argmax draft judged by the match rule at temperature > 0, and a ranked top-k tree: both exact (enumerated without
tolerance under B02 and B15); only the acceptance suffers.
"""

import numpy as np
import pytest

from draftproof.noise import PhiloxNoise
from draftproof.rules import HostLogits, decide, emitted
from draftproof.types import Draft, SamplingParams, StepItem, chain

NOISE = PhiloxNoise()
TARGET = np.array([0.5, 0.3, 0.2])
ARGMAX = chain([0])
TOP_TWO = Draft(np.array([0, 1], np.int32), np.zeros(2, np.int32))
TRIALS, LIMIT = 20_000, 13.82  # chi-square, 2 degrees of freedom, 0.1 %


@pytest.mark.parametrize("rule", ["follow", "reject", "coupled"])
@pytest.mark.parametrize(("draft", "acceptance"), [(ARGMAX, 0.5), (TOP_TWO, 0.8)])
def test_fixed_drafts_keep_the_law(rule, draft, acceptance):
    rows, counts, accepted = HostLogits(np.log(np.tile(TARGET, (3, 1)))), np.zeros(3), 0
    trials = TRIALS if rule == "follow" and draft is TOP_TWO else TRIALS // 5
    for seed in range(trials):
        item = StepItem(0, np.zeros(1, np.int32), 1, 1, 1, 4, SamplingParams(temperature=1.0, seed=seed, rule=rule), 0)
        verdict = decide(item, draft, rows, 0, 3, NOISE)
        counts[emitted(draft, verdict)[0]] += 1
        accepted += bool(verdict.path)
    assert ((counts - trials * TARGET) ** 2 / (trials * TARGET)).sum() < LIMIT
    assert accepted / trials == pytest.approx(acceptance, abs=4 * (0.25 / trials) ** 0.5)

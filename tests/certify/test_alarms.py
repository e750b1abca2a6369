"""Two hundred correct set-ups: false alarms within the stated rate, and p-values that are uniform."""

import numpy as np
from scipy import stats
from setups import MIXES, certify

SETUPS, ALPHA = 200, 0.05


def test_false_alarms_stay_within_the_stated_rate():
    assert len(MIXES) < SETUPS  # each drafter with each rule and law, most of them twice or more
    alarms, p_values = [], []
    for number in range(SETUPS):
        made = certify(number, alpha=ALPHA, tests=("fit",), tokens=320)
        if made["verdict"] == "fault":
            alarms.append((number, made["fault"]))
        p_values += [t["p_value"] for t in made["tests"] if t["test"].startswith("fit.") and t["p_value"] is not None]
    assert len(alarms) <= stats.binom.ppf(0.999, SETUPS, ALPHA), alarms
    assert len(p_values) > 2.5 * SETUPS
    # tests of one set-up share numbers, so the spacing is not that of independent ones: shares, not a KS test
    for share in (0.01, 0.05, 0.5):
        seen = np.mean(np.array(p_values) <= share)
        assert seen <= share + 4 * np.sqrt(3 * share * (1 - share) / len(p_values)), (share, seen)

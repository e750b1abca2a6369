"""First differences: tie within the measured drift, or fault, with both logits."""

import numpy as np
import pytest

from draftproof.certify import identity
from draftproof.certify.types import Job, Round, Sample
from draftproof.types import SamplingParams

JOB = Job(3, (1, 2), SamplingParams(seed=5))


class Logits:
    name = "logits"

    def __init__(self, row):
        self._row = np.array(row)

    def laws(self, job, tokens):
        return iter(())

    def logits(self, job, tokens):
        assert list(tokens) == [7]
        return self._row

    def facts(self):
        return {}


def compared(row, drift, ours=(7, 0), plain=(7, 1), **params):
    job = Job(3, (1, 2), SamplingParams(seed=5, **params))
    rounds = (Round(1, 0, 0, 0), Round(1, 1, 1, 1))
    sample = Sample(ours, "length", rounds)
    return identity.compare("identity.a", [job], [sample], [Sample(plain, "length")], (Logits(row), drift))


def test_equal_texts():
    result = identity.compare("identity.a", [JOB], [Sample((1, 2), "stop")], [Sample((1, 2), "stop")], None)
    assert (result.failed, result.detail["equal"], result.count) == (False, 1, 2)


@pytest.mark.parametrize(
    ("row", "drift", "verdict"),
    [
        ([1.0, 1.001, 0], 0.001, "tie"),
        ([1.0, 1.003, 0], 0.001, "fault"),
        ([1.0, 1.0, 0], 0.0, "fault"),  # bit-exact: the lower id wins a tie, always
    ],
)
def test_triage(row, drift, verdict):
    result = compared(row, drift)
    (difference,) = result.detail["differences"]
    assert difference["verdict"] == verdict
    assert result.failed == (verdict == "fault")
    assert (difference["position"], difference["place"]) == (1, "accepted@1")
    assert (difference["logit_ours"], difference["logit_plain"]) == (row[0], row[1])
    assert result.detail["widest_tie"] == (pytest.approx(0.001) if verdict == "tie" else None)


def test_at_a_temperature_logits_decide_nothing():
    assert compared([1.0, 1.0, 0], 0.1, temperature=0.5).detail["differences"][0]["verdict"] == "not_judged"
    assert compared([1.0, 1.0, 0], 0.0, temperature=0.5).failed


def test_a_drift_that_is_not_known_judges_nothing():
    result = compared([9.0, 1.0, 0], None)
    assert result.detail["differences"][0]["verdict"] == "not_judged"
    assert not result.counts


def test_another_end_is_a_fault():
    found = identity.compare("identity.a", [JOB], [Sample((1, 2, 3), "length")], [Sample((1, 2), "stop")], None)
    assert found.failed
    assert found.detail["differences"][0]["what"] == "the texts end differently"
    assert not found.counts  # and nobody judges without a reference


def test_what_is_found_with_99_per_cent():
    many = [Sample(tuple(range(46)), "length")] * 10
    assert identity.compare("identity.a", [JOB] * 10, many, many, None).detail["share_99"] == pytest.approx(
        0.00996, 1e-3
    )

"""The policy: defaults, overrides, and every way a file can be wrong."""

import dataclasses
import json
from pathlib import Path

import pytest

from draftproof.errors import InputError
from draftproof.rollout import BucketPolicy, RolloutPolicy
from draftproof.rollout.policy import check_name


def load(tmp_path: Path, text: str) -> RolloutPolicy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return RolloutPolicy.load(path)


def test_an_empty_file_is_the_defaults(tmp_path):
    assert load(tmp_path, "") == load(tmp_path, "# nothing yet\n") == RolloutPolicy()
    policy = RolloutPolicy().of("any")
    assert (policy.floor, policy.canary_share, policy.wide_shares, policy.holdout) == (0.4, 0.05, (0.25, 0.5), 0.05)


def test_a_bucket_has_its_own_fields_beside_the_common_ones(tmp_path):
    policy = load(
        tmp_path,
        "floor: 0.45\ncanary_share: 0.1\nmin_seconds: 60\nsalt: x\nmax_buckets: 3\n"
        "buckets:\n  code: {floor: 0.5, wide_shares: [0.3]}\n  legal: {enabled: false}\n",
    )
    assert policy.of("chat") == BucketPolicy(floor=0.45, canary_share=0.1, min_seconds=60.0)
    assert policy.of("code") == BucketPolicy(floor=0.5, canary_share=0.1, min_seconds=60.0, wide_shares=(0.3,))
    assert not policy.of("legal").enabled
    assert (policy.salt, policy.max_buckets) == ("x", 3)
    assert RolloutPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flor: 0.5", "unknown field flor; there are enabled,"),
        ("buckets: {code: {flor: 0.5}}", "unknown field buckets.code.flor"),
        ("floor: high", "floor must be a number, got 'high'"),
        ("floor: true", "floor must be a number, got True"),
        ("min_requests: 50.5", "min_requests must be a whole number, got 50.5"),
        ("enabled: 1", "enabled must be true or false, got 1"),
        ("salt: 7", "salt must be a text, got 7"),
        ("max_buckets: 0", "max_buckets must be at least 1"),
        ("wide_shares: 0.3", "wide_shares must be a list of numbers"),
        ("wide_shares: [0.3, x]", "wide_shares must be a number, got 'x'"),
        ("wide_shares: [0.5, 0.3]", "wide_shares must be ascending"),
        ("wide_shares: [0.3, 0.99]", "wide_shares must be ascending"),
        ("canary_share: 0.3", "wide_shares must be ascending"),
        ("floor: .nan", "floor must be a finite number"),
        ("floor: 1.0", "floor must be above 0 and below 1"),
        ("hysteresis: 0.7", "hysteresis must be above 0 and below 1 - floor"),
        ("min_requests: 3", "min_requests must be at least 20: fewer give no interval"),
        ("false_alarm_rate: 0", "false_alarm_rate must be above 0"),
        ("max_backoff_seconds: 10", "max_backoff_seconds must be at least backoff_seconds"),
        ("buckets: {code: {floor: 0.95}}", "hysteresis must be above 0 and below 1 - floor, got 0.1 (in buckets.code)"),
        ("buckets: [code]", "buckets must be an object of named fields"),
        ("buckets: {code: 0.5}", "buckets.code must be an object of named fields"),
        ("buckets: {'*': {}}", "a bucket's name has 1 to 64 printable characters"),
        ("1: 2", "the policy must be an object of named fields"),
        ("- floor", "the policy must be an object of named fields"),
        ("floor: 0.5\nfloor: 0.6", "'floor' is given twice"),
        ("buckets: {a: {floor: 0.5}, a: {floor: 0.6}}", "'a' is given twice"),
        ("floor: [", "can't read the policy"),
        ("a: &x [*x]", "can't read the policy"),
        ("floor: !!python/object:os.system {}", "can't read the policy"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "policy.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_can_not_be_read(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere.yaml", "bytes.yaml", "."):
        with pytest.raises(InputError, match="can't read the policy"):
            RolloutPolicy.load(tmp_path / name)


def test_anchors_and_merges_are_yaml_as_usual(tmp_path):
    policy = load(tmp_path, "buckets:\n  a: &own {floor: 0.5, holdout: 0.1}\n  b:\n    <<: *own\n    holdout: 0.2\n")
    assert policy.of("b") == BucketPolicy(floor=0.5, holdout=0.2)


def test_every_field_is_documented():
    for kind in (BucketPolicy, RolloutPolicy):
        for field in dataclasses.fields(kind):
            assert field.name in kind.__doc__, field.name


@pytest.mark.parametrize("name", ["", "*", "a" * 65, "new\nline", "bell\x07", 7, None])
def test_names_that_no_bucket_has(name):
    with pytest.raises(InputError, match="a bucket's name has"):
        check_name(name)
    check_name("a" * 64)
    check_name("Übersetzung/de 1")

"""What an operator may set: every threshold of the rollout, with its default, and overrides by bucket.

    floor: 0.45                   # in the file: fields of all buckets
    canary_share: 0.1
    buckets:
      code: {floor: 0.5}          # and of one bucket, beside those above
      legal: {enabled: false}
    max_buckets: 64
    salt: "2024-06"

Invariant: an unknown field, a wrong type or a value without meaning is an InputError; what is accepted is honoured.

Does not know: how the numbers are used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from draftproof.errors import InputError
from draftproof.rollout.policy_file import read_yaml

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """Thresholds of one bucket.

    enabled: False keeps the bucket plain whatever else happens; it can't be started or promoted.
    auto_start: a bucket that is seen for the first time goes to shadow by itself; else it waits for `start`.
    shadow_share, canary_share, wide_shares: share of the request keys that is shadowed in stage shadow, and that
        speculates in stages canary and wide (one step for each, ascending).
    holdout: share of keys that stays plain in stage full, so that the price can still be measured. 0: the price of the
        full stage is not watched.
    min_requests: requests that a stage needs before it can be left upwards, of each kind that it compares.
    min_seconds: time that a stage needs before it can be left upwards.
    floor: acceptance (accepted / tested) below which speculation is taken back. A gate needs the interval above it.
    hysteresis: a bucket that was taken back needs its interval above floor + hysteresis to come back.
    max_itl_ratio: highest allowed ratio of inter-token latencies, speculating to plain. A gate needs the interval below
        it, and speculation is taken back when the interval is above it.
    max_error_rate: highest allowed share of failed requests among speculating ones, whatever the plain ones do: an
    outage
        that hits both takes speculation back, too, to be on the safe side. Failing more often than the plain requests
        of the same time is watched as well, and needs no limit.
    confidence: of the intervals that gates look at; they hold at every look at once, not only at one.
    false_alarm_rate: chance for each request that speculation is taken back, or an alarm raised, without cause, all
        watches of the bucket together: within n requests at most n times this.
    drift: change of acceptance from its baseline that is worth an alarm. baseline_requests: requests of a baseline.
    backoff_seconds, backoff_factor, max_backoff_seconds: wait before a bucket that was taken back is probed; each
        further setback multiplies it. A bucket that stays in stage full for its last wait begins anew.
    probe_share: share of keys that is shadowed while a bucket is probed. probe_requests: most requests of one probe.
    full_weight_tokens: a request counts by its tested tokens, up to this many: no long request decides alone.
    block_seconds, block_requests: latencies are compared within blocks of at least this time and this many requests of
        each kind, so that both kinds saw the same load.
    review_seconds: evidence for gates begins anew after this time, or once it is several times what they need, if that
        is later.
    """

    enabled: bool = True
    auto_start: bool = True
    shadow_share: float = 0.2
    canary_share: float = 0.05
    wide_shares: tuple[float, ...] = (0.25, 0.5)
    holdout: float = 0.05
    min_requests: int = 200
    min_seconds: float = 600.0
    floor: float = 0.4
    hysteresis: float = 0.1
    max_itl_ratio: float = 1.0
    max_error_rate: float = 0.05
    confidence: float = 0.95
    false_alarm_rate: float = 1e-6
    drift: float = 0.15
    baseline_requests: int = 200
    backoff_seconds: float = 600.0
    backoff_factor: float = 2.0
    max_backoff_seconds: float = 86400.0
    probe_share: float = 0.1
    probe_requests: int = 400
    full_weight_tokens: int = 16
    block_seconds: float = 30.0
    block_requests: int = 4
    review_seconds: float = 86400.0

    def __post_init__(self) -> None:
        for name, holds, must in _checks(self):
            if not holds:
                raise InputError(f"rollout policy: {name} must be {must}, got {getattr(self, name)!r}")


def _checks(policy: BucketPolicy) -> Iterator[tuple[str, bool, str]]:
    p = policy
    for name, value in dataclasses.asdict(p).items():
        if isinstance(value, float):
            yield name, math.isfinite(value), "a finite number"
    steps = (p.canary_share, *p.wide_shares, 1 - p.holdout)
    rises = all(low < high for low, high in pairwise(steps))
    yield "canary_share", 0 < p.canary_share < 1, "above 0 and below 1"
    yield "wide_shares", rises, "ascending, above canary_share and below 1 - holdout"
    yield "holdout", 0 <= p.holdout <= 0.5, "in 0..0.5"
    for name in ("shadow_share", "probe_share"):
        yield name, 0 < getattr(p, name) <= 1, "above 0 and at most 1"
    for name, least in (("min_requests", 20), ("baseline_requests", 20), ("probe_requests", 20)):
        yield name, getattr(p, name) >= least, f"at least {least}: fewer give no interval to rely on"
    for name in ("full_weight_tokens", "block_requests"):
        yield name, getattr(p, name) >= 1, "at least 1"
    for name in ("min_seconds", "block_seconds"):
        yield name, getattr(p, name) >= 0, "at least 0"
    for name in ("backoff_seconds", "review_seconds"):
        yield name, getattr(p, name) > 0, "above 0"
    yield "floor", 0 < p.floor < 1, "above 0 and below 1"
    yield "hysteresis", 0 < p.hysteresis < 1 - p.floor, "above 0 and below 1 - floor"
    yield "max_itl_ratio", 0 < p.max_itl_ratio <= 2, "above 0 and at most 2"
    yield "max_error_rate", 0 < p.max_error_rate < 1, "above 0 and below 1"
    yield "confidence", 0.5 <= p.confidence < 1, "at least 0.5 and below 1"
    yield "false_alarm_rate", 0 < p.false_alarm_rate <= 0.01, "above 0 and at most 0.01"
    yield "drift", 0 < p.drift < 1, "above 0 and below 1"
    yield "backoff_factor", p.backoff_factor >= 1, "at least 1"
    yield "max_backoff_seconds", p.max_backoff_seconds >= p.backoff_seconds, "at least backoff_seconds"


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """The whole policy.

    default: of every bucket without an own entry. buckets: by name; such a bucket always has its place. max_buckets:
    most other buckets that are told apart; requests of further ones count as "other". salt: changes which keys
    speculate first, and which are held out.
    """

    default: BucketPolicy = BucketPolicy()
    buckets: Mapping[str, BucketPolicy] = field(default_factory=dict)
    max_buckets: int = 64
    salt: str = ""

    def __post_init__(self) -> None:
        if self.max_buckets < 1:
            raise InputError(f"rollout policy: max_buckets must be at least 1, got {self.max_buckets}")
        for name in self.buckets:
            check_name(name)

    def of(self, bucket: str) -> BucketPolicy:
        """The thresholds of a bucket."""
        return self.buckets.get(bucket, self.default)

    def to_json(self) -> dict[str, Any]:
        """As in a policy file; buckets hold all their fields."""
        buckets = {name: plain(policy) for name, policy in self.buckets.items()}
        return {**plain(self.default), "buckets": buckets, "max_buckets": self.max_buckets, "salt": self.salt}

    @classmethod
    def from_json(cls, value: object) -> RolloutPolicy:
        """Raises InputError, naming the field."""
        top = dict(_object(value, "the policy"))
        others = {
            "max_buckets": _typed("max_buckets", top.pop("max_buckets", 64), 64),
            "salt": _typed("salt", top.pop("salt", ""), ""),
        }
        buckets = _object(top.pop("buckets", {}), "buckets")
        default = _bucket(top, BucketPolicy(), "")
        own = {name: _own(name, fields, default) for name, fields in buckets.items()}
        return cls(default, own, **others)

    @classmethod
    def load(cls, path: Path) -> RolloutPolicy:
        """From a YAML file. Raises InputError."""
        value = read_yaml(path)
        try:
            return cls.from_json({} if value is None else value)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def check_name(bucket: str) -> None:
    """Raises InputError for what can't be the name of a bucket."""
    if not (isinstance(bucket, str) and 1 <= len(bucket) <= _LONGEST_NAME and bucket.isprintable()) or bucket == "*":
        raise InputError(
            f"a bucket's name has 1 to {_LONGEST_NAME} printable characters and is not '*', got {bucket!r}"
        )


def plain(policy: BucketPolicy) -> dict[str, Any]:
    """The fields as in a policy file."""
    values = dataclasses.asdict(policy)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InputError(f"rollout policy: {what} must be an object of named fields, got {value!r}")
    return value


def _own(name: str, fields: object, default: BucketPolicy) -> BucketPolicy:
    where = f"buckets.{name}"
    return _bucket(_object(fields, where), default, f"{where}.")


def _bucket(fields: Mapping[str, Any], base: BucketPolicy, where: str) -> BucketPolicy:
    known = {own.name: getattr(base, own.name) for own in dataclasses.fields(BucketPolicy)}
    for name in fields:
        if name not in known:
            raise InputError(f"rollout policy: unknown field {where}{name}; there are {', '.join(known)}")
    own = {name: _typed(f"{where}{name}", value, known[name]) for name, value in fields.items()}
    try:
        return dataclasses.replace(base, **own)
    except InputError as error:
        raise InputError(f"{error} (in {where.rstrip('.')})" if where else str(error)) from None


def _typed(name: str, value: object, like: object) -> Any:
    """The value, if it has the type of `like`; an integer is a number, too."""
    if isinstance(like, tuple):
        if isinstance(value, list):
            return tuple(_typed(name, item, 0.0) for item in value)
        raise InputError(f"rollout policy: {name} must be a list of numbers, got {value!r}")
    if isinstance(like, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(like):
        kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise InputError(f"rollout policy: {name} must be {kinds[type(like)]}, got {value!r}")
    return value

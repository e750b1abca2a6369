"""What differs between the policy that a state was made under and the one that it goes on with.

Does not know: what follows from a difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from draftproof.errors import InputError
from draftproof.rollout.policy import BucketPolicy, RolloutPolicy, plain
from draftproof.rollout.traffic import EVERYWHERE


def changes(old: dict[str, Any] | None, new: RolloutPolicy, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Bucket -> field -> [before, now], for these buckets and "*"; empty where nothing changed, or there was no policy.

    A policy that another version of draftproof wrote, and this one can't read, counts as changed for every bucket.
    """
    if old is None or old == new.to_json():
        return {}
    try:
        before = RolloutPolicy.from_json(old)
    except InputError as error:
        return {name: {"policy": [f"not readable: {error}", "read anew"]} for name in names}
    found = {name: _differences(before.of(name), new.of(name)) for name in names}
    both = {name: [getattr(before, name), getattr(new, name)] for name in ("max_buckets", "salt")}
    found[EVERYWHERE] = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    return {name: changed for name, changed in found.items() if changed}


def _differences(before: BucketPolicy, now: BucketPolicy) -> dict[str, Any]:
    old, new = plain(before), plain(now)
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}

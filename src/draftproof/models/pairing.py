"""Do a target and a drafter speak the same language? Checked before anything runs; a mismatch names the difference.

Compared: each token's string and id (a model that pads its vocabulary has more rows than strings: that is fine), and
the end-of-sequence ids.

Does not know: models, weights, drafters.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from draftproof.errors import PairingError


def check_pairing(
    target: Mapping[str, int], drafter: Mapping[str, int], target_eos: Set[int], drafter_eos: Set[int]
) -> None:
    """Raises PairingError unless both vocabularies give the same strings the same ids. O(V)."""
    for token, number in drafter.items():
        other = target.get(token)
        if other is None:
            raise PairingError(
                f"the drafter's token {token!r} (id {number}) is not in the target's vocabulary of {len(target)}: "
                "target and drafter need the same tokenizer"
            )
        if other != number:
            raise PairingError(
                f"token {token!r} is id {number} for the drafter and id {other} for the target: "
                "target and drafter need the same tokenizer"
            )
    if target_eos and drafter_eos and not target_eos & drafter_eos:
        raise PairingError(
            f"the end-of-sequence ids differ: target {sorted(target_eos)}, drafter {sorted(drafter_eos)}; "
            "target and drafter need the same tokenizer"
        )

"""All watches of a bucket that speculates (or is shadowed), with one budget of false alarms.

    floor   acceptance lies below the floor                                  a bet a request
    fell    acceptance lies more than `drift` below its baseline             a bet a request
    rose    ... above it                                                     a bet a request
    errors  more speculating requests fail than allowed                      a bet a request
    odds    more of them fail than of the plain requests of the same time    a bet a block
    price   they wait longer for a token than the plain ones                 a bet a block

Each has the threshold c = 6 / false_alarm_rate, so within n requests it gives a false alarm with chance at most n / c
(`cusum`), and all six together with at most n * false_alarm_rate.

Does not know: stages, what follows from a finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from draftproof.rollout.acceptance import DriftWatch, MeanWatch
from draftproof.rollout.compare import Block, Comparison, pair_of
from draftproof.rollout.failures import ErrorWatch, OddsWatch
from draftproof.rollout.limits import Finding, Limits
from draftproof.rollout.price import PriceWatch
from draftproof.rollout.traffic import Sample


@dataclass(slots=True)
class Watch:
    """The watches, and the block that is being filled."""

    floor: MeanWatch
    drift: DriftWatch = field(default_factory=DriftWatch)
    errors: ErrorWatch = field(default_factory=ErrorWatch)
    odds: OddsWatch = field(default_factory=OddsWatch)
    price: PriceWatch = field(default_factory=PriceWatch)
    block: Block = field(default_factory=Block)

    @classmethod
    def new(cls, limits: Limits) -> Watch:
        """One that has seen nothing."""
        return cls(MeanWatch(limits.policy.floor))

    def treated(self, sample: Sample, limits: Limits) -> Finding | None:
        """A request that speculated, or that was shadowed."""
        found = self.errors.observe(sample.error, limits)
        if found is not None or not sample.tested:
            return found
        numbers = self.floor.observe(sample.accepted, sample.tested, limits)
        if numbers is not None:
            mean = numbers["acceptance"]["mean"]
            return Finding("floor", f"acceptance {mean:.3f} is below the floor {limits.policy.floor:g}", numbers)
        return self.drift.observe(sample.accepted, sample.tested, limits) if sample.mode == "on" else None

    def compared(self, sample: Sample, limits: Limits, into: Comparison) -> Finding | None:
        """A request of a stage that compares; a block that becomes full is added to `into`."""
        block = self.block
        if block.begin is None:
            block.begin = sample.time
        (block.on if sample.mode == "on" else block.off).add(sample.itl_s, sample.tokens, sample.error)
        if not block.is_full(sample.time, limits.policy.block_seconds, limits.policy.block_requests):
            return None
        self.block = Block()
        pair = pair_of(block)
        found = self.odds.observe(block, limits)
        if pair is not None:
            into.add(block, pair)
            found = self.price.observe(block, pair, limits) or found
        return found

"""/metrics: the tally and the engine's state in Prometheus' text format, under vLLM's names where vLLM has them.

`vllm:spec_decode_*` count emitted drafts only, never those in shadow. Everything else is called `draftproof_*`.

Does not know: how anything is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from draftproof.serve.tally import Spread, Tally

Gauges = Callable[[], Mapping[str, float]]  # name without prefix -> value
Stages = Callable[[], Mapping[str, tuple[str, float]]]  # bucket -> (stage, share that speculates)

_GAUGES = {
    "texts_running": "Texts in the running batch",
    "texts_waiting": "Texts in line",
    "kv_pages_free": "Pages of keys and values that are free",
    "kv_pages": "Pages of keys and values in all",
    "ready": "1 while requests are taken",
}


class Exposition:
    """Renders; a registry of its own, so that several servers in one process do not mix."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, tally: Tally, model: str, gauges: Gauges, stages: Stages) -> None:
        self._tally, self._model, self._gauges, self._stages = tally, model, gauges, stages
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """What a scrape gets."""
        return bytes(generate_latest(self._registry))

    def collect(self) -> Iterator[Metric]:
        """All families (called by the registry)."""
        with self._tally.lock:
            families = [*self._speculation(), *self._times(), *self._counts(), *self._buckets()]
        yield from families
        yield from self._state()

    def _speculation(self) -> Iterator[Metric]:
        tally = self._tally
        for name, value, text in (
            ("num_drafts", tally.num_drafts, "Rounds with drafts"),
            ("num_draft_tokens", tally.num_draft_tokens, "Draft tokens sent to the target"),
            ("num_accepted_tokens", tally.num_accepted_tokens, "Draft tokens accepted"),
        ):
            yield _counter(f"vllm:spec_decode_{name}", text, ("model_name",), [((self._model,), value)])
        positions = [((self._model, str(at)), count) for at, count in sorted(tally.accepted_at.items())]
        labels = ("model_name", "position")
        yield _counter("vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted, by position", labels, positions)

    def _times(self) -> Iterator[Metric]:
        tally = self._tally
        yield _histogram("inter_token_latency_seconds", "Time between tokens of a text", "mode", tally.gaps)
        yield _histogram("time_to_first_token_seconds", "From the request to its first token", "mode", tally.firsts)
        yield _histogram("request_seconds", "From a request to its last token", None, {"": tally.ends})

    def _counts(self) -> Iterator[Metric]:
        tally = self._tally
        generated = [((mode,), count) for mode, count in tally.generated.items()]
        yield _counter("draftproof_generated_tokens", "Tokens emitted", ("mode",), generated)
        yield _counter("draftproof_prompt_tokens", "Tokens of answered prompts", (), [((), tally.prompt_tokens)])
        yield _counter("draftproof_texts", "Texts ended", ("mode", "finish_reason"), tally.texts.items())
        responses = [((route, str(status)), count) for (route, status), count in tally.responses.items()]
        yield _counter("draftproof_responses", "HTTP responses", ("route", "status"), responses)
        yield _counter("draftproof_step_failures", "Steps of the engine that raised", (), [((), tally.step_failures)])
        failures = [((label,), count) for label, count in tally.drafter_failures.items()]
        yield _counter("draftproof_drafter_failures", "Drafters that raised", ("drafter",), failures)
        yield _counter(
            "draftproof_decisions", "Decisions of the rollout", ("bucket", "action"), tally.decisions.items()
        )

    def _buckets(self) -> Iterator[Metric]:
        tally, labels = self._tally, ("bucket", "mode")
        for name, counts in (("drafted", tally.drafted), ("tested", tally.tested), ("accepted", tally.accepted)):
            yield _counter(f"draftproof_{name}_tokens", f"Draft tokens {name}, by bucket", labels, counts.items())
        rate = GaugeMetricFamily("draftproof_acceptance", "Accepted / tested since the start", labels=labels)
        for place, tested in tally.tested.items():
            if tested:
                rate.add_metric(place, tally.accepted[place] / tested)
        yield rate

    def _state(self) -> Iterator[Metric]:
        values = self._gauges()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"draftproof_{name}", text, value=values[name])
        share = GaugeMetricFamily(
            "draftproof_rollout_share", "Share of a bucket's keys that speculates", labels=("bucket", "stage")
        )
        for bucket, (stage, value) in self._stages().items():
            share.add_metric((bucket, stage), value)
        yield share


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for place, value in values:
        family.add_metric(place, value)
    return family


def _histogram(name: str, text: str, label: str | None, spreads: Mapping[str, Spread]) -> HistogramMetricFamily:
    family: Any = HistogramMetricFamily(f"draftproof_{name}", text, labels=(label,) if label else ())
    for value, spread in spreads.items():
        below, buckets = 0, []
        for bound, count in zip((*map(str, spread.bounds), "+Inf"), spread.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric((value,) if label else (), buckets, spread.total)
    return family

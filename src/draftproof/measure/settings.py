"""What a measurement is asked for, checked before anything is read or loaded.

Does not know: how it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from draftproof import __version__
from draftproof.engine.options import HEAD_DRAFTERS, EngineOptions, for_each
from draftproof.errors import InvalidParams
from draftproof.measure.provenance import versions
from draftproof.measure.specs import DrafterSpec
from draftproof.models.cache import Cache
from draftproof.models.eagle_config import head_files
from draftproof.models.head_source import find_head
from draftproof.models.source import resolve
from draftproof.types import SamplingParams

DEFAULT_GAMMA = 8
DEFAULT_BATCH = 8
_ENGINE = ("weights", "draft_weights", "backend", "numerics", "kv_memory", "threads", "cache_dir")
_FLAGS = {"stop_ids": "stop-id", "bad_words": "bad-word"}  # options that are given once for each value


@dataclass(frozen=True, slots=True)
class Settings:
    """A measurement.

    sampling: with a seed; its max_new_tokens is not looked at, see below. gamma: the longest draft, 1..64.
    max_new_tokens: most tokens of a completion; None is 128 where texts are written, and all of a logged one.
    limit: most prompts. bucket_field: the field of a line that names its bucket. chat: True wraps plain prompts into
    the model's chat template, None does so where it has one. log: score the completions of the data (True), write new
    ones (False), or whichever the data is for (None). strict: the first bad line ends the run. batch: prompts run at
    once, which are also those of a part on the disk. engine: weights, backend, numerics, kv_memory, threads, cache_dir
    as of `LLM`, and draft_weights for the drafters that have a second model.
    """

    model: str
    drafters: tuple[DrafterSpec, ...]
    data: Path
    out: Path
    sampling: SamplingParams
    max_new_tokens: int | None = None
    gamma: int = DEFAULT_GAMMA
    limit: int | None = None
    bucket_field: str | None = None
    log: bool | None = None
    chat: bool | None = None
    strict: bool = False
    batch: int = DEFAULT_BATCH
    engine: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks = [
            ("gamma", 1 <= self.gamma <= 64, "in 1..64: it is the longest draft"),
            ("batch", 1 <= self.batch <= 64, "in 1..64"),
            ("limit", self.limit is None or self.limit >= 1, "at least 1"),
            ("max_new_tokens", self.max_new_tokens is None or self.max_new_tokens >= 1, "at least 1"),
            ("bucket_field", self.bucket_field != "", "the name of a field"),
        ]
        for name, holds, must in checks:
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {getattr(self, name)!r}")
        if self.sampling.logprobs is not None:
            raise InvalidParams("logprobs are not part of a measurement: drop --logprobs")
        if self.sampling.resolved_rule == "block":
            raise InvalidParams(
                "rule block judges a chain as a whole, and a measurement counts token by token: measure with --rule "
                "reject, which accepts as much or a little less"
            )
        if self.sampling.seed is None:
            raise InvalidParams("a measurement needs a seed, so that the same command gives the same rows")
        unknown = sorted(set(self.engine) - set(_ENGINE))
        if unknown:
            raise InvalidParams(f"a measurement has no engine option {unknown[0]!r}; it has {', '.join(_ENGINE)}")
        self.engine_options()

    def engine_options(self) -> list[EngineOptions]:
        """One for each drafter."""
        engine = for_each([spec.kind for spec in self.drafters], self.engine)
        return [
            EngineOptions(
                model=self.model,
                drafter=spec.kind,
                draft_model=spec.model,
                exit_layer=spec.exit_layer,
                gamma=self.gamma,
                max_sequences=self.batch,
                enable_prefix_caching=False,  # a prompt is read once for each drafter, and each reading is timed
                **own,
            )
            for spec, own in zip(self.drafters, engine, strict=True)
        ]

    def sampling_json(self) -> dict[str, Any]:
        """The sampling parameters as they are in force, JSON-ready; the rule is the one that "auto" stands for."""
        values = asdict(self.sampling)
        for name in ("max_new_tokens", "logprobs", "logprobs_mode", "max_draft_tokens"):
            del values[name]
        values["logit_bias"] = {str(token): value for token, value in self.sampling.logit_bias.items()}
        return {**values, "rule": self.sampling.resolved_rule}

    def asked(self, data_sha256: str) -> dict[str, Any]:
        """Everything that results depend on, by the names of the command line, JSON-ready: to tell runs apart."""
        cache = Cache(self.engine.get("cache_dir"))

        def content(model: str) -> str:
            return cache.content_hash(resolve(model).files)

        def own(spec: DrafterSpec) -> str | None:
            if spec.kind in HEAD_DRAFTERS:  # the one that ships has a content, too: another release, another run
                return cache.content_hash(head_files(find_head(spec.kind, spec.model, resolve(self.model).name)))
            return None if spec.model is None else content(spec.model)

        drafters = [{**asdict(spec), "model": own(spec)} for spec in self.drafters]
        options = {"gamma": self.gamma, "limit": self.limit, "bucket-field": self.bucket_field, "log": self.log}
        options |= {"chat": self.chat, "batch": self.batch, "max-new-tokens": self.max_new_tokens}
        options |= {name.replace("_", "-"): self.engine.get(name) for name in _ENGINE if name != "cache_dir"}
        sampling = {_FLAGS.get(name, name.replace("_", "-")): value for name, value in self.sampling_json().items()}
        return {
            "draftproof": __version__,
            "the data": data_sha256,
            "the model": content(self.model),
            "--drafter": drafters,
            **{f"--{name}": value for name, value in {**options, **sampling}.items()},
            **{f"the version of {name}": version for name, version in versions().items() if name != "pyarrow"},
        }

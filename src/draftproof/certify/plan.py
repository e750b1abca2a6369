"""What is to be certified, and how hard: checked on construction, JSON-ready, so that it can be run again.

Does not know: subjects, tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from draftproof.certify.types import Job
from draftproof.errors import InvalidParams, InvalidPrompt
from draftproof.params import SamplingParams

STAGES = ("oracle", "invariance", "identity", "fit", "joint", "features")
_JOINT_SHARE = 0.3  # of the tokens
JOINT_DEPTH = 4
_JOINT_CONTEXTS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """params: of every text; its seed, its length and its number of log-probabilities are set by the tests.

    prompts: token ids; at least one. stop_ids: the model's own end ids and those of params. tokens: sampled by `fit`
    and `joint` together (`identity` at temperature 0). text_tokens: of one text. batch: texts of one call. alpha:
    chance of any false alarm in the certificate. max_tv: "lossless" asks that an error of this size would have been
    found, and one of twice this at places where a draft stood. tests: stages that are run.
    """

    prompts: tuple[tuple[int, ...], ...]
    params: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0.8))
    stop_ids: frozenset[int] = frozenset()
    tokens: int = 20_000
    text_tokens: int = 64
    batch: int = 16
    alpha: float = 1e-3
    max_tv: float = 0.05
    seed: int = 0
    tests: tuple[str, ...] = STAGES

    def __post_init__(self) -> None:
        if not self.prompts or not all(self.prompts):
            raise InvalidPrompt("certify needs at least one prompt, and none of them empty")
        unknown = [name for name in self.tests if name not in STAGES]
        checks = [
            ("tokens", self.tokens >= 1, "an integer >= 1"),
            ("text_tokens", self.text_tokens >= 1, "an integer >= 1"),
            ("batch", self.batch >= 1, "an integer >= 1"),
            ("alpha", 0 < self.alpha < 1, "within (0, 1)"),
            ("max_tv", 0 < self.max_tv < 1, "within (0, 1)"),
            ("seed", 0 <= self.seed < 1 << 16, "an integer in [0, 65536)"),
            ("tests", bool(self.tests) and not unknown, f"some of {', '.join(STAGES)}"),
        ]
        for name, holds, must in checks:
            if not holds:
                raise InvalidParams(f"{name} must be {must}, got {getattr(self, name)!r}")

    @property
    def greedy(self) -> bool:
        """True at temperature 0, where there is no law to sample."""
        return self.params.temperature == 0

    @property
    def fit_tokens(self) -> int:
        """Tokens of the conditional fit."""
        return self.tokens - self.joint_texts * len(self.joint_prompts) * JOINT_DEPTH

    @property
    def joint_prompts(self) -> tuple[tuple[int, ...], ...]:
        """Contexts that are sampled again and again."""
        return self.prompts[:_JOINT_CONTEXTS] if "joint" in self.tests else ()

    @property
    def joint_texts(self) -> int:
        """Texts a context."""
        contexts = len(self.joint_prompts)
        return int(_JOINT_SHARE * self.tokens / (contexts * JOINT_DEPTH)) if contexts else 0

    def job(self, stage: int, number: int, prompt: tuple[int, ...], **changes: Any) -> Job:
        """A text; no two (stage, number) of a plan share a seed. changes: of the parameters."""
        seed = (self.seed << 40) + (stage << 32) + number
        params = replace(self.params, **{"seed": seed, "logprobs": None, **changes})
        stops = self.stop_ids | frozenset(params.stop_ids)
        return Job((stage << 32) + number, prompt, params, stops)

    def as_json(self) -> dict[str, Any]:
        """JSON-ready; `from_json` is its inverse."""
        value = asdict(self)
        value["params"]["logit_bias"] = [[k, v] for k, v in self.params.logit_bias.items()]
        return {**value, "stop_ids": sorted(self.stop_ids)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """The plan that `as_json` was taken of. Raises InvalidParams for anything else."""
        try:
            params = dict(value["params"])
            params["logit_bias"] = {int(k): float(v) for k, v in params["logit_bias"]}
            params["bad_words"] = tuple(w if isinstance(w, str) else tuple(w) for w in params["bad_words"])
            params |= {name: tuple(params[name]) for name in ("stop_ids", "stop")}
            fields = {**value, "params": SamplingParams(**params), "stop_ids": frozenset(value["stop_ids"])}
            fields["prompts"] = tuple(tuple(prompt) for prompt in value["prompts"])
            fields["tests"] = tuple(value["tests"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidParams(f"this is no plan of a certificate: {error}") from error

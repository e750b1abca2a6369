"""What `draftproof cost` is asked for, from options or from a measured run; and the file that comes of it.

Does not know: how times are taken, how progress is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from draftproof.engine.build import build_each
from draftproof.engine.options import HEAD_DRAFTERS, MODEL_DRAFTERS, EngineOptions, for_each
from draftproof.errors import InputError, InvalidParams
from draftproof.measure.cost import Grid, Subject, measure_costs, num_stages
from draftproof.measure.describe import describe_target
from draftproof.measure.files import write_whole
from draftproof.measure.provenance import provenance
from draftproof.measure.read import read_info
from draftproof.measure.specs import DrafterSpec
from draftproof.types import SamplingParams

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", *("repetition_penalty", "presence_penalty", "frequency_penalty"))
_ENDLESS = 1 << 20  # tokens a sequence may write: it is ended by hand


@dataclass(frozen=True, slots=True)
class CostSettings:
    """What is measured. engine: (draft_)weights, backend, numerics, kv_memory, threads, cache_dir as of `LLM`."""

    model: str
    drafters: tuple[DrafterSpec, ...]
    sampling: SamplingParams
    text: str
    grid: Grid = field(default_factory=Grid)
    engine: Mapping[str, Any] = field(default_factory=dict)

    def engine_options(self) -> list[EngineOptions]:
        """One for each drafter; one without a drafter where there are none."""
        shared = {"model": self.model, "gamma": 0, "max_sequences": max(self.grid.sequences), **self.engine}
        each = for_each([spec.kind for spec in self.drafters] or ["none"], shared)
        return [
            EngineOptions(drafter=spec.kind, draft_model=spec.model, exit_layer=spec.exit_layer, **own)
            for spec, own in zip(self.drafters, each, strict=False)
        ] or [EngineOptions(**each[0])]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was measured with, so that its costs are those of the same things."""

    model: str
    drafters: tuple[DrafterSpec, ...]
    sampling: dict[str, Any]
    engine: dict[str, Any]
    gamma: int


def of_run(folder: Path) -> Asked:
    """From RUN/run.json. Raises InputError where that is no run, or says too little."""
    info = read_info(folder)
    try:
        drafters = tuple(_spec(entry) for entry in info["drafters"])
        names = {one.name for one in fields(SamplingParams)} - {"stop", "stop_ids", "bad_words", "seed"}
        sampling = {name: value for name, value in info["sampling"].items() if name in names}
        sampling["logit_bias"] = {int(token): value for token, value in sampling.get("logit_bias", {}).items()}
        engine = {name: info["model"][name] for name in ("weights", "backend", "numerics")}
        second = [entry.get("model") or {} for entry in info["drafters"] if entry["kind"] in MODEL_DRAFTERS]
        engine["draft_weights"] = second[0].get("weights", "auto") if second else "auto"
        return Asked(str(info["model"]["name"]), drafters, sampling, engine, int(info["gamma_max"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{folder}/run.json lacks what it was measured with ({error}): give --model instead"
        ) from error


def _spec(entry: Mapping[str, Any]) -> DrafterSpec:
    kind, model = str(entry["kind"]), entry.get("model")
    if kind == "model":
        return DrafterSpec(str(entry["name"]), kind, model=str(model["name"]) if model else None)
    if kind in HEAD_DRAFTERS:
        return DrafterSpec(str(entry["name"]), kind, model=model["path"] if model else None)
    return DrafterSpec(str(entry["name"]), kind, exit_layer=model["num_layers"] if model else None)


def measure_cost_file(
    settings: CostSettings,
    command: Sequence[str],
    stage: Callable[[str], None],
    begin: Callable[[int], Callable[[str], None]],
) -> dict[str, Any]:
    """The whole cost file. stage: takes a line at each stage of loading; begin(n): what takes the n lines that follow.

    Raises InputError for what can't be built, or a text or memory that is too small.
    """
    built = build_each(settings.engine_options(), stage)
    labels = [spec.label for spec in settings.drafters] or ["none"]
    first = built[0]
    text = np.array(first.tokenizer.encode(settings.text), np.int32)
    if len(text) < 2:
        raise InvalidParams("the text is too short to measure on: give one of some hundred words")
    _check_room(settings.grid, first.engine.target.max_len, first.info["kv_tokens"])
    params = _params(settings.sampling)
    subject = Subject(dict(zip(labels, built, strict=True)), text, params)
    report = begin(num_stages(settings.grid, len(settings.drafters)))
    found = measure_costs(subject, settings.grid, report, tuple(spec.label for spec in settings.drafters))
    return {
        **provenance(list(command)),
        "model": describe_target(first),
        "sampling": {**{name: getattr(params, name) for name in _SAMPLING}, "rule": params.resolved_rule},
        **found,
    }


def _params(sampling: SamplingParams) -> SamplingParams:
    return replace(sampling, max_new_tokens=_ENDLESS, min_new_tokens=0, ignore_eos=True, seed=sampling.seed or 0)


def _check_room(grid: Grid, max_len: int, kv_tokens: int) -> None:
    context, longest = max(grid.contexts), max(grid.rows[-1] - 1, grid.tokens[-1])
    if context + grid.slack > max_len:
        raise InvalidParams(
            f"a sequence of {context} tokens (--contexts) grows by up to {grid.slack} while drafts of up to {longest} "
            f"(--rows, --tokens) are measured, and the model's limit is {max_len}: give {_mended(grid, max_len)}"
        )
    most = max(load * (context + grid.slack) for context in grid.contexts for load in grid.loads(context))
    if most > kv_tokens:
        raise InvalidParams(
            f"{most} tokens at once do not fit the memory of keys and values, which holds {kv_tokens} (each sequence "
            f"grows by up to {grid.slack} while drafts of up to {longest} are measured): give a larger --kv-memory, "
            "fewer --sequences, or lower --contexts, --rows or --tokens"
        )


def _mended(grid: Grid, max_len: int) -> str:
    """The options that mend it alone, and how far each must be lowered."""
    room = max_len - max(grid.contexts)
    largest = {"contexts": max_len - grid.slack, **{name: grid.longest(name, room) for name in ("rows", "tokens")}}
    ways = [f"--{name} up to {most}" for name, most in largest.items() if most > 0]
    return ", or ".join(ways) or "fewer and lower numbers to --contexts, --rows and --tokens"


def write_cost(path: Path, cost: Mapping[str, Any]) -> None:
    """Atomically. Raises InputError where that is impossible."""
    write_whole(path, json.dumps(cost, indent=1, allow_nan=False).encode() + b"\n")

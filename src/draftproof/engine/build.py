"""Options -> an engine ready to run: model, drafter, pages, scheduler, put together and checked.

Checked here, before the first request: the drafter's vocabulary against the target's, and the declared numerics on
this machine (the quick self-check; its success is remembered for this model, machine and version).

Does not know: prompts, texts, requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.drafters import DRAFTERS, make
from draftproof.engine.bounds import limits_of, name_of, prefix_caching
from draftproof.engine.cost_file import read_cost
from draftproof.engine.draft_model import DraftModel
from draftproof.engine.heads import Heads
from draftproof.engine.lengths import draft_policy, relative_cost
from draftproof.engine.machine import has_cuda, last_level_cache
from draftproof.engine.options import HEAD_DRAFTERS, EngineOptions
from draftproof.engine.placement import num_lanes, settle
from draftproof.engine.step import Engine
from draftproof.errors import PairingError
from draftproof.kv.ledger import PageLedger
from draftproof.models import folder as folders
from draftproof.models import huge_pages
from draftproof.models.cache import Cache
from draftproof.models.load import Loader, resolve_weights
from draftproof.models.pairing import check_pairing
from draftproof.models.source import ModelSource, resolve
from draftproof.models.support import context_limit
from draftproof.noise import PhiloxNoise
from draftproof.protocols import Drafter, Target
from draftproof.sched.limits import Limits
from draftproof.sched.policy import DraftPolicy
from draftproof.sched.scheduler import BatchScheduler
from draftproof.text.tokenizer import Tokenizer
from draftproof.types import Numerics

DEFAULT_KV_BYTES = 1 << 30
_SCRATCH_PAGES = 64  # for the branches of trees under invariant numerics
OF_ONE_START = ("load_s", "huge_page_bytes")  # of an engine's info: what differs between two that are alike
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    """A running engine with its tokenizer and what it was made of."""

    engine: Engine
    tokenizer: Tokenizer
    ledger: PageLedger
    info: dict[str, Any]
    folder: Path | None = None  # the target's files as it was loaded: configuration, tokenizer, graph
    draft: DraftModel | None = None
    limits: Limits | None = None  # with `policy`: what the engine's scheduler was made of
    policy: DraftPolicy | None = None


class _Builder:
    def __init__(self, options: EngineOptions, report: Report) -> None:
        self.options = options
        self.report = report
        self.loader = Loader(Cache(options.cache_dir), report)
        self.source = resolve(options.model)
        self.curve = None if options.cost_file is None else read_cost(Path(options.cost_file))
        theirs = None if self.curve is None else (self.curve.model or {}).get("name")
        if theirs not in (None, self.source.name):
            report(f"draft lengths go by the costs of {theirs} in {options.cost_file}, not of {self.source.name}")
        self.backend = options.backend
        if self.backend == "auto":
            self.backend = "torch" if has_cuda() else "openvino"
        self._module: Any = None  # the target's own, on the torch backend
        self.draft_numerics = "fast"  # drafts are judged, not trusted: their last bit is free
        self.draft: DraftModel | None = None  # of the drafter made last
        self.draft_cost = 0.0  # of one draft token, in plain decoding steps
        self.weights = resolve_weights(options.weights, self.source, self.backend)
        self.features: tuple[int, ...] = ()  # depths of the target whose states are asked for

    def look_ahead(self, options: Sequence[EngineOptions]) -> None:
        """Before the target is loaded: what its drafters will want of it. Raises InputError for a head that misfits."""
        for each in options:
            self._draft_weights(each)
        heads = [self._heads().find(each) for each in options if each.drafter in HEAD_DRAFTERS]
        if len({head.config.feature_layers for head in heads}) > 1:
            raise PairingError("draft heads in one engine must read the same layers of the target: use one of them")
        if heads:
            self.features = heads[0].config.feature_layers

    def _heads(self) -> Heads:
        kv_bytes = (self.options.kv_memory or DEFAULT_KV_BYTES) // 8
        return Heads(self.loader, self.source, self.weights, kv_bytes, self.report, self.curve, self._module)

    # -- one model as a target -----------------------------------------------------------------------------------------

    def target(self, source: ModelSource, num_layers: int | None, role: str) -> tuple[Target, Path]:
        """A target and the folder its tokenizer lies in. role: "target" or "drafter" (less memory, its own weights)."""
        kv_bytes = self.options.kv_memory or DEFAULT_KV_BYTES
        numerics, weights = self.options.numerics, self.weights
        if role == "drafter":
            kv_bytes, numerics, weights = kv_bytes // 2, self.draft_numerics, self._draft_weights(self.options)
        features = self.features if role == "target" else ()
        if self.backend == "torch":
            return self._torch_target(source, num_layers, kv_bytes, numerics, weights, features)
        from draftproof.models.openvino import OpenVINOTarget  # the other backend must not need it

        folder = self.loader.graph(source, weights, num_layers, features)
        self.report("compiling the graph")
        trees = role == "target" and self.options.drafts_trees
        declared: Numerics = "fast" if numerics == "fast" else "invariant"
        target = OpenVINOTarget(
            folder,
            kv_bytes=kv_bytes,
            numerics=declared,
            precision="bf16" if weights == "bfloat16" else "f32",
            threads=self.options.threads,
            scratch_pages=_SCRATCH_PAGES if trees else 0,
            lanes=self._lanes(folder),
        )
        return target, folder

    def _lanes(self, folder: Path) -> int:
        """Compiled copies of the target; steps of plain decoding hardly change their width."""
        if self.options.drafter == "none":
            return 1
        return num_lanes((folder / "graph.bin").stat().st_size, last_level_cache())

    def _torch_target(
        self,
        source: ModelSource,
        num_layers: int | None,
        kv_bytes: int,
        numerics: str,
        weights: str,
        features: tuple[int, ...],
    ) -> tuple[Target, Path]:
        import torch  # seconds to import, and the CPU's default backend does without

        from draftproof.models.hf import TorchTarget
        from draftproof.models.module import first_layers, load_module

        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        folder = self.loader.folder(source)
        self.report("loading the model")
        dtype = torch.bfloat16 if weights == "bfloat16" else torch.float32
        device = "cuda" if torch.cuda.is_available() else "cpu"
        same = source is self.source and weights == self.weights
        if same and num_layers is not None and self._module is not None:
            module = first_layers(self._module, num_layers)  # the same weights, no second copy
        else:
            module = load_module(folder, dtype, device, num_layers)
        self._module = self._module if self._module is not None else module
        most = 64 * -(-(context_limit(module.config) or 2048) // 32)  # no use for more
        pages = min(most, TorchTarget.pages_for(module, kv_bytes))
        declared: Numerics = "invariant" if numerics == "invariant" else "fast"
        return TorchTarget(module, num_pages=pages, numerics=declared, features=features), folder

    # -- numerics ------------------------------------------------------------------------------------------------------

    def checked(self, target: Target, folder: Path) -> Target:
        """The target with its declared numerics proved; under "auto" it falls back to "fast", and says so."""
        if target.numerics != "invariant" or self.backend == "torch":
            return target  # the torch backend's invariant form computes each row alone
        from draftproof.engine.proved import proved  # the other backend must not need openvino

        memo, key = self.loader.cache.dir / "selfchecks.json", f"{folder.name}|{self.weights}"
        return proved(target, key, memo, self.options.numerics, self.report)

    # -- the drafter ---------------------------------------------------------------------------------------------------

    def drafter(self, target: Target, tokenizer: Tokenizer) -> Drafter:
        """The drafter by name, its model loaded and paired where it has one. Sets `draft` and `draft_cost`."""
        self.draft, self.draft_cost = None, 0.0
        name = self.options.drafter
        if not isinstance(name, str):
            return name
        if DRAFTERS[name].needs_head:
            made = self._heads().drafter(self.options, target, tokenizer.vocabulary())
            self.draft, self.draft_cost = made.model, made.cost
            return made.drafter
        if not DRAFTERS[name].needs_model:
            return make(name)
        source, layers = self._draft_source()
        other = _early_tokenizer(source) if source is not self.source else None  # the target itself needs no pairing
        if other is not None:
            _pair(tokenizer, other)
        draft_target, folder = self.target(source, layers, "drafter")
        self.draft_cost = relative_cost(draft_target, target)
        if other is None and source is not self.source:
            _pair(tokenizer, Tokenizer.from_folder(folder))
        ledger = PageLedger(draft_target.num_pages, draft_target.page_size)
        self.draft = DraftModel(draft_target, ledger, source, layers, folder, self._draft_weights(self.options))
        return make(name, target=draft_target, ledger=ledger, vocab_size=target.vocab_size)

    def _draft_weights(self, options: EngineOptions) -> str:
        """Of a second model, as they are loaded: "auto" is the target's. Raises InvalidParams for what can't be had."""
        if options.draft_weights == "auto":
            return self.weights
        return resolve_weights(options.draft_weights, self.source, self.backend, "draft_weights")

    def _draft_source(self) -> tuple[ModelSource, int | None]:
        """The draft model, or the target itself and how many of its layers; a third of them by default."""
        options = self.options
        if options.draft_model is not None:
            return resolve(options.draft_model), None
        total = folders.num_layers(self.loader.config(self.source))
        layers = options.exit_layer if options.exit_layer is not None else max(1, total // 3)
        return self.source, folders.check_exit_layer({"num_hidden_layers": total}, layers)

    def policy(self, target: Target) -> DraftPolicy:
        """How far the drafter made last may guess."""
        one_width = getattr(target, "num_lanes", 2) == 1
        name, gamma = name_of(self.options), self.options.gamma
        return draft_policy(name, gamma, self.curve, self.draft_cost, target.min_rows, one_width=one_width)


def _early_tokenizer(source: ModelSource) -> Tokenizer | None:
    """A folder's own tokenizer: a fault or a bad pair is said before a minute of conversion. None for a GGUF."""
    return Tokenizer.from_folder(source.path) if source.kind == "folder" else None


def _pair(ours: Tokenizer, other: Tokenizer) -> None:
    check_pairing(ours.vocabulary(), other.vocabulary(), ours.eos_ids, other.eos_ids)


def build(options: EngineOptions, report: Report) -> Built:
    """Everything together. Raises InputError for what can't be built, NumericsError where a promise does not hold."""
    return build_each([options], report)[0]


def build_each(options: Sequence[EngineOptions], report: Report, *, exact_drafts: bool = False) -> list[Built]:
    """An engine for each of several drafters over one target and one ledger; they take turns.

    options: alike but for what concerns the drafter. An engine may step only while the others hold no sequence.
    exact_drafts: draft models have the target's numerics, so that drafts do not depend on batch mates either.
    Raises as `build` does.
    """
    begin, huge = time.perf_counter(), options[0].huge_pages
    mapped = huge_pages.ranges() if huge else []
    trees = [each for each in options if each.drafts_trees]
    builder = _Builder([*trees, *options][0], report)
    builder.look_ahead(options)
    early = _early_tokenizer(builder.source)
    target, folder = builder.target(builder.source, None, "target")
    tokenizer = early or Tokenizer.from_folder(folder)
    target = builder.checked(target, folder)
    ledger = PageLedger(target.num_pages, target.page_size)
    if exact_drafts:
        builder.draft_numerics = target.numerics
    caching = prefix_caching(options, target)
    built: list[Built] = []
    for each in options:
        builder.options = each
        drafter = builder.drafter(target, tokenizer)
        limits, policy = limits_of(each, target, prefix_cache=caching), builder.policy(target)
        scheduler = BatchScheduler(ledger, limits, policy)
        engine = Engine(target, drafter, scheduler, ledger, PhiloxNoise())
        info = _info(builder, engine, scheduler.max_len, caching)
        built.append(Built(engine, tokenizer, ledger, info, folder, builder.draft, limits, policy))
    drafts = [one.draft.target for one in built if one.draft is not None]
    moved = settle([target, *drafts], mapped, report) if huge else 0
    for one in built:
        one.info.update(huge_page_bytes=moved, load_s=time.perf_counter() - begin)
    return built


def _info(builder: _Builder, engine: Engine, max_len: int, caching: bool) -> dict[str, Any]:
    target, gamma = engine.target, builder.options.gamma
    return {
        "model": builder.source.name,
        "weights": builder.weights,
        "backend": builder.backend,
        "numerics": target.numerics,
        "drafter": engine.drafter.name,
        "draft_weights": builder.draft.weights if builder.draft is not None else None,
        "tree": builder.options.tree,
        "gamma": "adaptive" if gamma is None and engine.drafter.name != "none" else gamma or 0,
        "threads": getattr(target, "num_threads", None),
        "kv_bytes": getattr(target, "kv_bytes", None),
        "kv_tokens": target.num_pages * target.page_size,
        "max_len": max_len,
        "prefix_caching": caching,
    }

"""One training run in a folder: texts, then steps, then the gate. Given again, it goes on where it stopped.

The folder OUT holds work/ (settings, texts, checkpoint) and, at the end, the drafter itself: a head, or a draft model.
How many texts and steps fit into the time is found out once and written down, so a resumed run ends in the same drafter
as an unbroken one.

Invariant: the drafter in OUT is replaced only by one that is at least as good on the held-out texts.
Does not know: command lines, how a drafter of any kind drafts.
"""

from __future__ import annotations

import copy
import errno
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from draftproof.engine.llm import LLM
from draftproof.errors import InputError
from draftproof.measure.provenance import provenance
from draftproof.models.cache import Cache
from draftproof.models.eagle_config import CONFIG
from draftproof.models.load import Loader
from draftproof.models.module import load_module
from draftproof.models.source import resolve
from draftproof.models.support import context_limit
from draftproof.text.tokenizer import Tokenizer
from draftproof.train.folder import RunFolder
from draftproof.train.kinds import KINDS, Kind, Target
from draftproof.train.material import WRITING, Material, written
from draftproof.train.pace import steps_that_fit
from draftproof.train.questions import Asked, Fit, asked_of_file, asked_of_shipped, digest, fitting, split
from draftproof.train.reading import read_once
from draftproof.train.scores import by_bucket, mean, shown
from draftproof.train.settings import TrainSettings
from draftproof.train.trainer import Settings, Text, Trainer

_TEXT_SHARE = 0.25  # of the time; reading them takes about half as long again
_LOOK_SHARE = 0.08  # of the time, for looking at held-out texts
_SAVE_SECONDS = 30.0
_FEW = 100  # steps after which a new head knows next to nothing
_DEEPEN = 0.5  # share of a new head's steps that look one draft ahead: half the time of the others
_ROOTS = 0.25  # share of the places that later drafts are learned at
# What a drafter's files are called, or how their names begin.
_WRITES = ("model", "README", "generation_config", "tokenizer", "special_tokens", "chat_template", "vocab", "merges")
_LEARNED = (".json", ".safetensors")  # of a drafter's folder, what tells it from another one
Say = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Job:
    """One run; `run` does what is left of it."""

    settings: TrainSettings
    say: Say
    kind: Kind = KINDS["eagle"]
    _folder: RunFolder = field(init=False)

    def __post_init__(self) -> None:
        self._folder = RunFolder(self.settings.out / "work")

    def run(self, command: list[str]) -> dict[str, Any]:
        """Everything that is left; the report. Raises InputError for what can't be used, before anything is written."""
        settings, source = self.settings, resolve(self.settings.model)
        loader = Loader(Cache(settings.cache_dir), self.say)
        target = Target(loader.folder(source), loader.config(source), source.name)
        self.kind.check(target, settings)
        initial = None if settings.init is None else self.kind.load(settings.init, target)
        self._check_out(target)
        config = AutoConfig.from_pretrained(target.folder, local_files_only=True)
        vocab_size = int(config.get_text_config().vocab_size)
        fit = Fit(Tokenizer.from_folder(target.folder), vocab_size, context_limit(config) or 2048)
        asked = self._asked(fit)
        contents = loader.cache.content_hash
        given = {
            "target": (f"the model {source.name}", contents(source.files)),
            "prompts": (str(settings.data or "the list of shipped prompts"), digest(asked)),
            "initial": ("the drafter to start from", None),
        }
        if settings.init is not None:
            files = sorted(path for path in settings.init.iterdir() if path.suffix in _LEARNED)
            given["initial"] = (f"the drafter in {settings.init}", contents(files))
        if settings.texts is not None and not self._folder.is_begun:
            written(settings.texts, vocab_size, given["target"][1])
        self._folder.begin({"kind": self.kind.name} | settings.identity, given)
        try:
            return self._run(loader, source, target, initial, self._material(asked, fit, vocab_size), command)
        finally:
            self._folder.leave()

    def _run(
        self, loader: Loader, source: Any, target: Target, initial: Any, material: Material, command: list[str]
    ) -> dict[str, Any]:
        settings = self.settings
        module = load_module(target.folder)
        texts, evals = material.texts(self._state["parts"]), material.held_out()
        trainer = self._trainer(module, texts, initial, lambda run: read_once(run, loader, source, settings))
        begin = time.monotonic()
        first = by_bucket(trainer, evals)
        looking = time.monotonic() - begin
        if "before" not in self._state:
            self._folder.note(before=first)
        self._train(trainer, evals, looking)
        report = self._judged(trainer, evals, target)
        if report["written"]:
            card = {name: report[name] for name in ("held_out", "texts", "steps")} | provenance(command)
            self._write(trainer.head, target, card)
        return report

    @property
    def _state(self) -> dict[str, Any]:
        return self._folder.state

    # -- what is given -------------------------------------------------------------------------------------------------

    def _asked(self, fit: Fit) -> list[Asked]:
        """All prompts there are, each of which the target can be asked."""
        data = self.settings.data
        asked = (
            asked_of_shipped(self.settings.seed) if data is None else asked_of_file(data, self.settings.bucket_field)
        )
        if not fit.chat:
            self.say("the model has no chat template: prompts are given as plain text")
        return fitting(asked, fit, data, self.say)

    def _check_out(self, target: Target) -> None:
        """What can't be judged against is said at once, and what would be written over is no drafter."""
        out = self.settings.out
        if (out / CONFIG).is_file():
            self.kind.load(out, target)
        elif out.is_dir() and not self._folder.is_begun:
            theirs = sorted(path.name for path in out.iterdir() if path.name.startswith(_WRITES))
            if theirs:
                raise InputError(
                    f"{out} holds {theirs[0]}, which no run made and this one would write over: give another --out"
                )

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _material(self, asked: list[Asked], fit: Fit, vocab_size: int) -> Material:
        """All texts of the run, written or taken over as far as they are not there."""
        settings, own = self.settings, self.settings.data is not None
        data, held = split(asked, settings.seed) if own else (asked, [])
        material = Material(self._folder.path, data, settings.seed, settings.max_new, fit, make_up=not own)
        parts = self._state["parts"]
        if parts is None or material.num_parts < parts or not material.has_held_out:
            if settings.texts is None:
                self._write_texts(material, held)
            else:
                self._folder.note(parts=material.take(settings.texts, vocab_size))
        return material

    def _write_texts(self, material: Material, held: list[Asked]) -> None:
        """Those that the time allows; of a run that had them all, those that were lost."""
        settings = self.settings
        options: dict[str, Any] = {name: getattr(settings, name) for name in ("weights", "cache_dir", "threads")}
        with LLM(settings.model, progress=self.say, **options, **WRITING) as llm:
            material.write_held_out(llm, held)
            material.held_out()  # refuses a target that says nothing before more is asked
            while self._wants_part(material):
                begin = time.monotonic()
                material.write_part(llm)
                material.texts(1)
                done = self._state["text_seconds"] + time.monotonic() - begin
                self._folder.note(text_seconds=done)
                left = max(0.0, self._writing - done) / 60
                self.say(f"texts: {material.num_parts} parts, {left:.1f} minutes of writing left")
        self._folder.note(parts=material.num_parts)

    @property
    def _writing(self) -> float:
        """Seconds of the run that are for texts."""
        return _TEXT_SHARE * 60 * self.settings.minutes

    def _wants_part(self, material: Material) -> bool:
        parts = self._state["parts"]
        if parts is not None:
            return bool(material.num_parts < parts)
        return not material.num_parts or self._state["text_seconds"] < self._writing

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _trainer(self, module: Any, texts: list[Text], initial: Any, read: Callable[[Trainer], None]) -> Trainer:
        settings = self.settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        head = initial if initial is not None else self.kind.new(module, texts, settings)
        plan = Settings(
            steps=self._state.get("steps") or 1 << 30,
            batch_tokens=settings.batch_tokens,
            learning_rate=settings.rate,
            seed=settings.seed,
            deepen=_DEEPEN if initial is None else 0.0,
            roots=_ROOTS,
        )
        state = self._checkpoint
        trainer = self._over(module, head, texts, plan)
        read(trainer)
        if "steps" not in self._state:
            trainer.settings = replace(trainer.settings, steps=self._steps_that_fit(trainer))
            self._folder.note(steps=trainer.settings.steps)
            if initial is None and trainer.settings.steps < _FEW:
                self.say(f"only {trainer.settings.steps} steps fit into the time: give more --minutes to learn more")
        elif state.is_file():
            trainer.load(state)
        return trainer

    def _over(self, module: Any, head: Any, texts: Sequence[Text], plan: Settings) -> Trainer:
        return self.kind.trainer(module, head, texts, plan)

    def _steps_that_fit(self, run: Trainer) -> int:
        seconds = (60 * self.settings.minutes - self._state["text_seconds"]) * (1 - _LOOK_SHARE)
        self.say("reading the texts")
        trial = self._over(run.model, copy.deepcopy(run.head), run.texts, run.settings)
        return steps_that_fit(run, trial, seconds)

    def _train(self, trainer: Trainer, evals: list[Text], looking: float) -> None:
        """All steps that are left. looking: seconds of one look at the held-out texts."""
        steps, begin, at = trainer.settings.steps, time.monotonic(), trainer.step
        saved = looked = begin

        def watch(trainer: Trainer) -> None:
            nonlocal saved, looked
            now = time.monotonic()
            if now - saved > _SAVE_SECONDS or trainer.step == steps:
                self._save(trainer)
                saved = time.monotonic()
            if now - looked > looking / _LOOK_SHARE and trainer.step < steps:
                left = (now - begin) / (trainer.step - at) * (steps - trainer.step)
                loss = float(np.mean(trainer.losses[-100:]))
                self.say(
                    f"step {trainer.step} of {steps}, loss {loss:.2f}, {left / 60:.1f} minutes left; held out: "
                    f"{shown(by_bucket(trainer, evals))}"
                )
                looked = time.monotonic()

        trainer.run(watch=watch)

    @property
    def _checkpoint(self) -> Path:
        return self._folder.path / "state.pt"

    def _save(self, trainer: Trainer) -> None:
        try:
            trainer.save(self._checkpoint)
        except (OSError, RuntimeError) as error:  # torch says a full disk as a RuntimeError
            raise InputError(_unwritten(self._checkpoint, error)) from error

    # -- the end -------------------------------------------------------------------------------------------------------

    def _judged(self, trainer: Trainer, evals: list[Text], target: Target) -> dict[str, Any]:
        """The gate: what is there is replaced by what is at least as good. The new is judged as it will be saved."""
        trainer.head.load_state_dict(self.kind.as_saved(trainer.head))
        scores, out = by_bucket(trainer, evals), self.settings.out
        report: dict[str, Any] = {
            "out": str(out),
            "steps": trainer.settings.steps,
            "texts": len(trainer.texts),
            "tokens": int(sum(len(text.tokens) for text in trainer.texts)),
            "held_out": scores,
            "before": self._state["before"],
            "written": True,
        }
        if (out / CONFIG).is_file():
            old = self._over(trainer.model, self.kind.load(out, target), trainer.texts, trainer.settings)
            report["replaced"] = by_bucket(old, evals)
            report["written"] = mean(scores) >= mean(report["replaced"])
        return report

    def _write(self, head: Any, target: Target, card: dict[str, Any]) -> None:
        """The drafter with what it was made from."""
        try:
            self.kind.save(head, self.settings.out, target, card)
        except OSError as error:
            raise InputError(_unwritten(self.settings.out, error)) from error


def _unwritten(place: Path, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    number = error.errno if isinstance(error, OSError) else errno.ENOSPC
    mend = "free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
    return f"can't write {place} ({reason}); the last checkpoint is kept: {mend}, then give the same command again"

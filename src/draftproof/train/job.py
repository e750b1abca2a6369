"""One training run in a folder: texts, then steps, then the gate. Given again, it goes on where it stopped.

The folder OUT holds work/ (settings, texts, checkpoint) and, at the end, the drafter itself: a head, or a draft model.
How many texts and steps fit into the time is found out once and written down, so a resumed run ends in the same drafter
as an unbroken one.

Invariant: the drafter in OUT is replaced only by one that is at least as good on the held-out texts.
Does not know: command lines, how a drafter of any kind drafts.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from draftproof.engine.llm import LLM
from draftproof.errors import InputError
from draftproof.measure.files import write_whole
from draftproof.measure.provenance import provenance
from draftproof.models.cache import Cache
from draftproof.models.eagle_config import CONFIG
from draftproof.models.load import Loader
from draftproof.models.module import load_module
from draftproof.models.source import resolve
from draftproof.train.kinds import KINDS, Kind, Target
from draftproof.train.material import WRITING, Asked, Material, asked_of_file, asked_of_shipped, digest, written
from draftproof.train.pace import steps_that_fit
from draftproof.train.reading import read_once
from draftproof.train.scores import by_bucket, mean, shown
from draftproof.train.settings import TrainSettings
from draftproof.train.trainer import Settings, Text, Trainer

_TEXT_SHARE = 0.25  # of the time; reading them takes about half as long again
_LOOK_SHARE = 0.08  # of the time, for looking at held-out texts
_SAVE_SECONDS = 30.0
_DEEPEN = 0.5  # share of a new head's steps that look one draft ahead: half the time of the others
_ROOTS = 0.25  # share of the places that later drafts are learned at
# What a drafter's files are called, or how their names begin.
_WRITES = ("model", "README", "generation_config", "tokenizer", "special_tokens", "chat_template", "vocab", "merges")
Say = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Job:
    """One run; `run` does what is left of it."""

    settings: TrainSettings
    say: Say
    kind: Kind = KINDS["eagle"]
    _state: dict[str, Any] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """Where what is under way lies."""
        return self.settings.out / "work"

    def run(self, command: list[str]) -> dict[str, Any]:
        """Everything that is left; the report. Raises InputError for what can't be used, before anything is written."""
        settings, source = self.settings, resolve(self.settings.model)
        loader = Loader(Cache(settings.cache_dir), self.say)
        data, held = self._prompts()
        target = Target(loader.folder(source), loader.config(source), source.name)
        self.kind.check(target, settings)
        initial = None if settings.init is None else self.kind.load(settings.init, target)
        self._check_out(target)
        if settings.texts is not None and not self._path.is_file():
            written(settings.texts)
        self._begin(digest(data + held))
        material = Material(self.work, data, settings.seed, settings.max_new, make_up=settings.data is None)
        self._write_texts(material, held)
        module = load_module(target.folder)
        texts, evals = material.texts(self._state["parts"]), material.held_out()
        trainer = self._trainer(module, texts, initial, lambda run: read_once(run, loader, source, settings))
        begin = time.monotonic()
        first = by_bucket(trainer, evals)
        looking = time.monotonic() - begin
        if "before" not in self._state:
            self._note(before=first)
        self._train(trainer, evals, looking)
        report = self._judged(trainer, evals, target)
        if report["written"]:
            card = {name: report[name] for name in ("held_out", "texts", "steps")} | provenance(command)
            self._write(trainer.head, target, card)
        return report

    # -- what is given -------------------------------------------------------------------------------------------------

    def _prompts(self) -> tuple[list[Asked], list[Asked]]:
        """Prompts to train on, and of the user's data one in twenty (at most 32) to judge by."""
        if self.settings.data is None:
            return asked_of_shipped(self.settings.seed), []
        asked = asked_of_file(self.settings.data, self.settings.bucket_field)
        if len(asked) < 20:
            return asked, []
        held = set(range(0, len(asked), max(20, len(asked) // 32)))
        return [a for i, a in enumerate(asked) if i not in held], [asked[i] for i in sorted(held)]

    def _check_out(self, target: Target) -> None:
        """What can't be judged against is said at once, and what would be written over is no drafter."""
        out = self.settings.out
        if (out / CONFIG).is_file():
            self.kind.load(out, target)
        elif out.is_dir() and not self._path.is_file():
            theirs = sorted(path.name for path in out.iterdir() if path.name.startswith(_WRITES))
            if theirs:
                raise InputError(
                    f"{out} holds {theirs[0]}, which no run made and this one would write over: give another --out"
                )

    # -- the run's own state -------------------------------------------------------------------------------------------

    def _begin(self, prompts: str) -> None:
        """Starts the folder, or checks that it holds this very run. prompts: their digest."""
        if self._path.is_file():
            try:
                self._state = json.loads(self._path.read_text())
            except ValueError as error:
                raise InputError(f"{self._path} can't be read ({error}): delete {self.work} to begin anew") from error
            theirs, ours = {"kind": "eagle"} | self._state["settings"], self._identity
            for name in ours:
                if theirs.get(name) != ours[name]:
                    raise InputError(
                        f"{self.work} holds a run with {name} {theirs.get(name)!r}, this one has {ours[name]!r}: give "
                        "the same options to go on, or another --out"
                    )
            if self._state.get("prompts", prompts) != prompts:
                given = self.settings.data or "the list of shipped prompts"
                raise InputError(
                    f"{given} is not what it was when the run in {self.work} began: give it back as it was to go on, "
                    "or another --out"
                )
            return
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"can't make {self.work}: {error.strerror or error}") from error
        self._state = {"settings": self._identity, "prompts": prompts, "text_seconds": 0.0, "parts": None}
        self._note()

    @property
    def _path(self) -> Path:
        return self.work / "run.json"

    @property
    def _identity(self) -> dict[str, Any]:
        return {"kind": self.kind.name} | self.settings.identity

    def _note(self, **more: Any) -> None:
        self._state |= more
        write_whole(self._path, json.dumps(self._state, indent=1).encode())

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _write_texts(self, material: Material, held: list[Asked]) -> None:
        if self._state["parts"] is not None:
            return
        settings, seconds = self.settings, _TEXT_SHARE * 60 * self.settings.minutes
        if settings.texts is not None:
            self._note(parts=material.take(settings.texts))
            return
        options: dict[str, Any] = {name: getattr(settings, name) for name in ("weights", "cache_dir", "threads")}
        with LLM(settings.model, progress=self.say, **options, **WRITING) as llm:
            material.write_held_out(llm, held)
            while not material.num_parts or self._state["text_seconds"] < seconds:
                begin = time.monotonic()
                material.write_part(llm)
                self._note(text_seconds=self._state["text_seconds"] + time.monotonic() - begin)
                done = self._state["text_seconds"]
                self.say(
                    f"texts: {material.num_parts} parts, {max(0.0, seconds - done) / 60:.1f} minutes of writing left"
                )
        self._note(parts=material.num_parts)

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
        state = self.work / "state.pt"
        trainer = self._over(module, head, texts, plan)
        read(trainer)
        if "steps" not in self._state:
            trainer.settings = replace(trainer.settings, steps=self._steps_that_fit(trainer))
            self._note(steps=trainer.settings.steps)
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

    def _save(self, trainer: Trainer) -> None:
        try:
            trainer.save(self.work / "state.pt")
        except (OSError, RuntimeError) as error:  # torch says a full disk as a RuntimeError
            raise InputError(self._unwritten(self.work / "state.pt", error)) from error

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
            raise InputError(self._unwritten(self.settings.out, error)) from error

    def _unwritten(self, place: Path, error: Exception) -> str:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return (
            f"can't write {place} ({reason}); the last checkpoint is kept: free some space, then "
            "give the same command again"
        )

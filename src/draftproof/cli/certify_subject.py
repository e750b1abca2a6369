"""Which subject `draftproof certify` is asked for: our engine, a server, another engine, or that of a certificate.

Invariant: of what is given, nothing is ignored: options that do not go with the subject are refused by name.

Does not know: plans, how anything is tested.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftproof.certify import Certificate, check_read
from draftproof.certify.again import Given, PeerRecipe, Recipe, ServerRecipe, recipe_of
from draftproof.certify.own import options_of
from draftproof.cli import options
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.types import SamplingParams

_OF = {
    **dict.fromkeys(("baseline", "served_model", "api_key", "request_timeout"), "endpoint"),
    **dict.fromkeys(("subject_options", "python"), "subject"),
}
_GIVEN_AGAIN = ("endpoint", "baseline", "served_model", "api_key", "request_timeout", "python")


def asked_for(args: argparse.Namespace, before: Certificate | None) -> EngineOptions | Recipe:
    """What is to be opened. Raises InputError."""
    if before is not None:
        return _again(args, before)
    if args.endpoint is not None and args.subject is not None:
        raise InvalidParams("--endpoint and --subject exclude each other: one subject at a time")
    for name, owner in _OF.items():
        if getattr(args, name) is not None and getattr(args, owner) is None:
            raise InvalidParams(f"--{name.replace('_', '-')} goes with --{owner}: give that, too")
    if args.endpoint is None and args.subject is None:
        return _engine(args)
    _check_drafting(args)
    if args.endpoint is not None:
        return ServerRecipe(_given(args), _engine(args, drafter="none"))
    _check_engine(args)
    return PeerRecipe(args.subject, args.model, _subject_options(args), _given(args))


def _again(args: argparse.Namespace, before: Certificate) -> EngineOptions | Recipe:
    subject = before["subject"]
    if subject.get("kind") == "engine":
        for name in _GIVEN_AGAIN:
            if getattr(args, name) is not None:
                raise InvalidParams(f"{args.check} is of our own engine: drop --{name.replace('_', '-')}")
        if not isinstance(subject.get("options"), dict):
            raise InputError(f"{args.check} can't be run again: it does not say how its engine was made")
        return options_of(subject["options"], args.cache_dir)
    if before.get("again") is None:
        how = _how_made(before)
        raise InputError(f"{args.check} can't be run again: it does not say how its subject is opened{how}")
    return recipe_of(before["again"], _given(args), str(args.check))


def _how_made(before: Certificate) -> str:
    origin = before.get("provenance")
    command = origin.get("command") if isinstance(origin, Mapping) else None
    words = " ".join(map(str, command)) if isinstance(command, list) else str(command or "")
    return f"; it was made by: {words[:200]}" if words else "; run certify.run again as it was made"


def _given(args: argparse.Namespace) -> Given:
    key = args.api_key or os.environ.get("DRAFTPROOF_API_KEY")
    names = (args.endpoint, args.baseline, args.served_model)
    return Given(*names, key, args.python, args.request_timeout, args.cache_dir)


def _check_drafting(args: argparse.Namespace) -> None:
    names = ("draft_model", "exit_layer", "gamma", "tree", "cost_file")
    drafting = [name for name in names if getattr(args, name) is not None]
    drafting += ["draft_weights"] if args.draft_weights != "auto" else []
    if drafting or args.drafter != "suffix":
        name = (drafting or ["drafter"])[0].replace("_", "-")
        raise InvalidParams(f"another engine drafts as it was set up: drop --{name}")


def _check_engine(args: argparse.Namespace) -> None:
    """Another engine runs without ours: what is asked of ours would be ignored."""
    usual = dict.fromkeys(("weights", "draft_weights", "backend", "numerics"), "auto")
    for name in options.ENGINE_OPTIONS:
        if getattr(args, name) != usual.get(name):
            shown = name.replace("_", "-")
            raise InvalidParams(f"--{shown} is of our own engine: drop it, or say it in --subject-options")


def _subject_options(args: argparse.Namespace) -> dict[str, Any]:
    try:
        value = json.loads(args.subject_options or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidParams(f"--subject-options is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidParams("--subject-options must be a JSON object, like '{\"lookup\": 4}'")
    if "model" in value:
        raise InvalidParams("the model is given by --model: leave it out of --subject-options")
    return value


def before_of(args: argparse.Namespace) -> Certificate | None:
    """The certificate to be run again. Raises InputError where something is asked that it settles itself."""
    if args.check is None:
        return None
    asked = [
        name for name in ("tokens", "alpha", "max_tv", "tests", *SamplingParams.__dataclass_fields__) if name in args
    ]
    usual = {"model": "demo", "drafter": "suffix"}
    usual |= dict.fromkeys(("weights", "draft_weights", "backend", "numerics"), "auto")
    names = ("model", "drafter", *options.ENGINE_OPTIONS, "prompts", "subject", "subject_options")
    asked += [name for name in names if getattr(args, name) != usual.get(name)]
    if asked:
        raise InvalidParams(f"--check runs a certificate with its own settings: drop --{asked[0].replace('_', '-')}")
    return read(Path(args.check))


def read(path: Path) -> Certificate:
    """A certificate. Raises InputError for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} holds no certificate: {error}") from error
    return check_read(value, str(path))


def _engine(args: argparse.Namespace, drafter: str | None = None) -> EngineOptions:
    given = {name: getattr(args, name) for name in options.ENGINE_OPTIONS}
    return EngineOptions(model=args.model, drafter=drafter or args.drafter, cache_dir=args.cache_dir, **given)

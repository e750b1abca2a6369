"""How another engine is opened, for the first time and again: the recipe that its certificate keeps as `again`.

A certificate may come from somebody else, so two things in it are never obeyed: the address of a server (a key would
be sent there) and the interpreter of a peer (it would be run). Both have to be given again; what was is compared.

Invariant: what is opened from a recipe is what was opened first, but for what was given again; keys are in no recipe.

Does not know: tests, command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from draftproof.certify.adapters.foreign import Foreign, open_endpoint, open_engine
from draftproof.certify.adapters.registry import PEERS
from draftproof.certify.endpoint import EndpointOptions
from draftproof.certify.own import asked, options_of
from draftproof.engine.options import EngineOptions
from draftproof.errors import InputError, InvalidParams
from draftproof.models.cache import Cache
from draftproof.models.load import Loader
from draftproof.models.source import resolve

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Given:
    """What has to come from whoever runs it. key: of the servers. None: not given."""

    url: str | None = None
    baseline: str | None = None
    served_model: str | None = None
    key: str | None = field(default=None, repr=False)
    python: str | None = None
    deadline_s: float | None = None
    cache_dir: str | None = None


@dataclass(frozen=True, slots=True)
class ServerRecipe:
    """A server, the baseline (None: the server itself, switched off), and the model it runs, as laws."""

    given: Given
    target: EngineOptions

    def as_json(self) -> dict[str, Any]:
        """JSON-ready, without the key."""
        given = self.given
        named = {"url": given.url, "baseline": given.baseline, "served_model": given.served_model}
        return {"kind": "endpoint", **named, "deadline_s": given.deadline_s, "target": asked(self.target)}

    def open(self, report: Report) -> Foreign:
        """Raises InputError."""
        given = self.given
        assert given.url is not None
        report("reaching the server")
        options = EndpointOptions(given.url, model=given.served_model, api_key=given.key)
        if given.deadline_s is not None:
            options = replace(options, deadline_s=given.deadline_s)
        return open_endpoint(options, given.baseline, self.target)


@dataclass(frozen=True, slots=True)
class PeerRecipe:
    """An engine of `adapters`. model: as a user names it. options: of the peer, without the model."""

    engine: str
    model: str
    options: Mapping[str, Any]
    given: Given

    def as_json(self) -> dict[str, Any]:
        """JSON-ready."""
        named = {"kind": "peer", "engine": self.engine, "model": self.model}
        return {**named, "options": dict(self.options), "python": self.given.python}

    def open(self, report: Report) -> Foreign:
        """Raises InputError."""
        entry = PEERS.get(self.engine)
        if entry is None:
            raise InvalidParams(f"no adapter {self.engine!r}: there are {', '.join(PEERS)}")
        report("opening the other engine")
        source = resolve(self.model)
        if entry.reads == "gguf" and source.kind != "gguf":
            raise InvalidParams(f"{self.engine} reads GGUF files: give one as the model, {self.model} is a folder")
        folder = Loader(Cache(self.given.cache_dir), report).folder(source)
        model = source.path if entry.reads != "folder" else folder
        return open_engine(self.engine, {"model": str(model), **self.options}, folder, self.given.python)


Recipe = ServerRecipe | PeerRecipe


def recipe_of(value: object, given: Given, name: str) -> Recipe:
    """The recipe that a certificate keeps, with what is given again. name: of the file, for errors.

    Raises InputError where it can't be run again, or something that it needs was not given.
    """
    kind = value.get("kind") if isinstance(value, Mapping) else None
    try:
        if kind == "endpoint":
            return _server(dict(value), given, name)  # type: ignore[call-overload]
        if kind == "peer":
            return _peer(dict(value), given, name)  # type: ignore[call-overload]
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name} can't be run again: its `again` holds {error} wrongly") from error
    raise InputError(f"{name} can't be run again: it does not say how its subject is opened (`again`)")


def _server(value: dict[str, Any], given: Given, name: str) -> ServerRecipe:
    if given.python is not None:
        raise InvalidParams(f"{name} is of a server: drop --python")
    for option, was in (("endpoint", value["url"]), ("baseline", value["baseline"])):
        now = given.url if option == "endpoint" else given.baseline
        if was is not None and now is None:
            raise InvalidParams(f"{name} is of a server at {was!r}: give its address again, --{option} URL")
        if was is None and now is not None:
            raise InvalidParams(f"{name} was made without a second server: drop --{option}")
    model = given.served_model or _text(value["served_model"])
    deadline = given.deadline_s or (None if value["deadline_s"] is None else float(value["deadline_s"]))
    return ServerRecipe(
        replace(given, served_model=model, deadline_s=deadline), options_of(dict(value["target"]), given.cache_dir)
    )


def _peer(value: dict[str, Any], given: Given, name: str) -> PeerRecipe:
    of_servers = {"endpoint": given.url, "baseline": given.baseline, "served-model": given.served_model}
    if wrong := [option for option, now in of_servers.items() if now is not None]:
        raise InvalidParams(f"{name} is of {value['engine']!r}, not of a server: drop --{wrong[0]}")
    if value["python"] is not None and given.python is None:
        raise InvalidParams(
            f"{name} was made with the interpreter {value['python']!r}: give one that has the engine again, --python"
        )
    return PeerRecipe(str(value["engine"]), str(value["model"]), dict(value["options"]), given)


def _text(value: object) -> str | None:
    return None if value is None else str(value)

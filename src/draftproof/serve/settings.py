"""What a server is asked to be, checked before a model is loaded.

Does not know: how any of it is done.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from draftproof.engine.options import HEAD_DRAFTERS, EngineOptions, for_each
from draftproof.errors import InvalidParams, UnknownDrafter
from draftproof.measure.specs import DrafterSpec, parse_drafter

_TREE = "fixed_tree"


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """A server.

    drafters: the first is the default one; none is a plain server. engine: options of `LLM` that all drafters share;
        draft_weights and tree go to those that take them.
    name: what clients call the model; None is the model's own name.
    api_keys: any of them opens everything; empty asks for none. admin_keys: where given, /admin asks for one of these.
    max_waiting: most texts in line behind the running ones. max_body: bytes. max_choices: most texts of one request.
    request_timeout, grace: seconds for a whole request, and for running ones once the server shuts down.
    otlp_traces_endpoint: URL of a collector that gets one span a request, by OTLP over HTTP; None makes none.
    policy: file of a rollout; state: the file that its stages and decisions are kept in.
    """

    drafters: tuple[DrafterSpec, ...] = ()
    engine: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    max_waiting: int = 128
    max_body: int = 4 << 20
    max_choices: int = 16
    request_timeout: float = 600.0
    grace: float = 30.0
    policy: Path | None = None
    state: Path | None = None
    otlp_traces_endpoint: str | None = None
    log_requests: bool = True

    def __post_init__(self) -> None:
        checks = [
            ("port", 0 <= self.port <= 65535, "in 0..65535"),
            ("max_waiting", self.max_waiting >= 0, "an integer >= 0"),
            ("max_body", self.max_body >= 1024, "at least 1024 bytes"),
            ("max_choices", 1 <= self.max_choices <= 128, "in 1..128"),
            ("request_timeout", 0 < self.request_timeout < float("inf"), "a number of seconds above 0"),
            ("grace", 0 <= self.grace < float("inf"), "a number of seconds >= 0"),
            ("api_keys", all(map(_is_key, self.api_keys)), "at least 8 printable ASCII characters each"),
            ("otlp_traces_endpoint", _is_url(self.otlp_traces_endpoint), "a URL like http://localhost:4318/v1/traces"),
            ("admin_keys", all(map(_is_key, self.admin_keys)), "at least 8 printable ASCII characters each"),
        ]
        for name, holds, must in checks:
            if not holds:
                raise InvalidParams(f"--{name.replace('_', '-').replace('-keys', '-key')} must be {must}")
        if self.state is not None and self.policy is None:
            raise InvalidParams("--state keeps a rollout's stages: give --policy too, or drop it")
        if self.policy is not None and not self.drafters:
            raise InvalidParams("--policy rolls a drafter out: give --drafter too")
        self.engine_options()

    @property
    def is_public(self) -> bool:
        """True where other machines may reach the server."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    def engine_options(self) -> list[EngineOptions]:
        """One for each drafter; plain decoding alone where there is none."""
        if not self.drafters:
            return [EngineOptions(drafter="none", **self.engine)]
        engine = for_each([spec.kind for spec in self.drafters], self.engine)
        return [
            EngineOptions(drafter=spec.kind, draft_model=spec.model, exit_layer=spec.exit_layer, **own)
            for spec, own in zip(self.drafters, engine, strict=True)
        ]


def _is_url(url: str | None) -> bool:
    if url is None:
        return True
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_key(key: str) -> bool:
    return len(key) >= 8 and key.isascii() and key.isprintable() and " " not in key


def parse_drafters(texts: Sequence[str]) -> tuple[DrafterSpec, ...]:
    """ "kind", "kind:argument" or "label=kind:argument" each, as of `measure`; fixed_tree[:PATH or :LAYERS] and
    eagle[:PATH], cascade[:PATH], medusa:PATH with a head's folder.

    Raises UnknownDrafter.
    """
    specs = tuple(_parse(text) for text in texts if text != "none")
    labels = [spec.label for spec in specs]
    for label in labels:
        if labels.count(label) > 1:
            raise UnknownDrafter(f"two drafters are called {label!r}: name one of them, like --drafter other={label}")
    return specs


def _parse(text: str) -> DrafterSpec:
    label, equals, rest = text.partition("=")
    kind, colon, argument = (rest if equals else text).partition(":")
    if kind in HEAD_DRAFTERS:
        if colon and not argument:
            raise UnknownDrafter(f"{text!r} names no draft head: write {kind} or {kind}:PATH")
        return DrafterSpec(label, kind, model=argument or None)
    if kind != _TREE:
        return parse_drafter(text)
    if colon and not argument:
        raise UnknownDrafter(f"{text!r} names no model: write {_TREE}, {_TREE}:LAYERS or {_TREE}:PATH")
    if argument.isdecimal():
        return DrafterSpec(label, kind, exit_layer=int(argument))
    return DrafterSpec(label, kind, model=argument or None)

"""The peers by name, and how one is opened: in this process, or in another interpreter.

Does not know: what a peer does with its options; each peer refuses those that it does not have.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from draftproof.certify.adapters.sampler import Peer, PeerSampler
from draftproof.certify.worker import Limits, WorkerPeer
from draftproof.errors import InputError, InvalidParams

# what a foreign subject can be asked: our rules and the numerics of our target are not in it
PEER_TESTS = ("identity", "fit", "joint")


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """One peer. package: as it is imported. install: as pip calls it. reads: models, "either" is a folder or a GGUF."""

    name: str
    package: str
    install: str
    reads: Literal["folder", "gguf", "either"] = "folder"

    @property
    def module(self) -> str:
        """Where its class `Peer` is."""
        return f"draftproof.certify.adapters.peer_{self.name.replace('-', '_')}"

    @property
    def path(self) -> Path:
        """The same as a file, for an interpreter without draftproof."""
        return Path(__file__).with_name(f"peer_{self.name.replace('-', '_')}.py")


PEERS: dict[str, PeerEntry] = {
    entry.name: entry
    for entry in (
        PeerEntry("transformers", "transformers", "transformers"),
        PeerEntry("openvino-genai", "openvino_genai", "openvino-genai", "either"),
        PeerEntry("llama-cpp", "llama_cpp", "llama-cpp-python", "gguf"),
    )
}


def open_peer(
    name: str, options: Mapping[str, Any], *, python: str | Path | None = None, limits: Limits | None = None
) -> PeerSampler:
    """A peer as a `Sampler`; close it, or use it as a context manager. options: of the peer's class.

    python: another interpreter, that has the peer but need not have draftproof; None is this process. limits: how long
    a peer in another interpreter may take. Raises InputError for a peer that is not there, or options it can't take.
    """
    entry = PEERS.get(name)
    if entry is None:
        raise InvalidParams(f"no adapter {name!r}: there are {', '.join(PEERS)}")
    peer = _here(entry, options) if python is None else WorkerPeer(entry, python, options, limits or Limits())
    return PeerSampler(_label(name, options), peer)


def _label(name: str, options: Mapping[str, Any]) -> str:
    """How a certificate calls it."""
    if options.get("lookup"):
        return f"{name}, prompt lookup"
    return f"{name}, assisted" if options.get("assistant") or options.get("assistant_layers") else f"{name}, plain"


def _here(entry: PeerEntry, options: Mapping[str, Any]) -> Peer:
    if importlib.util.find_spec(entry.package) is None:
        raise InputError(f"{entry.install} is not installed here: install it, or name an interpreter that has it")
    made: Peer
    try:
        made = importlib.import_module(entry.module).Peer(**options)
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{entry.name} can't be opened: {str(error).splitlines()[0]}") from error
    return made

"""Name -> running target. Conversion happens once, in a child process, and its result is cached by content.

    gguf file --(de-quantise)--> folder, float32 --(convert, compress)--> OpenVINO graph

Each arrow is a cache entry keyed by the content hash of the source and by the versions that shape the result. The
torch backend starts from the folder, the OpenVINO backend from the graph (which carries its own tokenizer files).

Does not know: sequences, sampling, drafters.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof import errors
from draftproof.errors import CorruptModel, DraftproofError, InputError, InvalidParams
from draftproof.models import folder as folders
from draftproof.models.cache import Cache
from draftproof.models.eagle_config import head_files
from draftproof.models.source import ModelSource

_LEAST_FREE = 1 << 22  # bytes left on a disk that is as good as full
FORMAT = 2  # of what is written; a change here makes all caches new
WEIGHTS = ("auto", "float32", "bfloat16", "int8", "int4")
BACKENDS = ("auto", "openvino", "torch")
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Loader:
    """Where to cache, and whom to tell what is going on."""

    cache: Cache
    report: Report

    def folder(self, source: ModelSource) -> Path:
        """A Hugging Face folder with float32 weights."""
        if source.kind == "folder":
            return source.path
        key = self._key(source, "gguf", "torch", "transformers", "gguf")
        kept = self.cache.get("folder", key)
        return kept or self.cache.build("folder", key, source.name, lambda out: self._child("gguf", source.path, out))

    def config(self, source: ModelSource) -> dict[str, Any]:
        """Its config.json; the weights are not looked at where it was de-quantised before."""
        if source.kind == "gguf":
            key = self._key(source, "gguf", "torch", "transformers", "gguf")
            if (kept := self.cache.get("folder", key, ("config.json",))) is not None:
                return folders.read_config(kept)
        return folders.read_config(self.folder(source))

    def graph(
        self, source: ModelSource, weights: str, num_layers: int | None = None, features: tuple[int, ...] = ()
    ) -> Path:
        """A folder with graph.xml, graph.bin, attention.json and the tokenizer files.

        features: depths whose hidden states come out beside the logits.
        """
        stored = "float32" if weights == "bfloat16" else weights  # bfloat16 is how it is computed, not how it is kept
        versions = ("torch", "transformers", "openvino", *(("nncf",) if stored == "int8" else ()))
        seen = "".join(f"-f{layer}" for layer in features)
        key = self._key(source, f"{stored}-{num_layers or 'all'}{seen}", *versions)
        if (kept := self.cache.get("graph", key)) is not None:
            return kept
        extra = [] if num_layers is None else ["--layers", str(num_layers)]
        extra += ["--features", *map(str, features)] if features else []
        base = self.folder(source)
        if num_layers is not None:
            folders.check_exit_layer(folders.read_config(base), num_layers)
        name = source.name if num_layers is None else f"{source.name} (first {num_layers} layers)"
        job = ("graph", base)
        return self.cache.build("graph", key, name, lambda out: self._child(*job, out, ["--weights", stored, *extra]))

    def head(self, source: ModelSource, head: Path, weights: str) -> Path:
        """A folder with graph.xml, graph.bin, attention.json and draft_ids.npy of an EAGLE head of this target."""
        stored = "float32" if weights == "bfloat16" else weights
        versions = ("torch", "openvino", *(("nncf",) if stored == "int8" else ()))
        content = self.cache.content_hash(head_files(head))
        key = self._key(source, f"head-{content}-{stored}", *versions)
        if (kept := self.cache.get("head", key)) is not None:
            return kept
        base, extra = self.folder(source), ["--weights", stored, "--head", str(head)]
        name = f"{source.name} (draft head)"
        return self.cache.build("head", key, name, lambda out: self._child("head", base, out, extra))

    def _key(self, source: ModelSource, what: str, *packages: str) -> str:
        versions = ",".join(f"{name}={importlib.metadata.version(name)}" for name in packages)
        content = self.cache.content_hash(source.files)
        return hashlib.sha256(f"{FORMAT}|{content}|{what}|{versions}".encode()).hexdigest()[:24]

    def _child(self, job: str, source: Path, out: Path, extra: list[str] | None = None) -> None:
        """Runs models/convert.py; its stages are reported, its refusals raised here."""
        command = [sys.executable, "-m", "draftproof.models.convert", job, str(source), str(out), *(extra or [])]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        with tempfile.TemporaryFile("w+") as log:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process:
                try:
                    refused = self._follow(process)
                except BaseException:
                    process.kill()
                    raise
            code = process.returncode
            if code:
                log.seek(0)
                raise _failure(job, source, refused, log.read(), shutil.disk_usage(out).free)

    def _follow(self, process: subprocess.Popen[str]) -> str | None:
        """Reports the child's stages until it ends; returns its refusal, if it made one."""
        assert process.stdout is not None
        refused = None
        for line in process.stdout:
            kind, _, rest = line.rstrip().partition(": ")
            if kind == "stage":
                self.report(rest)
            elif kind == "refused":
                refused = rest
        return refused


def _failure(job: str, source: Path, refused: str | None, log: str, free_bytes: int) -> DraftproofError:
    """The child's refusal as the exception it was, or what its last line says of a file that can't be read."""
    if free_bytes < _LEAST_FREE or "No space left" in log:
        return InputError("the disk of the cache folder is full: free some space there, or name another (--cache-dir)")
    if refused is not None:
        kind, _, message = refused.partition(": ")
        found = getattr(errors, kind, None)
        if isinstance(found, type) and issubclass(found, DraftproofError):
            return found(message)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1] if lines else "the converter was killed (out of memory?)"
    what = "GGUF file" if job == "gguf" else "Hugging Face folder"
    return CorruptModel(f"{source} can't be read as a {what}, get the model again: {last[:300]}")


def resolve_weights(weights: str, source: ModelSource, backend: str, option: str = "weights") -> str:
    """ "auto": 8 bits for a quantised file on the CPU backend, else the file's own values in float32.

    option: what the user calls it. Raises InvalidParams for weights that can't be had, with the reason.
    """
    if weights not in WEIGHTS:
        raise InvalidParams(f"{option} must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    if weights == "int4":
        raise InvalidParams(
            f"{option} int4: no kernel here computes a model's own 4-bit values to its logits, nor as fast as 8 bits; "
            "use int8"
        )
    if weights == "auto":
        return "int8" if source.kind == "gguf" and backend == "openvino" else "float32"
    if weights == "int8" and backend == "torch":
        shown = option.replace("_", "-")
        raise InvalidParams(f"{option} int8 need the openvino backend: use --backend openvino, or --{shown} float32")
    return weights

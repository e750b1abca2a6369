"""A run folder -> `planner.evidence.Evidence`: texts, starts, rounds and requests.

A part counts when both of its halves are there (`store` writes token rows first): of a run that is not complete the
last half may lack its other one.

Invariant: what can't be read as a run of this format is one InputError that names the file; an unfinished run is read
as far as it goes, and a note says so.

Does not know: how runs are written, what is computed from them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import InputError
from draftproof.measure.arrow import AGAIN
from draftproof.measure.columns import Columns, Table, read_parts
from draftproof.planner.acceptance import Rounds
from draftproof.planner.evidence import Evidence, Requests
from draftproof.planner.plan import DrafterInfo
from draftproof.planner.sums import Starts

FORMAT = 1
_NUMBERS: dict[str, Any] = {
    "prompt": np.int64,
    "pos": np.int32,
    "round": np.int32,
    "drafted": np.int16,
    "offered": np.int16,
}
_REQUEST_NUMBERS: dict[str, Any] = {"prompt": np.int64, "prompt_tokens": np.int32, "completion_tokens": np.int32}
_TEXTS = ("drafter", "bucket", "outcome")


def read_run(folder: str | Path) -> Evidence:
    """The evidence of a run folder. Raises InputError for a folder that is none, or can't be read."""
    path = Path(folder)
    info = read_info(path)
    gamma_max = int(_field(info, "gamma_max", int))
    drafters = tuple(_drafter(value) for value in _field(info, "drafters", list))
    names = [drafter.name for drafter in drafters]
    numbers = _part_numbers(path, complete=info.get("complete") is True)
    requests = read_parts(path / "prompts", numbers, Columns(_REQUEST_NUMBERS, ("bucket", "finish")))
    tokens = read_parts(path / "parts", numbers, Columns(_NUMBERS, _TEXTS, ("keep", "accept"), gamma_max))
    _check_count(path, info, requests.numbers["prompt"])
    buckets = sorted({*requests.labels["bucket"], *tokens.labels["bucket"]})
    return Evidence(
        target=dict(_field(info, "model", dict)),
        drafters=drafters,
        sampling=dict(_field(info, "sampling", dict)),
        buckets=tuple(buckets),
        **_texts(tokens, names, buckets),
        requests=Requests(
            _recoded(requests, "bucket", buckets),
            requests.numbers["prompt_tokens"].astype(np.int64),
            requests.numbers["completion_tokens"].astype(np.int64),
        ),
        notes=_notes(path, info, requests),
    )


def read_info(folder: Path) -> dict[str, Any]:
    """run.json of a run folder. Raises InputError."""
    path = folder / "run.json"
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give the folder that `draftproof measure --out` wrote")
    if not path.is_file():
        raise InputError(f"{folder} is no run folder: it has no run.json")
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read: {error}") from None
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        found = info.get("format") if isinstance(info, dict) else None
        raise InputError(f"{path} has format {found!r}; this version of draftproof reads format {FORMAT}")
    return info


def _field(info: dict[str, Any], name: str, kind: type) -> Any:
    value = info.get(name)
    if not isinstance(value, kind):
        raise InputError(f"run.json: {name} must be of type {kind.__name__}, got {value!r}")
    return value


def _drafter(value: object) -> DrafterInfo:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise InputError(f"run.json: drafters must be objects with a name, got {value!r}")
    return DrafterInfo(value["name"], str(value.get("kind", value["name"])), value.get("model"))


def _part_numbers(path: Path, *, complete: bool) -> list[int]:
    """Numbers of the parts that count."""
    halves = [{_number(part) for part in (path / name).glob("part-*.parquet")} for name in ("parts", "prompts")]
    whole = halves[0] & halves[1]
    odd = halves[0] ^ halves[1]
    if whole != set(range(len(whole))) or (odd and (complete or odd != {len(whole)})):
        lost = min((set(range(max(whole | odd) + 1)) - whole), default=0)
        raise InputError(f"{path} is not whole: part {lost} of its rows is missing; {AGAIN}")
    if not whole:
        raise InputError(f"{path} holds no rows: the run has stored nothing yet; {AGAIN}")
    return sorted(whole)


def _number(part: Path) -> int:
    digits = part.stem.removeprefix("part-")
    if not digits.isdecimal():
        raise InputError(f"{part} is no part of a run")
    return int(digits)


def _check_count(path: Path, info: dict[str, Any], prompts: NDArray[Any]) -> None:
    """A complete run holds as many prompts as it says."""
    data = info.get("data")
    wanted = data.get("prompts") if isinstance(data, dict) else None
    found = len(np.unique(prompts))
    if info.get("complete") is True and wanted is not None and wanted != found:
        raise InputError(f"{path} is not whole: it holds {found} of {wanted} prompts; {AGAIN}")


def _notes(path: Path, info: dict[str, Any], requests: Table) -> tuple[str, ...]:
    notes = []
    if info.get("complete") is not True:
        notes.append("the run is not complete: figures are of what it has stored so far")
    skipped = path / "skipped.jsonl"
    if skipped.is_file() and (lines := len(skipped.read_bytes().splitlines())):
        notes.append(f"{lines} lines of the data file were skipped (skipped.jsonl)")
    failed = [label == "error" for label in requests.labels["finish"]]
    if broken := int(np.array(failed, np.bool_)[requests.codes["finish"]].sum()):
        notes.append(f"{broken} texts broke off with an error: what they had until then is counted")
    return tuple(notes)


def _texts(tokens: Table, names: Sequence[str], buckets: Sequence[str]) -> dict[str, Any]:
    """starts, drafter_of, bucket_of and rounds of Evidence; the plain first token of each text is no start."""
    decided = tokens.numbers["pos"] > 0
    drafter, bucket = _recoded(tokens, "drafter", names), _recoded(tokens, "bucket", buckets)
    prompt = tokens.numbers["prompt"]
    new_text = np.ones(len(prompt), np.bool_)
    new_text[1:] = (np.diff(prompt) != 0) | (np.diff(drafter) != 0)
    _check_order(tokens.numbers["pos"], new_text, prompt[new_text] * len(names) + drafter[new_text])
    second = np.flatnonzero(new_text[:-1] & decided[1:]) + 1  # of texts that decided a token: their first start
    begins = np.zeros(len(prompt), np.bool_)
    begins[second] = True
    text = np.cumsum(begins)[decided] - 1
    offered, keep, accept = tokens.numbers["offered"], tokens.lists["keep"], tokens.lists["accept"]
    if ((offered < 0) | (offered > keep.shape[1])).any():
        raise InputError("the run's token rows offer more drafts than the run's gamma")
    starts = Starts(text, offered[decided], keep[decided], accept[decided])
    return {
        "starts": starts,
        "drafter_of": drafter[second],
        "bucket_of": bucket[second],
        "rounds": _rounds(tokens, decided, starts.prompt),
    }


def _check_order(position: NDArray[Any], new_text: NDArray[np.bool_], key: NDArray[np.int64]) -> None:
    """Every text has each of its positions once, from 0 on, and no text comes twice."""
    follows = np.diff(position) == 1
    if position[new_text].any() or not (follows | new_text[1:]).all() or len(np.unique(key)) != len(key):
        raise InputError("the run's token rows are not whole: a part is missing, or comes twice")


def _rounds(tokens: Table, decided: NDArray[np.bool_], text: NDArray[np.int64]) -> Rounds:
    """The rounds that were run, from the tokens they emitted."""
    number = tokens.numbers["round"][decided]
    begins = np.flatnonzero(np.diff(text, prepend=-1) | np.diff(number, prepend=number[:1]))
    labels = tokens.labels["outcome"]

    def count(outcome: str) -> NDArray[np.int64]:
        if outcome not in labels:
            return np.zeros(len(begins), np.int64)
        hits = tokens.codes["outcome"][decided] == labels.index(outcome)
        return np.asarray(np.add.reduceat(hits, begins, dtype=np.int64))

    accepted = count("accepted")
    return Rounds(
        prompt=text[begins],
        drafted=tokens.numbers["drafted"][decided][begins].astype(np.int64),
        accepted=accepted,
        tested=accepted + count("correction"),
        emitted=np.diff(np.append(begins, len(text))),
    )


def _recoded(table: Table, name: str, labels: Sequence[str]) -> NDArray[np.int64]:
    """Codes of a text column as indices into `labels`."""
    places = {label: place for place, label in enumerate(labels)}
    if unknown := [label for label in table.labels[name] if label not in places]:
        raise InputError(f"the run's rows name a {name} that run.json does not: {unknown[0]!r}")
    return np.array([places[label] for label in table.labels[name]], np.int64)[table.codes[name]]

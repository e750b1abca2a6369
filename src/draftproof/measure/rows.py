"""Records -> the two tables of a part: one row a token, one row a text.

Token rows: drafter, prompt, bucket, pos, token; round, depth, outcome, drafted (counted, at the longest draft);
offered, keep, accept (expected, of a round that starts at this token). Sorted by prompt, drafter, position.

Invariant: a table is a function of its records; no time, no machine, no order of computing is in it.
Does not know: files, runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.measure.arrow import arrow
from draftproof.measure.bench import Record
from draftproof.measure.rounds import OUTCOMES

_EXCLUDED = b"draftproof.excluded"


def token_table(records: Sequence[Record], labels: Sequence[str]) -> Any:
    """pyarrow.Table of the tokens. labels: of all drafters, in their order."""
    pa = arrow()
    lengths = [len(record.rounds.tokens) for record in records]

    def each(values: Sequence[int], kind: type) -> Any:
        return pa.array(np.repeat(np.array(values, kind), lengths))

    def joined(name: str, kind: type) -> Any:
        return pa.array(np.concatenate([np.array(getattr(r.rounds, name), kind) for r in records]))

    buckets = _distinct([record.prompt.bucket for record in records])
    columns = {
        "drafter": _coded(each([labels.index(record.label) for record in records], np.int32), labels),
        "prompt": each([record.prompt.number for record in records], np.int32),
        "bucket": _coded(each([buckets.index(record.prompt.bucket) for record in records], np.int32), buckets),
        "pos": pa.array(np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])),
        "token": joined("tokens", np.int32),
        "round": joined("round", np.int32),
        "depth": joined("depth", np.int16),
        "outcome": _coded(joined("outcome", np.int32), OUTCOMES),
        "drafted": joined("drafted", np.int16),
        "offered": pa.array(np.concatenate([record.lists.offered for record in records]).astype(np.int16)),
        "keep": _lists(records, "keep"),
        "accept": _lists(records, "accept"),
    }
    return pa.table(columns)


def prompt_table(records: Sequence[Record]) -> Any:
    """pyarrow.Table of the texts; how many tokens the target's law excludes is in the table's metadata."""
    pa = arrow()
    integers = {
        "prompt": [record.prompt.number for record in records],
        "line": [record.prompt.line for record in records],
        "prompt_tokens": [len(record.prompt.tokens) for record in records],
        "completion_tokens": [len(record.rounds.tokens) for record in records],
        "rounds": [record.rounds.num_rounds for record in records],
    }
    texts = {
        "bucket": [record.prompt.bucket for record in records],
        "drafter": [record.label for record in records],
        "finish": [record.rounds.finish for record in records],
    }
    order = ("prompt", "line", "bucket", "drafter", "prompt_tokens", "completion_tokens", "finish", "rounds")
    columns = {
        name: pa.array(integers[name], pa.int32()) if name in integers else pa.array(texts[name], pa.string())
        for name in order
    }
    excluded = sum(record.excluded for record in records)
    return pa.table(columns).replace_schema_metadata({_EXCLUDED: str(excluded).encode()})


def excluded_tokens(schema: Any) -> int:
    """Tokens of a part's texts that the target's law gave no chance, from the schema of its prompt table."""
    return int((schema.metadata or {}).get(_EXCLUDED, b"0"))


def _coded(codes: Any, labels: Sequence[str]) -> Any:
    return arrow().DictionaryArray.from_arrays(codes, arrow().array(list(labels), arrow().string()))


def _distinct(names: Sequence[str]) -> list[str]:
    """In order of their first occurrence."""
    return list(dict.fromkeys(names))


def _lists(records: Sequence[Record], name: str) -> Any:
    """list<float32> of each start."""
    pa = arrow()
    lengths = np.concatenate([record.lists.length for record in records])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(_flat(records, name)))


def _flat(records: Sequence[Record], name: str) -> NDArray[np.float32]:
    parts = []
    for record in records:
        dense: NDArray[np.float32] = getattr(record.lists, name)
        parts.append(dense[np.arange(dense.shape[1]) < record.lists.length[:, None]])
    return np.concatenate(parts)

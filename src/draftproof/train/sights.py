"""What the target said of texts, read once and kept in memory in bfloat16 for all passes over them.

A text's hidden states come from whatever will serve (the engine's own 8-bit target, say), one text at a time, so they
follow from the text alone: a resumed run sees the same bits, whatever was read before it was killed. Of the target's
law after each token only the likeliest draft tokens are kept, renormalised: they hold 95 % of it.

Invariant: what is kept at a time fits into the budget: texts are read window by window.
Does not know: losses, optimisers, files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from draftproof.train.texts import Text

LIKELY = 32  # tokens kept of each law
BUDGET = 4 << 30  # bytes of kept texts


class Reader(Protocol):
    """Runs a target over one text."""

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """int64[S] -> features [S, k * H] and what meets the output rows [S, H], both float32."""
        ...


class ModuleReader:
    """The transformers module itself. layers: depths of the features."""

    def __init__(self, model: Any, layers: Sequence[int]) -> None:
        self._base, self._layers = model.base_model, tuple(layers)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As `Reader`."""
        found = self._base(input_ids=tokens[None], output_hidden_states=True, use_cache=False)
        states = [found.hidden_states[layer][0] for layer in self._layers]
        return torch.cat(states, -1).float(), found.last_hidden_state[0].float()


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One text of S tokens."""

    tokens: Tensor  # int64[S]
    prompt_len: int
    features: Tensor  # bfloat16[S, k * H]
    likely: Tensor  # int32[S, K] rows of the draft ids, likeliest first
    chances: Tensor  # float16[S, K] summing to 1


@dataclass(slots=True, eq=False)
class Glance:
    """A batch of seen texts, padded on the right: what the fused loss needs."""

    tokens: Tensor  # int64[B, S]
    features: Tensor  # float32[B, S, k * H]
    likely: Tensor  # int64[B, S, K]
    chances: Tensor  # float32[B, S, K] of the target after each token
    counts: Tensor  # bool[B, S]: True where the *next* token belongs to a completion
    roots: Tensor  # int64[B, R] ascending: the places whose first draft counts; shorter texts have others behind them


@torch.no_grad()
def seen(text: Text, reader: Reader, output: Tensor, max_length: int, likely: int = LIKELY) -> Seen:
    """Reads a text. output: [Vd, H], the target's rows of the draft ids."""
    tokens = torch.from_numpy(text.tokens[:max_length]).long()
    features, last = reader.read(tokens)
    values, rows = functional.linear(last, output).topk(min(likely, len(output)), -1)
    chances = torch.softmax(values, -1)
    return Seen(tokens, text.prompt_len, features.bfloat16(), rows.int(), chances.half())


class Library:
    """Texts of a run, of which one window after another is read and kept; what it keeps fits into the budget.

    read: one text. width: bytes kept for each token. budget: bytes of a window (one text fits always).
    """

    def __init__(self, texts: Sequence[Text], read: Callable[[Text], Seen], width: int, budget: int = BUDGET) -> None:
        self._texts, self._read = texts, read
        self._kept: dict[int, Seen] = {}
        self.windows: list[range] = []
        self.sizes = [len(text.tokens) for text in texts]
        first, left = 0, budget
        for index, size in enumerate(self.sizes):
            if index > first and left < size * width:
                self.windows.append(range(first, index))
                first, left = index, budget
            left -= size * width
        self.windows.append(range(first, len(texts)))

    def shares(self, steps: int) -> list[tuple[range, int]]:
        """Each window with its number of steps, by its tokens."""
        done, total, found = 0, sum(self.sizes), list[tuple[range, int]]()
        for window in self.windows:
            before, done = done, done + sum(self.sizes[i] for i in window)
            found.append((window, steps * done // total - steps * before // total))
        return found

    def open(self, index: int) -> None:
        """Reads the window that text `index` is in, unless it is the open one."""
        if index in self._kept:
            return
        window = next(each for each in self.windows if index in each)
        self._kept.clear()
        for each in window:
            self._kept[each] = self._read(self._texts[each])

    def first(self) -> Library:
        """A library of the first window alone, which must be open: what was read of it is shared."""
        window = self.windows[0]
        alone = Library(self._texts[: len(window)], self._read, 0)
        alone._kept = {index: self._kept[index] for index in window}
        return alone

    def of(self, indices: Sequence[int]) -> list[Seen]:
        """These texts, of one window."""
        self.open(indices[0])
        return [self._kept[i] for i in indices]


def kept_width(num_features: int, likely: int = LIKELY) -> int:
    """Bytes kept for each token of a text. num_features: k * H."""
    return 8 + 2 * num_features + 6 * likely


def glance(texts: Sequence[Seen]) -> Glance:
    """These texts as one batch."""
    length = max(len(text.tokens) for text in texts)
    counts = torch.zeros(len(texts), length, dtype=torch.bool)
    for row, text in enumerate(texts):
        counts[row, text.prompt_len - 1 : len(text.tokens) - 1] = True
    starts = torch.tensor([max(0, text.prompt_len - 2) for text in texts])
    most = max(1, max(len(text.tokens) - 2 - int(start) for text, start in zip(texts, starts, strict=True)))
    roots = (starts[:, None] + torch.arange(most)).clamp(max=length - 1)

    def joined(name: str, dtype: torch.dtype) -> Tensor:
        parts = [getattr(text, name) for text in texts]
        batch = torch.zeros(len(texts), length, *parts[0].shape[1:], dtype=dtype)
        for row, part in enumerate(parts):
            batch[row, : len(part)] = part
        return batch

    return Glance(
        joined("tokens", torch.int64),
        joined("features", torch.float32),
        joined("likely", torch.int64),
        joined("chances", torch.float32),
        counts,
        roots,
    )

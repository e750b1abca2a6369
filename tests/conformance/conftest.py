"""Every drafter, and lives of sequences in which anything may be refused.

A `Life` plays the engine's part for one sequence without a target: it makes items, and commits a random path of the
draft followed by a random token. Drafters must be right whatever becomes of their drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from draftproof.drafters.cascade import Cascade
from draftproof.drafters.eagle import EagleDrafter
from draftproof.drafters.fixed_tree import FixedTreeDrafter
from draftproof.drafters.medusa import MedusaDrafter
from draftproof.drafters.model import EarlyExitDrafter, ModelDrafter
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.none import NoneDrafter
from draftproof.drafters.routed import Routed
from draftproof.drafters.scripted import LawDrafter, ScriptedDrafter
from draftproof.drafters.shadow import Shadow
from draftproof.drafters.suffix import SuffixDrafter
from draftproof.drafters.tree_shape import DynamicShape, Prices, StaticShape
from draftproof.kv.ledger import PageLedger
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.models.toy_head import HashHead
from draftproof.models.toy_medusa import HashHeads
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit, SamplingParams, StepItem

V = 9
STOP = frozenset({8})
PARAMS = (
    {},
    {"temperature": 0.8, "rule": "coupled", "top_p": 0.9},
    {"temperature": 1.0, "rule": "reject"},
    {"temperature": 1.3, "rule": "reject", "top_k": 4, "frequency_penalty": 0.4},
    {"temperature": 1.0, "rule": "block"},
    {"temperature": 0.7, "rule": "follow", "presence_penalty": 0.5},
    {"repetition_penalty": 1.2, "bad_words": ((1, 2),), "min_new_tokens": 3},
)
BUDGETS = (0, 1, 2, 3, 5, 9)


def second_model(**options):
    """(target, ledger, target's vocabulary): a model whose texts repeat, on pages of four rows, two rows at least."""
    toy = ToyOptions(max_len=400, num_pages=800, page_size=4, min_rows=2)
    target = HashTarget(V, seed=3, window=2, scale=3.0, options=toy, **options)
    return target, PageLedger(toy.num_pages, toy.page_size), V


def branches(item):
    """A script that depends on the round only."""
    return [(item.round + 3 * k) % V for k in range(12)]


def routed():
    """Sequences by turns: two drafters of different kinds, a shadow, nobody; further ones and 0 have a model."""
    drafters = {"suffix": SuffixDrafter(), "model": ModelDrafter(*second_model()), "shadow": Shadow(NgramDrafter())}
    made = Routed(drafters, default="model")
    for seq, label in enumerate(("model", "suffix", "shadow", None)):
        made.assign(seq, label)
    return made


class Fed:
    """A drafter that wants hidden states, given those of each item's past as a target would have given them."""

    wants: frozenset[str] = frozenset()

    def __init__(self, inner):
        assert inner.wants == {"features"}
        self._inner, self.name, self.forget, self.observe = inner, inner.name, inner.forget, inner.observe

    def propose(self, items, noise):
        for item in items:
            states = np.stack([np.cumsum(item.tokens[:-1]), item.tokens[:-1]], 1).astype(np.float32)
            if len(states):
                self._inner.observe([Commit(item.seq, item.tokens[:0], range(len(states)), features=states)])
        return self._inner.propose(items, noise)


def head(**options):
    target = HashHead(6, num_pages=800, max_len=400)
    ledger = PageLedger(800, 4)
    return EagleDrafter(target, ledger, V, mapping=[0, 1, 3, 5, 7, 8], **options)


def medusa(**options):
    return MedusaDrafter(HashHeads(6), V, mapping=[0, 1, 3, 5, 7, 8], **options)


LAWS = np.array([[0.5, 0.3, 0.2, 0, 0, 0, 0, 0, 0], np.full(V, 1 / V)])
TREE = {"parents": [0, 0, 1, 1, 2, 2, 3], "law_row": [0, 0, 1, 1, 1, 1, 0]}
MAKERS: dict[str, Callable[[], object]] = {
    "none": NoneDrafter,
    "ngram": NgramDrafter,
    "ngram-1-5": lambda: NgramDrafter(5, 1),
    "suffix": SuffixDrafter,
    "suffix-eager": lambda: SuffixDrafter(min_match=1, min_probability=0.01),
    "model": lambda: ModelDrafter(*second_model()),
    "model-chunked": lambda: ModelDrafter(*second_model(), chunk=3),
    "model-cautious": lambda: ModelDrafter(*second_model(), min_probability=0.4),
    "early_exit": lambda: EarlyExitDrafter(*second_model(jitter=0.5)),
    "fixed_tree": lambda: FixedTreeDrafter(*second_model()),
    "fixed_tree-chunked": lambda: FixedTreeDrafter(*second_model(), widths=(2, 2, 2), chunk=3),
    "eagle": lambda: Fed(head(min_path=0.0)),
    "eagle-tree": lambda: Fed(head(tree=DynamicShape(widths=(3, 2, 2, 2, 1, 1)))),
    "eagle-tree-auto": lambda: Fed(head(tree=DynamicShape(Prices(0.05, 0.02, 0.1)), chunk=3)),
    "eagle-tree-static": lambda: Fed(head(tree=StaticShape.of_widths((2, 2, 1)))),
    "eagle-cautious": lambda: Fed(head(min_path=0.4, chunk=3)),
    "medusa": lambda: Fed(medusa(min_path=0.0)),
    "medusa-cautious": lambda: Fed(medusa(min_path=0.4)),
    "medusa-tree": lambda: Fed(medusa(tree=DynamicShape(widths=(3, 2, 2, 2, 1, 1)))),
    "medusa-tree-static": lambda: Fed(medusa(tree=StaticShape.of_widths((2, 2, 1)))),
    "cascade": lambda: Fed(Cascade([SuffixDrafter(), head()])),
    "cascade-tree": lambda: Fed(Cascade([SuffixDrafter(), head(tree=DynamicShape(widths=(3, 2, 2, 2, 1, 1)))])),
    "cascade-tree-static": lambda: Fed(Cascade([SuffixDrafter(), head(tree=StaticShape.of_widths((2, 2, 1)))])),
    "scripted": lambda: ScriptedDrafter(branches),
    "laws-iid": lambda: LawDrafter(LAWS, "iid", **TREE),
    "laws-distinct": lambda: LawDrafter(LAWS, "distinct", **TREE),
    "shadow": lambda: Shadow(NgramDrafter()),
    "shadow-model": lambda: Shadow(ModelDrafter(*second_model())),
    "routed": routed,
}
WITH_MODEL = [name for name in MAKERS if name.split("-")[0] in ("model", "early_exit", "fixed_tree")]


@dataclass
class Life:
    """One sequence as an engine would run it, with outcomes drawn from `rng`."""

    seq: int
    tokens: list[int]
    prompt_len: int
    params: SamplingParams
    rng: np.random.Generator
    round: int = 0
    unfed: int = field(default=1)

    def item(self, budget: int, seq: int | None = None) -> StepItem:
        ids = np.array(self.tokens, np.int32)
        ids.setflags(write=False)
        number = self.seq if seq is None else seq
        return StepItem(number, ids, self.prompt_len, 1, 1, budget, self.params, self.round, STOP)

    def commit(self, draft, keep: float = 0.7) -> Commit:
        """Walks down the draft, each child with probability `keep`, then emits one token of its own."""
        path, node = [], 0
        while True:
            children = [i + 1 for i, parent in enumerate(draft.parents.tolist()) if parent == node]
            if not children or self.rng.random() > keep:
                break
            node = int(self.rng.choice(children))
            path.append(node)
        emitted = [int(draft.tokens[i - 1]) for i in path]
        emitted.append(self._next())
        self.tokens += emitted
        self.round += 1
        kept = (0, *path)
        return Commit(self.seq, np.array(emitted, np.int32), kept, num_accepted=len(path), num_drafted=len(draft))

    def _next(self) -> int:
        """Mostly what followed this token before, so that lookups find something."""
        last = self.tokens[-1]
        before = [self.tokens[i + 1] for i in range(len(self.tokens) - 1) if self.tokens[i] == last]
        return int(before[-1]) if before and self.rng.random() < 0.7 else int(self.rng.integers(V))


@pytest.fixture
def lives():
    """lives(seed, count): sequences with mixed prompts and parameters."""

    def make(seed: int, count: int = 4) -> list[Life]:
        rng = np.random.default_rng(seed)
        made = []
        for seq in range(count):
            prompt = rng.integers(0, V, int(rng.integers(1, 12))).tolist()
            params = SamplingParams(seed=1000 * seed + seq, **PARAMS[(seed + seq) % len(PARAMS)])
            made.append(Life(seq, prompt, len(prompt), params, rng))
        return made

    return make


@pytest.fixture(params=list(MAKERS))
def make_drafter(request):
    """The maker of each drafter in turn."""
    return MAKERS[request.param]


@pytest.fixture(params=WITH_MODEL)
def make_with_model(request):
    """The maker of each drafter that owns a model."""
    return MAKERS[request.param]


@pytest.fixture
def noise():
    return PhiloxNoise()


@pytest.fixture
def same():
    """same(a, b): two drafts equal in everything, laws bit for bit."""

    def equal(a, b) -> bool:
        laws = (a.laws is None and b.laws is None) or (
            a.laws is not None and b.laws is not None and np.array_equal(a.laws[: len(a)], b.laws[: len(b)])
        )
        arrays = [(a.tokens, b.tokens), (a.parents, b.parents), (a.law_row, b.law_row)]
        return laws and a.siblings == b.siblings and all(np.array_equal(x, y) for x, y in arrays)

    return equal


@pytest.fixture
def budgets():
    """budgets(rng, count): ragged, 0 among them."""
    return lambda rng, count: [int(rng.choice(BUDGETS)) for _ in range(count)]

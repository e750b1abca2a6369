"""Each sequence by its own drafter; a broken drafter costs its own drafts only."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.drafters.routed import Routed
from draftproof.drafters.scripted import ScriptedDrafter
from draftproof.errors import UnknownDrafter
from draftproof.noise import PhiloxNoise
from draftproof.types import Commit

NOISE = PhiloxNoise()


class Watched(ScriptedDrafter):
    """Remembers whom it saw; raises where it is told to."""

    def __init__(self, token, breaks=()) -> None:
        super().__init__(lambda item: [token] * 4)
        self.seen: dict[str, list[list[int]]] = {"propose": [], "observe": [], "forget": []}
        self.breaks = breaks

    def _see(self, what, seqs):
        self.seen[what].append(seqs)
        if what in self.breaks:
            raise OSError(what)

    def propose(self, items, noise):
        self._see("propose", [item.seq for item in items])
        return super().propose(items, noise)

    def observe(self, commits):
        self._see("observe", [commit.seq for commit in commits])

    def forget(self, seq):
        self._see("forget", [seq])


def commits(*seqs):
    return [Commit(seq, np.array([1], np.int32), range(1)) for seq in seqs]


def tokens(drafts):
    return [draft.tokens.tolist() for draft in drafts]


def test_every_sequence_has_its_own_drafter(item):
    one, two = Watched(1), Watched(2)
    routed = Routed({"one": one, "two": two}, default="two")
    for seq, label in ((10, "one"), (11, "two"), (12, None), (13, "one")):
        routed.assign(seq, label)
    items = [item([0], budget, seq) for seq, budget in ((10, 2), (11, 1), (12, 3), (13, 0), (14, 1))]
    assert tokens(routed.propose(items, NOISE)) == [[1, 1], [2], [], [], [2]]
    routed.observe(commits(10, 12, 14))
    for seq in (10, 11, 12, 12):
        routed.forget(seq)
    assert one.seen == {"propose": [[10]], "observe": [[10]], "forget": [[10]]}
    assert two.seen["propose"] == [[11, 14]]
    assert two.seen["observe"] == [[14]]
    assert two.seen["forget"] == [[11], [12]]  # forgotten twice: by then it is the default's
    assert routed.route(10) == "two"


def test_nobody_drafts_by_default(item):
    routed = Routed({"one": Watched(1)})
    assert tokens(routed.propose([item([0], 3)], NOISE)) == [[]]
    assert Routed({}).propose([item([0], 3)], NOISE)[0].tokens.tolist() == []


def test_unknown_labels_are_refused():
    routed = Routed({"one": Watched(1)})
    with pytest.raises(UnknownDrafter, match="one"):
        routed.assign(0, "two")
    with pytest.raises(UnknownDrafter, match="none"):
        Routed({}, default="two")


@pytest.mark.parametrize("what", ["propose", "observe"])
def test_a_fault_costs_its_own_sequences_their_drafts(what, item):
    faults = []
    bad, good = Watched(1, breaks=(what,)), Watched(2)
    routed = Routed({"bad": bad, "good": good}, on_fault=lambda *fault: faults.append(fault))
    routed.assign(0, "bad")
    routed.assign(1, "good")
    items = [item([0], 2, 0), item([0], 2, 1)]
    assert tokens(routed.propose(items, NOISE))[1] == [2, 2]
    routed.observe(commits(0, 1))
    assert [(label, list(seqs), type(error)) for label, seqs, error in faults] == [("bad", [0], OSError)]
    assert bad.seen["forget"] == [[0]]  # its memory is given back
    assert tokens(routed.propose(items, NOISE)) == [[], [2, 2]]
    assert routed.route(0) is None


def test_a_fault_in_forget_is_told_and_survived():
    faults = []
    routed = Routed({"bad": Watched(1, breaks=("forget",))}, on_fault=lambda *fault: faults.append(fault))
    routed.assign(0, "bad")
    routed.forget(0)
    assert len(faults) == 1


def test_too_long_a_draft_is_a_fault(item):
    class Eager(ScriptedDrafter):
        def propose(self, items, noise):
            return super().propose([item([0], 9, it.seq) for it in items], noise)

    faults = []
    routed = Routed({"eager": Eager(lambda _: [1] * 9)}, "eager", lambda *fault: faults.append(fault))
    assert tokens(routed.propose([item([0], 2)], NOISE)) == [[]]
    assert "9 nodes over 2" in str(faults[0][2])


def test_without_anybody_to_tell_a_fault_is_raised(item):
    with pytest.raises(OSError, match="propose"):
        Routed({"bad": Watched(1, breaks=("propose",))}, "bad").propose([item([0], 2)], NOISE)

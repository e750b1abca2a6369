"""Who runs in a step, how much of each sequence is fed, and how far each may guess: continuous batching.

Sequences join and leave at any step. A sequence one token behind its cache decides a token in every step; one that is
further behind (a new prompt, or one that lost its pages) is fed in chunks from the rows that are left. Sequences are
admitted in order of arrival; when pages run out, look-ahead is given up first, then the youngest sequence gives back
its pages and waits at the front of the line: its tokens stay, only its rows are computed again.

Invariants: no step feeds a sequence prompt rows and later ones; kv_len + pending == len(tokens), and pending == 1
after a decided round; a step has at most max_step_rows rows; every running sequence that is one token behind runs in
every step; while there is work, a plan is never empty.

Does not know: logits, laws, drafters, text, threads. One owner calls it; the ledger's commits happen before `apply`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter

from draftproof.errors import EngineError, InvalidPrompt, PromptTooLong
from draftproof.kv.ledger import PageLedger
from draftproof.sched.fit import fitted
from draftproof.sched.limits import Limits as Limits
from draftproof.sched.policy import Ask, DraftPolicy
from draftproof.sched.sequence import SequenceState, ended, event_of
from draftproof.types import Commit, Draft, Event, Plan, Request, Slots, StepItem

_ORDER = attrgetter("order")


class _Step:
    """A plan as it grows."""

    __slots__ = ("items", "rows_left", "slots")

    def __init__(self, rows: int) -> None:
        self.items: list[StepItem] = []
        self.slots: list[Slots] = []
        self.rows_left = rows

    def add(self, state: SequenceState, feed: int, budget: int, slots: Slots) -> None:
        request = state.request
        item = StepItem(
            seq=state.seq,
            tokens=state.tokens,
            prompt_len=state.prompt_len,
            pending=state.pending,
            feed=feed,
            budget=budget,
            params=request.params,
            round=state.round,
            stop_ids=request.stop_ids,
            features=state.features,
        )
        self.items.append(item)
        self.slots.append(slots)
        self.rows_left -= slots.rows


class BatchScheduler:
    """Continuous batching over one ledger (`protocols.Scheduler`). Sequence numbers are never used twice."""

    def __init__(self, ledger: PageLedger, limits: Limits, policy: DraftPolicy) -> None:
        self._ledger = ledger
        self._limits = limits
        self._policy = policy
        self._sequences: dict[int, SequenceState] = {}
        self._running: list[SequenceState] = []  # both in order of arrival
        self._waiting: list[SequenceState] = []
        self._events: list[Event] = []
        self._next_seq = 0
        # The last round of a text has one row to feed and min_rows to reserve: beyond two, the padding costs context.
        self._padding = max(0, limits.min_rows - 2)
        self.max_len = min(limits.max_len, ledger.max_rows) - self._padding

    @property
    def has_work(self) -> bool:
        """True while a sequence runs or waits, or an event waits to be drained."""
        return bool(self._running or self._waiting or self._events)

    @property
    def num_running(self) -> int:
        """Sequences that hold, or are about to hold, pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences in the line, those that lost their pages included."""
        return len(self._waiting)

    def sequence(self, seq: int) -> SequenceState:
        """The state of a sequence that has not ended, to read. Raises KeyError for any other."""
        return self._sequences[seq]

    def check(self, request: Request) -> None:
        """Raises InvalidPrompt when the prompt is empty, PromptTooLong when no new token would have room."""
        length = len(request.prompt)
        if not length:
            raise InvalidPrompt("the prompt is empty: give at least one token")
        if length + 1 > self.max_len:
            raise PromptTooLong(self._too_long(length))

    def submit(self, request: Request) -> int:
        """Queues a request, returns its sequence number. Raises as `check` does."""
        self.check(request)
        state = SequenceState(self._next_seq, request, self.max_len)
        self._next_seq += 1
        if state.room == 0:  # no new token was asked for
            self._events.append(ended(state, "length"))
            return state.seq
        self._sequences[state.seq] = state
        insort(self._waiting, state, key=_ORDER)
        return state.seq

    def cancel(self, seq: int) -> None:
        """Ends a sequence wherever it is; its pages are free when this returns. One that has ended is no error.

        The event is in the next `drain`. A commit of the step in flight is ignored by `apply`; it must not be given
        to the ledger any more, so call this between steps.
        """
        state = self._sequences.get(seq)
        if state is not None:
            self._leave(state)
            self._events.append(ended(state, "cancelled"))

    def abandon(self, plan: Plan) -> None:
        """A step that broke off: its sequences give back their pages and compute their rows again; tokens stay."""
        for item in plan.items:
            state = self._sequences.get(item.seq)
            if state is not None and state.running:
                self._evict(state)

    def drain(self) -> list[Event]:
        """Events that no step caused: cancelled requests, and those that asked for no token. Each is given once."""
        events, self._events = self._events, []
        return events

    def plan(self) -> Plan:
        """Who runs, how much is fed, how much may be drafted; rows are reserved. Decoding sequences come first."""
        step = _Step(self._limits.max_step_rows)
        decoding = [state for state in self._running if state.pending == 1]
        prompts = [state for state in self._running if state.pending > 1]
        for state, budget in zip(decoding, self._budgets(decoding, prompts), strict=True):
            if state.running:  # else an older one took its pages
                self._place(step, state, 1, budget)
        for state in prompts:
            if state.running and step.rows_left >= self._limits.min_rows:
                self._place(step, state, self._chunk(step, state), 0)
        self._admit(step)
        return Plan(tuple(step.items), tuple(step.slots))

    def fit(self, items: Sequence[StepItem], drafts: Sequence[Draft], like: Callable[[int], float]) -> list[Draft]:
        """The drafts, cut to what pays in this step (`sched.fit`)."""
        return fitted(self._policy, items, drafts, like)

    def apply(self, commits: Sequence[Commit]) -> list[Event]:
        """Advances, finishes, frees; what streams may see. The ledger has been told of these commits before.

        Raises EngineError when a commit breaks an invariant of this module.
        """
        commits = [commit for commit in commits if commit.seq in self._sequences]  # else cancelled since the plan
        self._policy.observe(commits)
        events = []
        for commit in commits:
            state = self._sequences[commit.seq]
            self._advance(state, commit)
            if commit.finish is not None:
                self._leave(state)
            if commit.finish is not None or commit.verdict is not None:
                events.append(event_of(state, commit))
        return events

    def _budgets(self, decoding: list[SequenceState], prompts: list[SequenceState]) -> list[int]:
        """Draft budgets of the decoding sequences.

        Rows are shared evenly, after those of a prompt chunk where one is to come. Look-ahead pages come last: none
        where they would be missing to a running prompt, or would keep the head of the line waiting.
        """
        if not decoding:
            return []
        limits = self._limits
        joining = self._waiting[:1] if len(self._running) < limits.max_sequences else []
        spare = limits.max_step_rows - len(decoding) * limits.min_rows
        if prompts or joining:
            spare = max(0, spare - max(limits.chunk_rows, limits.min_rows))
        cap = limits.min_rows - 1 + spare // len(decoding)
        asks = [self._ask(state, cap) for state in decoding]
        budgets = self._policy.budgets(asks)
        none = [0] * len(decoding)
        pages = self._ledger.free_pages - self._promised(prompts)
        left = pages - self._promised(joining)
        if joining and self._look_ahead(decoding, none) <= left:
            pages = left
        return budgets if self._look_ahead(decoding, budgets) <= pages else none

    def _look_ahead(self, decoding: list[SequenceState], budgets: list[int]) -> int:
        """Free pages that a step with these budgets takes."""
        needed, least = self._ledger.pages_needed, self._limits.min_rows
        return sum(needed(state.seq, max(1 + budget, least)) for state, budget in zip(decoding, budgets, strict=True))

    def _ask(self, state: SequenceState, most: int) -> Ask:
        """What to ask the policy for one sequence that is one token behind.

        No draft before the first token, which comes no later than in plain decoding; and never one that could not
        reach the text (B30, B31): a round of n drafts emits up to n + 1 tokens.
        """
        request = state.request
        cap = request.params.max_draft_tokens
        if state.num_tokens == state.prompt_len:
            most = 0
        most = min(most, state.room - 1, most if cap is None else cap)
        return Ask(state.seq, request.params, max(0, most), request.bucket)

    def _chunk(self, step: _Step, state: SequenceState) -> int:
        """Rows to feed: prompt rows first, what was decided before the pages were lost in a step of its own."""
        ahead = state.prompt_len - state.kv_len
        return min(ahead if ahead > 0 else state.pending, self._limits.chunk_rows, step.rows_left)

    def _place(self, step: _Step, state: SequenceState, feed: int, budget: int) -> None:
        """Reserves the rows of one running sequence, at the cost of the youngest that has no rows in this step yet."""
        rows = max(feed + budget, self._limits.min_rows)
        slots = self._ledger.reserve(state.seq, rows)
        while slots is None:
            placed = {item.seq for item in step.items}
            victim = next(other for other in reversed(self._running) if other.seq not in placed)
            self._evict(victim)
            if victim is state:
                return
            slots = self._ledger.reserve(state.seq, rows)
        step.add(state, feed, budget, slots)

    def _evict(self, state: SequenceState) -> None:
        """Takes a sequence's pages; what it has written stays, and its rows are fed again later."""
        self._ledger.release(state.seq)
        self._remove(state)
        state.kv_len = 0
        state.features = None
        insort(self._waiting, state, key=_ORDER)

    def _admit(self, step: _Step) -> None:
        """Lets waiting sequences in, first come first served, while the pages for all of their tokens are free."""
        limits = self._limits
        while self._waiting and len(self._running) < limits.max_sequences and step.rows_left >= limits.min_rows:
            state = self._waiting[0]
            if self._promised([*self._running, state]) > self._ledger.free_pages:
                return
            del self._waiting[0]
            insort(self._running, state, key=_ORDER)
            state.running = True
            if limits.prefix_cache:  # one token at least is fed, to be decided from
                state.adopt(self._ledger.adopt(state.seq, state.tokens[: min(state.prompt_len, state.num_tokens - 1)]))
            self._place(step, state, self._chunk(step, state), 0)

    def _promised(self, states: Sequence[SequenceState]) -> int:
        """Free pages these sequences will still take until they have caught up with their tokens."""
        ledger, padding = self._ledger, self._limits.min_rows - 1
        return sum(
            max(0, ledger.pages_for(state.num_tokens + padding) - ledger.pages_held(state.seq)) for state in states
        )

    def _advance(self, state: SequenceState, commit: Commit) -> None:
        state.extend(commit.tokens)
        state.kv_len += len(commit.kept)
        state.features = commit.features
        if state.kv_len != self._ledger.kv_len(state.seq):
            raise EngineError(f"sequence {state.seq}: its commit was not given to the ledger")
        if commit.verdict is not None:
            if state.round == 0 and self._limits.prefix_cache:
                self._ledger.publish(state.seq, state.request.prompt)
            state.round += 1
        if commit.finish is not None:
            return
        decided = commit.verdict is not None
        if state.pending < 1 or (decided and state.pending != 1) or state.room < 1:
            raise EngineError(
                f"sequence {state.seq} has {state.pending} tokens pending and room for {state.room} after its commit"
            )

    def _leave(self, state: SequenceState) -> None:
        """Forgets a sequence and frees its pages."""
        self._ledger.release(state.seq)
        self._remove(state)
        del self._sequences[state.seq]
        self._policy.forget(state.seq)

    def _remove(self, state: SequenceState) -> None:
        line = self._running if state.running else self._waiting
        del line[bisect_left(line, state.order, key=_ORDER)]
        state.running = False

    def _too_long(self, length: int) -> str:
        message = f"a prompt of {length} tokens leaves no room for a new one: "
        if self._limits.max_len <= self._ledger.max_rows:
            return f"{message}the model's context limit is {self._limits.max_len} tokens; shorten the prompt"
        return (
            f"{message}the memory budget holds {self._ledger.max_rows} tokens, the model's context limit is "
            f"{self._limits.max_len}; raise the memory budget or shorten the prompt"
        )

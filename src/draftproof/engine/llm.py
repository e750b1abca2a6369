"""`LLM`: a model and a drafter by name, prompts in, texts out.

    with LLM("demo", drafter="suffix") as llm:
        print(llm.generate("Once upon a time")[0].text)

One engine behind it runs all requests of all callers in one batch: `generate` and `stream` submit theirs and step the
engine until theirs are done; streams may be interleaved. Calls from several threads take turns.

Does not know: HTTP, files, printing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from draftproof.engine import prompts as prompting
from draftproof.engine.build import Built, build
from draftproof.engine.collect import Collector
from draftproof.engine.options import EngineOptions
from draftproof.engine.outputs import Output, StreamChunk
from draftproof.engine.prompts import Prompt
from draftproof.engine.score import last_row
from draftproof.errors import EngineError, InvalidParams, InvalidPrompt
from draftproof.protocols import Drafter
from draftproof.types import FloatArray, Request, SamplingParams


class _Live:
    """A request in flight: its sequence, its collector, and the chunks its reader has not taken."""

    def __init__(self, seq: int, collector: Collector) -> None:
        self.seq = seq
        self.collector = collector
        self.chunks: deque[StreamChunk] = deque()


class LLM:
    """A target model, a drafter and an engine.

    model: "demo", a Hugging Face folder or id (fetched before), or a GGUF file.
    drafter: none, ngram, suffix, model, early_exit, fixed_tree, eagle, medusa, cascade; or an object with the `Drafter`
        protocol.
    draft_model: the second model of the drafters model and fixed_tree. exit_layer: layers early_exit (and a fixed_tree
        without a draft model) drafts with; default a third of the target's.
    gamma: draft length; None adapts it to what has been accepted, per sequence, up to the drafter's cap.
    tree: None drafts chains; the drafters eagle, medusa and cascade (its head) take "auto" (branches where they pay),
        "dynamic" (the likeliest nodes), widths by depth ("3,2,1") or places ("1 2 1.1"). gamma is then a number of
        nodes.
    weights: auto, float32, bfloat16, int8. "auto" is int8 for a GGUF file on the CPU, else float32.
    draft_weights: the same for the second model of the drafters model, early_exit and fixed_tree; "auto" is as the
        target's. The target itself with fewer bits is a drafter: model with draft_model=model, draft_weights="int8".
    backend: auto, openvino (CPU), torch (GPU, oracle). numerics: auto, invariant, fast.
    kv_memory: bytes of keys and values (default 1 GiB; a drafter with a model gets half as much again).
    max_sequences: most sequences running at once; more wait. chunk_rows: most tokens of a prompt fed in one step.
    enable_prefix_caching: prompts that begin like one before them reuse its keys and values. None does so where that
        changes no bit (numerics invariant) and the drafter does not read the whole prompt's hidden states (eagle,
        cascade).
    threads: of the model's kernels; None is all cores.
    huge_pages: whether the weights are moved to pages of 2 MiB once they are loaded, where the system can (backend
        openvino, Linux 6.1): faster steps for a start that takes longer, half a second for 200 MiB, never above ten.
    cost_file: what `draftproof cost` measured on this device; draft lengths are chosen by it (default: a small CPU's).
    progress: called with one line at each stage of loading.

    Raises InputError (ModelNotFound, CorruptModel, UnsupportedModel, PairingError, UnknownDrafter, InvalidParams).
    """

    def __init__(
        self,
        model: str | Path = "demo",
        *,
        drafter: str | Drafter = "none",
        progress: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        unknown = sorted(set(options) - set(EngineOptions.__dataclass_fields__))
        if unknown:
            known = ", ".join(sorted(EngineOptions.__dataclass_fields__))
            raise InvalidParams(f"LLM has no option {unknown[0]!r}; it has {known}")
        self._start(EngineOptions(model=str(model), drafter=drafter, **options), progress or (lambda _: None))

    @classmethod
    def from_options(cls, options: EngineOptions, progress: Callable[[str], None] = lambda _: None) -> LLM:
        """The same from one `EngineOptions`."""
        llm = cls.__new__(cls)
        llm._start(options, progress)
        return llm

    def _start(self, options: EngineOptions, report: Callable[[str], None]) -> None:
        self.options = options
        self._built: Built | None = build(options, report)
        self._live: dict[int, _Live] = {}
        self._next_id = 0
        self._lock = threading.RLock()

    # -- the parts, for those who look inside --------------------------------------------------------------------------

    @property
    def built(self) -> Built:
        """Engine, tokenizer, ledger and info. Raises EngineError after `close`."""
        if self._built is None:
            raise EngineError("this LLM is closed: make a new one")
        return self._built

    @property
    def info(self) -> dict[str, Any]:
        """What runs: model, weights, backend, numerics, drafter, its weights and tree, threads, memory, load time."""
        return dict(self.built.info)

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer."""
        return self.built.tokenizer

    # -- requests ------------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool | None = None,
    ) -> list[Output]:
        """Texts of all prompts, in order; they run in one batch.

        prompts: one prompt or a list. params: for all, or one for each. chat: True wraps strings into user messages.
        An invalid prompt or parameter is raised before any of them runs.
        """
        many = prompting.as_list(prompts)
        each = self._params(params, len(many))
        with self._lock:
            requests = [self._request(prompt, p, chat) for prompt, p in zip(many, each, strict=True)]
            lives: list[_Live] = []
            try:
                for request in requests:
                    lives.append(self._submit(request))  # noqa: PERF401 - what was submitted must be known at once
                while not all(live.collector.done for live in lives):
                    self._step()
            finally:
                for live in lives:
                    self._leave(live)
            return [live.collector.output() for live in lives]

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, chat: bool | None = None
    ) -> Iterator[StreamChunk]:
        """One prompt's text as it comes; the last chunk carries the `Output`. Closing the iterator cancels.

        What can't run is refused here; the request starts with the first chunk that is asked for.
        """
        with self._lock:
            return self._chunks(self._request(prompt, params or SamplingParams(), chat))

    def _chunks(self, request: Request) -> Iterator[StreamChunk]:
        with self._lock:
            live = self._submit(request)
        try:
            while True:
                with self._lock:
                    while not live.chunks:
                        self._step()
                    chunk = live.chunks.popleft()
                yield chunk
                if chunk.output is not None:
                    return
        finally:
            with self._lock:
                self._leave(live)

    def logits_at(self, prompt_token_ids: Sequence[int], token_ids: Sequence[int], position: int) -> FloatArray:
        """float[V]: the target's logits that decide output token `position`, after prompt and token_ids[:position]."""
        with self._lock:
            built = self.built
            if not 0 <= position <= len(token_ids):
                raise InvalidPrompt(f"position must be in 0..{len(token_ids)}, got {position}")
            tokens = [*prompt_token_ids, *token_ids[:position]]
            ids = prompting.encode(tokens, built.tokenizer, built.engine.target.vocab_size, None)
            return last_row(built.engine.target, built.ledger, ids.tolist(), len(prompt_token_ids))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _params(self, params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
        if params is None:
            params = SamplingParams()
        if isinstance(params, SamplingParams):
            return [params] * count
        if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
            raise InvalidParams("params must be a SamplingParams, or a list with one for each prompt")
        if len(params) != count:
            raise InvalidParams(f"{len(params)} sampling parameters for {count} prompts: give one, or one for each")
        return list(params)

    def _request(self, prompt: Prompt, params: SamplingParams, chat: bool | None) -> Request:
        built = self.built
        vocab_size = built.engine.target.vocab_size
        ids = prompting.encode(prompt, built.tokenizer, vocab_size, chat)
        resolved = prompting.resolve(params, built.tokenizer, vocab_size)
        number, self._next_id = self._next_id, self._next_id + 1
        ends = frozenset(end for end in prompting.stop_ids(params, built.tokenizer) if end < vocab_size)
        request = Request(number, ids, resolved, ends, arrival=number)
        built.engine.check(request)
        return request

    def _submit(self, request: Request) -> _Live:
        built = self.built
        seq = built.engine.submit(request)
        collector = Collector(request, built.tokenizer, built.info["drafter"], built.info["load_s"])
        live = self._live[request.id] = _Live(seq, collector)
        return live

    def _step(self) -> None:
        """One engine step; its events go to their readers."""
        engine = self.built.engine
        if not engine.has_work:
            raise EngineError("a request is unfinished but the engine has no work: please report this")
        for event in engine.step():
            live = self._live.get(event.request_id)
            if live is None:
                continue
            live.chunks.append(live.collector.take(event))
            if live.collector.done and event.finish is None:  # a stop string: the engine would go on
                engine.cancel(live.seq)

    def _leave(self, live: _Live) -> None:
        """Forgets a request; cancels it where it still runs."""
        if self._live.pop(live.collector.request.id, None) is None:
            return
        if not live.collector.done and self._built is not None:
            self._built.engine.cancel(live.seq)

    def close(self) -> None:
        """Frees the model and its memory; what still runs is dropped. Twice is no error."""
        with self._lock:
            self._built = None
            self._live.clear()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""Other engines as subjects: here and behind a pipe, with stand-ins for the packages that are not installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftproof.certify import Job, Plan, SubjectFailed, run
from draftproof.certify.adapters import PEERS, PeerReference, PeerSampler, open_peer
from draftproof.certify.adapters.registry import PeerEntry
from draftproof.certify.worker import Limits, WorkerPeer
from draftproof.errors import InputError, InvalidParams
from draftproof.params import SamplingParams

PEER = """
import os, sys, time

class Peer:
    supports = frozenset({"top_k"})
    vocab_size = 9

    def __init__(self, mood="well"):
        if mood == "no start":
            raise RuntimeError("two\\nlines")
        if mood == "no package":
            import there_is_no_such_package
        if mood == "slow start":
            time.sleep(60)
        self.mood, self.asked = mood, 0
        print("a library that talks")

    def facts(self):
        return {"engine": "toy"}

    def sample(self, prompt, asked):
        self.asked += 1
        if self.mood == "refuses":
            raise NotImplementedError("no such thing here")
        if self.mood == "raises":
            raise KeyError("oh")
        if self.asked > 2 and self.mood == "dies":
            print("my last words", file=sys.stderr)
            os._exit(3)
        if self.asked > 2 and self.mood == "stalls":
            time.sleep(60)
        if self.mood == "babbles":
            os.write(CHANNEL, b"not json\\n")
        return {"tokens": [len(prompt), asked["top_k"] or 0], "finish": "length", "rounds": [[2, 1, 1, 1]]}

    def rows(self, ids, num_rows, path):
        import array
        array.array("f", [float(i) for i in range(num_rows * 9)]).tofile(open(path, "wb"))

    def close(self):
        pass
"""


def job(**params: Any) -> Job:
    return Job(0, (1, 2, 3), SamplingParams(**{"temperature": 1.0, "seed": 1, "max_new_tokens": 2, **params}))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Any]:
    """worker(mood) -> PeerSampler over the peer above in a process of its own."""
    made: list[PeerSampler] = []
    path = tmp_path / "peer_toy.py"

    class Entry(PeerEntry):
        @property
        def path(self) -> Path:
            return path

    def make(mood: str = "well", python: str = sys.executable, **limits: float) -> PeerSampler:
        # the channel is the first descriptor that the child opens: the copy of its standard output
        path.write_text(PEER.replace("CHANNEL", "3"))
        peer = WorkerPeer(Entry("toy", "toy", "toy-package"), python, {"mood": mood}, Limits(**limits))
        made.append(PeerSampler("toy", peer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_worker_answers_as_the_peer_does(worker: Any) -> None:
    made = worker()
    assert made.vocab_size == 9
    assert made.facts() == {"kind": "peer", "engine": "toy", "python": sys.executable}
    first, second = made.sample([job(), job(top_k=4)])
    assert (first.tokens, second.tokens) == ((3, 0), (3, 4))
    assert first.rounds is not None
    assert first.rounds[0].num_tested == 1
    row = PeerReference(made.peer).logits(job(), (1,))
    np.testing.assert_array_equal(row, np.arange(9))


def test_parameters_without_a_place_are_refused(worker: Any) -> None:
    made = worker()
    for params in ({"min_p": 0.1}, {"rule": "reject"}, {"bad_words": ((1,),)}, {"stop": ("a",)}, {"logprobs": 1}):
        with pytest.raises(InvalidParams, match=next(iter(params))):
            made.sample([job(**params)])
    with pytest.raises(InvalidParams, match="no such thing here"):
        worker("refuses").sample([job()])


@pytest.mark.parametrize(
    ("mood", "reason"),
    [("dies", "has ended: my last words"), ("stalls", "gave no answer in 1 s"), ("raises", "KeyError: 'oh'")],
)
def test_a_worker_that_breaks_off_leaves_what_was_done(worker: Any, mood: str, reason: str) -> None:
    made = worker(mood, answer_s=1.0)
    if mood != "raises":
        assert len(made.sample([job(), job()])) == 2
    with pytest.raises(SubjectFailed, match=reason):
        made.sample([job()])
    if mood == "stalls":  # what it would say now would be the answer to another question
        with pytest.raises(SubjectFailed, match="has ended"):
            made.sample([job()])


def test_what_is_no_answer_is_said(worker: Any) -> None:
    with pytest.raises(SubjectFailed, match="no answer: b'not json'"):
        worker("babbles").sample([job()])


@pytest.mark.parametrize(
    ("mood", "options", "reason"),
    [
        ("no start", {}, "can't be opened: RuntimeError: two lines"),
        ("no package", {}, "toy-package can't be imported by"),
        ("slow start", {"start_s": 0.3}, "gave no answer in 0.3 s"),
        ("well", {"python": "/there/is/no/python"}, "can't be run: No such file"),
    ],
)
def test_a_worker_that_does_not_start(worker: Any, mood: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        worker(mood, **options)


def test_peers_import_nothing_of_ours() -> None:
    files = [entry.path for entry in PEERS.values()] + [PEERS["transformers"].path.with_name("child.py")]
    assert all("import draftproof" not in file.read_text() for file in files)
    assert all("from draftproof" not in file.read_text() for file in files)


def test_a_missing_package_and_unknown_names_are_input_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="llama-cpp-python is not installed here"):
        open_peer("llama-cpp", {"model": "x.gguf"})
    with pytest.raises(InvalidParams, match="no adapter 'vllm'"):
        open_peer("vllm", {})


# -- transformers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama whose greedy texts repeat themselves."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=24, max_position_embeddings=256, initializer_range=0.3, **sizes)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


PROMPTS = ((1, 5, 7, 1, 5, 7, 1, 5), (3, 4, 3, 4, 3, 4))


def plan(**changes: Any) -> Plan:
    given = {"prompts": PROMPTS, "tokens": 700, "text_tokens": 24, "max_tv": 0.5, "batch": 8}
    return Plan(**{**given, "stop_ids": frozenset({2}), "tests": ("identity", "fit"), **changes})


@pytest.fixture
def assisted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """transformers warns of a deprecation that its own assisted generation is behind."""
    import logging

    logging.getLogger("transformers").setLevel(logging.ERROR)
    return {"assistant_layers": 2, "assistant_noise": 0.3}


@pytest.mark.parametrize("method", ["lookup", "assisted"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_transformers_is_certified(model: str, assisted: dict[str, Any], method: str, temperature: float) -> None:
    options = {"lookup": 3} if method == "lookup" else assisted
    plain, ours = open_peer("transformers", {"model": model}), open_peer("transformers", {"model": model, **options})
    drift = plain.peer.drift([*PROMPTS[0], *range(12)], 8, [1, 3])
    assert 0 <= max(drift.values()) < 1e-3
    reference = PeerReference(plain.peer, plain, max(drift.values()))
    made = run(ours, reference, plan(params=SamplingParams(temperature=temperature), tokens=500))
    assert made["verdict"] == "lossless", made["summary"]
    assert made["speculation"]["accepted"] > 20
    assert made["subject"]["name"].startswith("transformers, ")


def test_a_lossy_setting_of_transformers_is_found(model: str, assisted: dict[str, Any]) -> None:
    plain = open_peer("transformers", {"model": model})
    ours = open_peer("transformers", {"model": model, **assisted})
    generate = ours.peer._config  # type: ignore[attr-defined]

    def lossy(asked: Any) -> Any:
        config = generate(asked)
        config.assistant_ensemble_weight = 0.3
        return config

    ours.peer._config = lossy  # type: ignore[attr-defined]
    made = run(ours, PeerReference(plain.peer, plain), plan(tests=("fit",), tokens=1200))
    assert made["verdict"] == "fault"
    assert "fit.tested" in made["fault"]["tests"]


def test_transformers_behind_a_pipe_says_the_same(model: str) -> None:
    options = {"model": model, "lookup": 3, "threads": 1}
    asked = [job(max_new_tokens=12, seed=n) for n in range(3)]
    here = open_peer("transformers", options)
    with open_peer("transformers", options, python=sys.executable) as there:
        assert there.facts()["settings"] == here.facts()["settings"]
        ours, theirs = here.sample(asked), there.sample(asked)
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        counts = [[(r.num_tokens, r.num_accepted) for r in each.rounds or ()] for each in (*ours, *theirs)]
        assert counts[:3] == counts[3:]
        laws = [list(PeerReference(each.peer).laws(asked[0], ours[0].tokens)) for each in (here, there)]
        np.testing.assert_array_equal(laws[0], laws[1])


def test_transformers_refuses_what_it_can_not_take(model: str) -> None:
    with pytest.raises(InputError, match="not both"):
        open_peer("transformers", {"model": model, "lookup": 2, "assistant": model})
    with pytest.raises(InputError, match="no_such_option"):
        open_peer("transformers", {"model": model, "no_such_option": 1})
    with pytest.raises(InputError, match="can't be opened"):
        open_peer("transformers", {"model": "/there/is/no/model"})


# -- stand-ins for packages that live elsewhere ------------------------------------------------------------------------


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


class FakeLlama:
    """llama_cpp.Llama: counts upwards, and keeps what its draft model offers while that is what it counts."""

    def __init__(self, model: str, draft_model: Any = None, logits_all: bool = False, **options: Any) -> None:
        self.draft_model, self.logits_all, self.options = draft_model, logits_all, options
        self.asked: dict[str, Any] = {}
        self.seed: int | None = None
        self.scores = np.zeros((64, 50), np.float32)
        self.num = 0

    def n_vocab(self) -> int:
        return 50

    def reset(self) -> None:
        self.num = 0

    def eval(self, tokens: list[int]) -> None:
        """A row says its token, and a little the width of the step."""
        for token in tokens:
            self.scores[self.num] = token + (0.25 if len(tokens) == 1 else 0.0)
            self.num += 1

    def set_seed(self, seed: int) -> None:
        self.seed = seed

    def generate(
        self, tokens: list[int], *, reset: bool, temp: float, top_k: int, top_p: float, min_p: float,
        repeat_penalty: float, presence_penalty: float, frequency_penalty: float, logits_processor: Any = None,
    ) -> Iterator[int]:  # fmt: skip
        self.asked = {k: v for k, v in locals().items() if k not in ("self", "tokens")}
        left: list[int] = []
        while True:
            scores = np.zeros(50, np.float32)
            scores[tokens[-1] + 1] = 1.0
            for process in logits_processor or ():
                scores = process(None, scores)
            tokens = [*tokens, int(scores.argmax())]
            yield tokens[-1]
            if left and left[0] == tokens[-1]:
                left = left[1:]
            elif self.draft_model is not None:
                left = list(self.draft_model(np.array(tokens)))

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Any:
    """llama(options...) -> PeerSampler over the stand-in, whose drafts are the next number and a wrong one."""
    lookups: list[dict[str, Any]] = []

    def lookup(**options: Any) -> Any:
        lookups.append(options)
        return lambda ids: np.array([ids[-1] + 1, 0])

    stand_in(monkeypatch, "llama_cpp", Llama=FakeLlama)
    stand_in(monkeypatch, "llama_cpp.llama_speculative", LlamaPromptLookupDecoding=lookup)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0")

    def make(**options: Any) -> PeerSampler:
        made = open_peer("llama-cpp", {"model": "x.gguf", **options})
        assert not options.get("lookup") or lookups[-1] == {"max_ngram_size": 3, "num_pred_tokens": options["lookup"]}
        return made

    return make


def test_llama_cpp_is_asked_for_everything(llama: Any) -> None:
    made = llama()
    stops = Job(0, (1, 2, 3), SamplingParams(temperature=0.7, top_k=9, seed=1 << 33, max_new_tokens=9), frozenset({6}))
    (sample,) = made.sample([stops])
    assert (sample.tokens, sample.finish, sample.rounds) == ((4, 5, 6), "stop", None)
    first = made.peer._llm.seed
    (sample,) = made.sample([job(max_new_tokens=4, presence_penalty=0.5)])
    assert (sample.tokens, sample.finish) == ((4, 5, 6, 7), "length")
    wanted = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "temp": 1.0, "presence_penalty": 0.5}
    assert wanted.items() <= made.peer._llm.asked.items()
    assert made.peer._llm.options["last_n_tokens_size"] == 1024  # penalties see the whole text
    made.sample([Job(0, (1,), SamplingParams(temperature=0.7, seed=1 << 34, max_new_tokens=1))])
    assert first != made.peer._llm.seed  # seeds that differ above 32 bits


def test_llama_cpp_keeps_a_minimum_length(llama: Any) -> None:
    (sample,) = llama().sample([Job(0, (1, 2), SamplingParams(min_new_tokens=2, max_new_tokens=4), frozenset({3}))])
    assert 3 not in sample.tokens[:2]


def test_rounds_of_llama_cpp_are_looked_on(llama: Any) -> None:
    made = llama(lookup=2)
    assert made.peer._llm.logits_all  # else its buffer of logits ends before a long text does
    (sample,) = made.sample([job(max_new_tokens=4)])
    rounds = [(r.num_tokens, r.num_accepted, r.num_tested, r.num_drafted) for r in sample.rounds or ()]
    assert rounds == [(1, 0, 0, 0), (2, 1, 2, 2), (1, 1, 1, 2)]


def test_what_llama_cpp_means_otherwise_is_refused(llama: Any) -> None:
    made = llama()
    with pytest.raises(InvalidParams, match="cuts by top_p before the temperature"):
        made.sample([job(top_p=0.5, temperature=0.7)])
    assert made.sample([job(top_p=0.5)])
    with pytest.raises(InvalidParams, match="repetition_penalty"):
        made.sample([job(repetition_penalty=1.2)])
    with pytest.raises(SubjectFailed, match="raise the option context"):
        made.sample([job(max_new_tokens=5000)])


def test_rows_of_llama_cpp(llama: Any) -> None:
    made = llama()
    np.testing.assert_array_equal(PeerReference(made.peer).logits(job(), (7,))[:2], [7, 7])
    assert made.peer.drift([1, 2, 3, 4, 5], 2, [1, 2]) == {"1": 0.25, "2": 0.25}
    made.close()


def test_llama_cpp_really() -> None:
    """In its own environment, where there is one: lookup, a minimum length, and rows that fit its greedy text."""
    python = Path(__file__).parents[2] / ".cache/peers/llamacpp/bin/python"
    if not python.is_file():
        pytest.skip("no environment of llama-cpp-python: make it with python -m bench.run --install llamacpp")
    from draftproof.models.source import resolve

    options = {"model": str(resolve("demo").path), "lookup": 4, "threads": 1, "context": 256, "flash": True}
    with open_peer("llama-cpp", options, python=python) as made:
        prompt = (504, 338, 253, 504, 338, 253, 504, 338)
        greedy = Job(0, prompt, SamplingParams(max_new_tokens=12, seed=1), frozenset({2}))
        (sample,) = made.sample([greedy])
        assert sum(r.num_drafted for r in sample.rounds or ()) > 0
        for index, law in enumerate(PeerReference(made.peer).laws(greedy, sample.tokens)):
            assert int(law.argmax()) == sample.tokens[index]
        longer = Job(0, prompt, SamplingParams(max_new_tokens=4, min_new_tokens=4), frozenset(sample.tokens[:1]))
        assert sample.tokens[0] not in made.sample([longer])[0].tokens


def test_openvino_genai_really(pytestconfig: pytest.Config) -> None:
    """In its own environment, where there is one: prompts and texts as ids, and a minimum length."""
    python = Path(__file__).parents[2] / ".cache/peers/openvino-genai/bin/python"
    if not python.is_file():
        pytest.skip("no environment of openvino-genai: make it with python -m bench.run --install openvino-genai")
    from draftproof.models.source import resolve

    with open_peer("openvino-genai", {"model": str(resolve("demo").path), "lookup": 4}, python=python) as made:
        asked = Job(0, (1, 504, 338, 253), SamplingParams(max_new_tokens=8, seed=1), frozenset({2}))
        (sample,) = made.sample([asked])
        assert 1 <= len(sample.tokens) <= 8
        assert json.dumps(made.facts())
        with pytest.raises(SubjectFailed, match="gives no logits"):
            PeerReference(made.peer).logits(asked, ())

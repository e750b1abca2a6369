"""Whatever goes wrong in one call, the engine stays whole: no request or page is left behind, no other text changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams
from draftproof.drafters.ngram import NgramDrafter
from draftproof.errors import InputError, InvalidParams, InvalidPrompt, PromptTooLong, UnknownDrafter
from draftproof.models.toy import HashTarget, ToyOptions
from draftproof.types import Request

LONG = SamplingParams(max_new_tokens=None, ignore_eos=True)


def is_idle(llm: Any) -> bool:
    return not llm._live and not llm.built.engine.has_work and llm.built.ledger.free_pages == llm.built.ledger.num_pages


def test_a_refused_prompt_takes_the_whole_call_with_it(llm_of) -> None:
    llm = llm_of(drafter="suffix")
    with pytest.raises(PromptTooLong):
        llm.generate(["a", "b", "x" * 400], LONG)
    assert is_idle(llm)


def test_a_stream_that_was_never_read_never_ran(llm_of) -> None:
    llm = llm_of(drafter="suffix")
    stream = llm.stream("hello", LONG)
    assert is_idle(llm)
    stream.close()
    assert is_idle(llm)
    with pytest.raises(PromptTooLong):
        llm.stream("x" * 400, LONG)


@pytest.mark.parametrize("where", ["verify", "observe", "decide"])
@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_step_that_breaks_off_costs_no_other_stream(where, fault, llm_of, monkeypatch) -> None:
    llm = llm_of(drafter="ngram")
    params = SamplingParams(max_new_tokens=40, temperature=0.9, seed=3)
    want = llm.generate("abcabc", params)[0].text
    stream = llm.stream("abcabc", params)
    text = next(stream).text
    engine = llm.built.engine
    owner, name = {
        "verify": (engine.target, "verify"),
        "observe": (engine.drafter, "observe"),
        "decide": (engine, "_decide"),
    }[where]

    def fail(*args: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(fault):
            llm.generate("def", params)
    assert text + "".join(chunk.text for chunk in stream) == want
    assert is_idle(llm)


@pytest.mark.parametrize("place", range(12))
def test_steps_that_break_off_anywhere_change_no_text(place, engine_of, truth) -> None:
    """A fault at the n-th call of verify, on pages that show any row out of place."""
    options = ToyOptions(min_rows=2, num_pages=60)
    target = HashTarget(11, seed=5, window=3, options=options)
    engine = engine_of(target, NgramDrafter(3, 1), gamma=4, chunk_rows=5)
    requests = [([1 + i] * (3 + 5 * i), SamplingParams(seed=i, max_new_tokens=20, temperature=0.9)) for i in range(3)]
    for number, (prompt, params) in enumerate(requests):
        engine.submit(Request(number, np.array(prompt, np.int32), params, arrival=number))
    verify, calls, found = target.verify, iter(range(10**6)), [[] for _ in requests]

    def sometimes(batch: Any) -> Any:
        output = verify(batch)
        if next(calls) % 12 == place:
            raise RuntimeError("the device went away")
        return output

    target.verify = sometimes
    while engine.has_work:
        try:
            events = engine.step()
        except RuntimeError:
            engine.ledger.check()
            continue
        for event in events:
            found[event.request_id] += event.tokens
    assert engine.ledger.free_pages == 60
    for (prompt, params), tokens in zip(requests, found, strict=True):
        assert tokens == truth(HashTarget(11, seed=5, window=3, options=options), prompt, params)[0]


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        (None, "NoneType"),
        ([None], "a prompt must"),
        ([1.0, 2.0], "a prompt must"),
        (b"abc", "bytes"),
        ("\udcff", "Unicode"),
    ],
)
def test_prompts_of_other_types_are_refused(prompts, says, llm_of) -> None:
    with pytest.raises(InvalidPrompt, match=says):
        llm_of(drafter="suffix").generate(prompts, SamplingParams(max_new_tokens=2))


def test_arrays_and_generators_of_prompts_are_read(llm_of) -> None:
    llm, params = llm_of(drafter="suffix"), SamplingParams(max_new_tokens=4)
    want = llm.generate([1, 2, 3], params)[0].token_ids
    assert llm.generate(np.array([1, 2, 3]), params)[0].token_ids == want
    assert [o.token_ids for o in llm.generate(iter([[1, 2, 3], [1, 2, 3]]), params)] == [want, want]


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop_ids": 3},
        {"stop_ids": None},
        {"bad_words": [3]},
        {"bad_words": [[]]},
        {"stop": ["\udcff"]},
        {"min_new_tokens": "x"},
        {"temperature": None},
    ],
)
def test_parameters_of_other_types_are_refused(wrong) -> None:
    with pytest.raises(InvalidParams):
        SamplingParams(**wrong)


@pytest.mark.parametrize("options", [{"gamma": "3"}, {"kv_memory": 1e6}, {"threads": True}, {"max_sequences": 0}])
def test_options_of_other_types_are_refused(options, llm_of) -> None:
    with pytest.raises(InputError):
        llm_of(**options)


def test_other_misuse_is_refused(llm_of) -> None:
    with pytest.raises(UnknownDrafter):
        llm_of(drafter=None)
    llm = llm_of(drafter="suffix")
    with pytest.raises(InvalidParams):
        llm.generate("a", [{"temperature": 1}])
    for prompt, tokens, position in (([1], [2], 2), ([1], [2], -1), ([99999], [2], 0)):
        with pytest.raises(InvalidPrompt):
            llm.logits_at(prompt, tokens, position)


def test_a_stop_string_that_is_a_special_token_ends_the_text(llm_of) -> None:
    llm = llm_of(drafter="none")
    end = next(iter(llm.tokenizer.eos_ids))
    params = SamplingParams(max_new_tokens=20, ignore_eos=True, stop=["<end>"], logit_bias={end: 100.0})
    output = llm.generate("abc", params)[0]
    assert (output.token_ids, output.text, output.finish_reason) == ([end], "", "stop")

"""The official client against a real server: the same answers as `LLM.generate`, whole and streamed."""

from __future__ import annotations

import openai
import pytest

from draftproof import SamplingParams

PROMPTS = ["Hello there", "aaaaaaaaaaaa", "naïve café ", "1 2 3 4 1 2 3 4 1 2"]
SAMPLINGS = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 11},
    {"temperature": 1.2, "seed": 5, "top_p": 0.9, "frequency_penalty": 0.3},
    {
        "temperature": 1.0,
        "seed": 2**53,
        "presence_penalty": 0.5,
        "extra_body": {"top_k": 20, "repetition_penalty": 1.1},
    },
]
NAMES = ("temperature", "seed", "top_p", "frequency_penalty", "presence_penalty")


def params_of(sampling, **more):
    flat = {name: value for name, value in sampling.items() if name in NAMES}
    return SamplingParams(**flat, **sampling.get("extra_body", {}), **more)


def test_models_are_listed_and_found(server):
    client = server.client()
    names = [model.id for model in client.models.list()]
    assert names == [server.service.model]
    assert client.models.retrieve(names[0]).id == names[0]
    with pytest.raises(openai.NotFoundError, match="not served"):
        client.models.retrieve("gpt-17")
    with pytest.raises(openai.NotFoundError, match="not served"):
        client.completions.create(model="gpt-17", prompt="a")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_completions_are_what_the_library_says(prompt, sampling, server, truth):
    want = truth.generate(prompt, params_of(sampling, max_new_tokens=40))[0]
    client, name = server.client(), server.service.model
    got = client.completions.create(model=name, prompt=prompt, max_tokens=40, **sampling)
    assert got.choices[0].text == want.text
    assert got.choices[0].finish_reason == want.finish_reason
    assert got.usage.completion_tokens == len(want.token_ids)
    assert got.usage.prompt_tokens == len(want.prompt_token_ids)
    chunks = list(client.completions.create(model=name, prompt=prompt, max_tokens=40, stream=True, **sampling))
    assert "".join(chunk.choices[0].text for chunk in chunks) == want.text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == want.finish_reason
    assert {chunk.choices[0].finish_reason for chunk in chunks[:-1]} <= {None}


@pytest.mark.parametrize("drafter", ["none", "suffix", "ngram", "early_exit"])
def test_no_drafter_changes_a_chat(drafter, server, truth):
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "abcabcabcabc"}]
    want = truth.generate(messages, SamplingParams(max_new_tokens=60, temperature=0.5, seed=3))[0]
    body = {"temperature": 0.5, "seed": 3, "max_tokens": 60, "extra_body": {"speculation": {"drafter": drafter}}}
    client, name = server.client(), server.service.model
    got = client.chat.completions.create(model=name, messages=messages, **body)
    assert got.choices[0].message.content == want.text
    assert got.choices[0].message.role == "assistant"
    assert got.usage.speculative_decoding["drafter"] == drafter
    stream = client.chat.completions.create(
        model=name, messages=messages, stream=True, stream_options={"include_usage": True}, **body
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == want.text
    assert not chunks[-1].choices
    assert chunks[-1].usage.completion_tokens == len(want.token_ids)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-2].metrics["speculative_decoding"] == chunks[-1].usage.speculative_decoding


def test_parts_of_a_message_are_its_text(server):
    client, name = server.client(), server.service.model
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
    answers = [
        client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": content}], temperature=0, max_completion_tokens=20
        )
        for content in (parts, "abcd")
    ]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content


def test_an_answer_goes_on_as_a_message_of_the_next_request(server, truth):
    client, name = server.client(), server.service.model
    messages = [{"role": "user", "content": "ab"}]
    first = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=10)
    messages += [first.choices[0].message, {"role": "user", "content": "cd"}]
    second = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=10)
    plain = [messages[0], {"role": "assistant", "content": first.choices[0].message.content}, messages[2]]
    assert second.choices[0].message.content == truth.generate(plain, SamplingParams(max_new_tokens=10))[0].text


def test_stop_strings_end_the_text_across_rounds(server, truth):
    client, name = server.client(), server.service.model
    for prompt in PROMPTS:
        whole = truth.generate(prompt, SamplingParams(max_new_tokens=60))[0].text
        for start in (3, 10, 21):
            stop = [whole[start : start + 3], "never there"]
            want = truth.generate(prompt, SamplingParams(max_new_tokens=60, stop=stop))[0]
            ask = {"model": name, "prompt": prompt, "max_tokens": 60, "temperature": 0, "stop": stop}
            got = client.completions.create(**ask)
            assert (got.choices[0].text, got.choices[0].finish_reason) == (want.text, "stop")
            assert got.usage.completion_tokens == len(want.token_ids)
            chunks = list(client.completions.create(**ask, stream=True))
            assert "".join(chunk.choices[0].text for chunk in chunks) == want.text


def test_streamed_pieces_of_characters_are_never_sent(server, truth):
    """The tiny model writes arbitrary bytes: most of its characters are broken, many span tokens."""
    client, name = server.client(), server.service.model
    seen = 0
    for seed in range(6):
        want = truth.generate("日本語 ", SamplingParams(max_new_tokens=80, temperature=1.0, seed=seed))[0]
        ask = {"model": name, "prompt": "日本語 ", "max_tokens": 80, "seed": seed}
        texts = [chunk.choices[0].text for chunk in client.completions.create(**ask, stream=True)]
        assert "".join(texts) == want.text
        seen += any(ord(char) > 127 and char != "\N{REPLACEMENT CHARACTER}" for char in want.text)
    assert seen, "no character of several bytes was written: the test shows nothing"


def test_several_prompts_and_choices_have_seeds_of_their_own(server, truth):
    client, name = server.client(), server.service.model
    got = client.completions.create(model=name, prompt=["ab", "cd"], n=3, seed=7, max_tokens=12)
    assert [choice.index for choice in got.choices] == list(range(6))
    for index, choice in enumerate(got.choices):
        params = SamplingParams(temperature=1.0, seed=7 + index % 3, max_new_tokens=12)
        assert choice.text == truth.generate(["ab", "cd"][index // 3], params)[0].text
    assert got.usage.prompt_tokens == 4
    chunks = list(client.completions.create(model=name, prompt=["ab", "cd"], n=3, seed=7, max_tokens=12, stream=True))
    for index, choice in enumerate(got.choices):
        pieces = [c.choices[0].text for c in chunks if c.choices[0].index == index]
        assert "".join(pieces) == choice.text
    assert sum("metrics" in (chunk.model_extra or {}) for chunk in chunks) == 1


def test_a_fresh_seed_is_returned_and_repeats_the_text(server):
    client, name = server.client(), server.service.model
    one, two = (client.completions.create(model=name, prompt="ab", max_tokens=30) for _ in range(2))
    assert one.choices[0].text != two.choices[0].text
    seed = one.usage.speculative_decoding["seed"]
    assert seed < 2**53
    again = client.completions.create(model=name, prompt="ab", max_tokens=30, seed=seed)
    assert again.choices[0].text == one.choices[0].text


def test_chat_logprobs_are_the_librarys(server, truth):
    client, name = server.client(), server.service.model
    messages = [{"role": "user", "content": "abcabcabc"}]
    want = truth.generate(messages, SamplingParams(max_new_tokens=30, logprobs=3))[0]
    ask = {"model": name, "messages": messages, "max_tokens": 30, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**ask).choices[0].logprobs.content
    chunks = list(client.chat.completions.create(**ask, stream=True))
    streamed = [entry for chunk in chunks if chunk.choices for entry in chunk.choices[0].logprobs.content]
    assert streamed == whole
    assert len(whole) == len(want.token_ids)
    for entry, true in zip(whole, want.logprobs, strict=True):
        assert entry.logprob == true.logprob
        assert [top.logprob for top in entry.top_logprobs] == [value for _, value in true.top]
        assert entry.top_logprobs[0].bytes == entry.bytes  # greedy
    text = b"".join(bytes(entry.bytes) for entry in whole)
    assert text.decode("utf-8", "replace") == want.text


def test_completion_logprobs_are_the_librarys(server, truth):
    client, name = server.client(), server.service.model
    want = truth.generate("hello ", SamplingParams(max_new_tokens=30, logprobs=2))[0]
    got = client.completions.create(model=name, prompt="hello ", max_tokens=30, temperature=0, logprobs=2)
    found = got.choices[0].logprobs
    assert found.token_logprobs == [entry.logprob for entry in want.logprobs]
    assert all(token in top for token, top in zip(found.tokens, found.top_logprobs, strict=True))
    assert all(max(top.values()) == value for top, value in zip(found.top_logprobs, found.token_logprobs, strict=True))
    assert found.text_offset[0] == 0
    assert found.text_offset == sorted(found.text_offset)
    assert found.text_offset[-1] <= len(want.text)
    none = client.completions.create(model=name, prompt="hello ", max_tokens=5, temperature=0, logprobs=0)
    assert all(len(top) == 1 for top in none.choices[0].logprobs.top_logprobs)


def test_echo_and_token_prompts(server, truth):
    client, name = server.client(), server.service.model
    ids = truth.tokenizer.encode("café")
    got = client.completions.create(model=name, prompt=[ids, ids[:2]], max_tokens=5, temperature=0, echo=True)
    want = [output.text for output in truth.generate([ids, ids[:2]], SamplingParams(max_new_tokens=5))]
    assert [choice.text for choice in got.choices] == ["café" + want[0], "ca" + want[1]]
    stream = client.completions.create(model=name, prompt="café", max_tokens=5, temperature=0, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "café" + want[0]
    nothing = client.completions.create(model=name, prompt="café", max_tokens=0, echo=True)
    assert (nothing.choices[0].text, nothing.choices[0].finish_reason) == ("café", "length")


def test_bias_and_ends_by_id(server, truth):
    client, name = server.client(), server.service.model
    token = truth.tokenizer.encode("z")[0]
    got = client.completions.create(model=name, prompt="a", max_tokens=4, logit_bias={str(token): 100})
    assert got.choices[0].text == "zzzz"
    got = client.completions.create(
        model=name, prompt="a", max_tokens=9, logit_bias={str(token): 100}, extra_body={"stop_token_ids": [token]}
    )
    assert (got.choices[0].text, got.choices[0].finish_reason, got.usage.completion_tokens) == ("", "stop", 1)
    got = client.completions.create(
        model=name,
        prompt="a",
        max_tokens=9,
        logit_bias={str(token): 100},
        extra_body={"stop_token_ids": [token], "min_tokens": 3, "ignore_eos": True},
    )
    assert got.usage.completion_tokens == 4


def test_a_chat_without_a_cap_goes_on_to_the_context_limit(server, truth):
    messages = [{"role": "user", "content": "a"}]
    body = {"extra_body": {"ignore_eos": True}, "temperature": 0}
    got = server.client().chat.completions.create(model=server.service.model, messages=messages, **body)
    assert got.choices[0].finish_reason == "length"
    assert got.usage.total_tokens == truth.info["max_len"]

"""What a request may ask of speculation, and what the answer says was applied."""

from __future__ import annotations

import concurrent.futures
import secrets

import openai
import pytest

from draftproof import LLM, SamplingParams

PROMPT = "abcabcabcabcabc"


def ask(running, wish=None, **more):
    extra = {} if wish is None else {"extra_body": {"speculation": wish}}
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0} | more | extra
    return running.client().completions.create(model=running.service.model, **body)


def test_drafts_are_the_default_and_are_reported_as_vllm_does(server):
    answer = ask(server)
    told = answer.usage.speculative_decoding
    assert answer.metrics["speculative_decoding"] == told
    assert (told["mode"], told["stage"], told["drafter"], told["rule"]) == ("on", None, "suffix", "follow")
    assert (told["lossless"], told["numerics"], told["bucket"]) == (True, "invariant", "default")
    steps, accepted, drafted = (
        told[name] for name in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    )
    assert 0 < accepted <= told["num_tested_draft_tokens"] <= drafted
    assert told["mean_acceptance_length"] == 1 + accepted / steps
    assert told["draft_acceptance_rate"] == accepted / drafted
    assert told["acceptance"] == accepted / told["num_tested_draft_tokens"]
    histogram = told["acceptance_histogram"]
    assert len(histogram) == 1 + told["num_spec_tokens"] == 17
    assert sum(histogram) == steps
    assert sum(count * number for number, count in enumerate(histogram)) == accepted


def test_counts_are_the_librarys(server, folder, cache_dir):
    """Under `reject` at a temperature: elsewhere drafts are cut to the widths that are ready, which have a history."""
    with LLM(folder, cache_dir=cache_dir, drafter="suffix", threads=1, kv_memory=1 << 23, weights="int8") as llm:
        params = SamplingParams(temperature=0.01, rule="reject", seed=5, max_new_tokens=40)
        want = llm.generate(PROMPT, params)[0].speculation
    assert want.drafted > want.accepted > 0
    fresh = {"X-Draftproof-Bucket": "of this test"}  # a bucket that no draft length was learned for
    answer = ask(server, {"rule": "reject"}, extra_headers=fresh, temperature=0.01, seed=5)
    told = answer.usage.speculative_decoding
    assert told["rule"] == "reject"
    assert told["num_draft_tokens"] == want.drafted
    assert told["num_accepted_draft_tokens"] == want.accepted
    assert told["num_tested_draft_tokens"] == want.tested


@pytest.mark.parametrize("wish", [{"enabled": False}, {"drafter": "none"}, {"max_draft_tokens": 0}])
def test_speculation_can_be_declined(wish, server):
    told = ask(server, wish).usage.speculative_decoding
    assert (told["mode"], told["drafter"], told["num_draft_tokens"]) == ("off", "none", 0)
    assert told["mean_acceptance_length"] is None
    assert told["acceptance_histogram"] == [0]


def test_a_cap_a_rule_and_another_drafter_are_applied(server):
    told = ask(server, {"enabled": True, "drafter": "ngram", "max_draft_tokens": 2, "rule": "coupled"})
    told = told.usage.speculative_decoding
    assert (told["drafter"], told["rule"], told["num_spec_tokens"]) == ("ngram", "coupled", 2)
    assert 0 < told["num_draft_tokens"] <= 2 * told["num_spec_steps"]
    drawn = ask(server, {"rule": "reject", "drafter": "early_exit", "require_lossless": True}, temperature=1.0, seed=1)
    told = drawn.usage.speculative_decoding
    assert (told["rule"], told["seed"], told["lossless"]) == ("reject", 1, True)
    assert told["num_draft_tokens"] > 0


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"drafter": "magic"}, "suffix, ngram, early_exit"),
        ({"enabled": True, "drafter": "none"}, "can't be enabled"),
        ({"max_draft_tokens": -1}, "max_draft_tokens"),
        ({"rule": "lossy"}, "rule"),
        ({"gamma": 3}, "speculation.gamma"),
    ],
)
def test_what_can_not_be_had_is_refused(wish, says, server):
    with pytest.raises(openai.BadRequestError, match=says):
        ask(server, wish)


def test_a_server_without_drafters_says_so(serve):
    plain = serve(())
    assert ask(plain).usage.speculative_decoding["mode"] == "off"
    with pytest.raises(openai.BadRequestError, match="no drafter"):
        ask(plain, {"enabled": True})


def test_a_trace_tells_where_each_token_came_from(server, truth):
    want = truth.generate(PROMPT, SamplingParams(max_new_tokens=40))[0]
    answer = ask(server, {"trace": True})
    tokens = answer.choices[0].tokens
    assert [token["id"] for token in tokens] == want.token_ids
    told = answer.usage.speculative_decoding
    kinds = [token["kind"] for token in tokens]
    assert kinds.count("accepted") == told["num_accepted_draft_tokens"] > 0
    assert set(kinds) <= {"accepted", "correction", "bonus", "plain"}
    assert kinds[0] == "plain"
    stream = server.client().completions.create(
        model=server.service.model,
        prompt=PROMPT,
        max_tokens=40,
        temperature=0,
        stream=True,
        extra_body={"speculation": {"trace": True}},
    )
    streamed = [token for chunk in stream for token in chunk.choices[0].tokens]
    assert [(token["id"], token["text"]) for token in streamed] == [(token["id"], token["text"]) for token in tokens]
    assert "".join(token["text"] for token in tokens) == want.text
    assert not (set(ask(server).choices[0].model_extra or {}) & {"tokens"})


def test_drafters_of_one_batch_keep_to_their_own_sequences(serve, truth):
    """All kinds of requests at once; each answer is the plain one, and each drafter drafted for its own.

    The drafters are the session's, so in a bucket that other tests have taught a drafter may rightly guess nothing.
    """
    running = serve()
    wishes = [{"drafter": name} for name in ("suffix", "ngram", "early_exit", "none")] * 4
    prompts = [f"{index % 5}{PROMPT}{index}" for index in range(16)]
    fresh = {"X-Draftproof-Bucket": f"of this run alone, {secrets.token_hex(4)}"}

    def send(wish, prompt):
        return ask(running, wish, prompt=prompt, extra_headers=fresh)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, wishes, prompts))
    drafted = dict.fromkeys(("suffix", "ngram", "early_exit", "none"), 0)
    for prompt, wish, answer in zip(prompts, wishes, answers, strict=True):
        assert answer.choices[0].text == truth.generate(prompt, SamplingParams(max_new_tokens=40))[0].text
        told = answer.usage.speculative_decoding
        assert told["drafter"] == wish["drafter"]
        drafted[wish["drafter"]] += told["num_draft_tokens"]
    assert drafted.pop("none") == 0
    assert min(drafted.values()) > 0


def test_buckets_come_by_field_or_header_and_are_bounded(server):
    client, name = server.client(), server.service.model
    ask_ = {"model": name, "prompt": "a", "max_tokens": 1}

    def bucket(**more) -> str:
        return client.completions.create(**ask_, **more).usage.speculative_decoding["bucket"]

    assert bucket() == "default"
    assert bucket(extra_body={"bucket": "code"}) == "code"
    assert bucket(extra_headers={"X-Draftproof-Bucket": "chat"}) == "chat"
    assert bucket(extra_body={"bucket": "code"}, extra_headers={"X-Draftproof-Bucket": "chat"}) == "code"
    seen = {bucket(extra_body={"bucket": f"b{index}"}) for index in range(70)}
    assert len(seen) == 62  # 61 new ones beside default, code and chat, and "other"
    assert "other" in seen
    with pytest.raises(openai.BadRequestError, match="bucket"):
        bucket(extra_body={"bucket": "a\x00b"})

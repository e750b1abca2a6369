"""The library as a user meets it, on OpenVINO and torch, over a tiny random model from a folder."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from draftproof import LLM, SamplingParams
from draftproof.errors import (
    EngineError,
    InputError,
    InvalidParams,
    InvalidPrompt,
    PairingError,
    PromptTooLong,
    UnknownDrafter,
)

PROMPTS = ["abcabcabc", "The quick brown fox", "x", "0123456789" * 6, "naïve café 🙂", "aaaa", "def f(x):", "ab" * 40]
DRAFTERS = {
    "none": {},
    "ngram": {},
    "suffix": {},
    "early_exit": {"exit_layer": 1},
    "model": {"draft_model": "self"},
    "fixed_tree": {"exit_layer": 1},
}
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "seed": 7, "rule": "coupled"}


@pytest.fixture
def llm(llm_of):
    """llm(drafter) -> LLM."""

    def make(drafter: str, folder: Path | None = None, **options):
        extra = dict(DRAFTERS[drafter])
        if extra.get("draft_model") == "self":
            extra["draft_model"] = str(folder)
        return llm_of(drafter=drafter, **extra, **options)

    return make


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "coupled"])
def test_texts_and_bits_are_plain_decodings_alone_and_in_batches(drafter, sampling, llm, folder) -> None:
    params = SamplingParams(max_new_tokens=40, logprobs=1, **sampling)
    plain = [llm("none").generate(prompt, params)[0] for prompt in PROMPTS]
    subject = llm(drafter, folder)
    assert subject.info["numerics"] == "invariant"
    alone = [subject.generate(prompt, params)[0] for prompt in PROMPTS]
    eight = subject.generate(PROMPTS, params)
    many = subject.generate(PROMPTS * 4, params)
    for found in (alone, eight, *(many[i : i + 8] for i in range(0, 32, 8))):
        assert [output.token_ids for output in found] == [output.token_ids for output in plain]
        # log-probabilities are a function of the logits' bits
        assert [o.logprobs[-1].logprob for o in found] == [o.logprobs[-1].logprob for o in plain]
    if drafter in ("model", "fixed_tree") or (drafter != "none" and not sampling):
        assert sum(output.speculation.accepted for output in [*alone, *eight]) > 0  # once known not to pay, few draft


def test_mixed_parameters_and_lengths_in_one_batch_equal_their_solo_runs(llm, folder) -> None:
    rng = np.random.default_rng(1)
    params = [
        SamplingParams(
            temperature=float(rng.choice([0, 0.7, 1.2])),
            top_k=int(rng.integers(3, 60)),
            seed=int(rng.integers(0, 2**63)),
            max_new_tokens=int(rng.integers(1, 40)),
            max_draft_tokens=int(rng.integers(0, 8)),
            frequency_penalty=float(rng.choice([0, 0.4])),
            min_new_tokens=int(rng.integers(0, 4)),
        )
        for _ in range(32)
    ]
    prompts = [PROMPTS[i % 8] * (1 + i % 3) for i in range(32)]
    together = llm("suffix").generate(prompts, params)
    for prompt, one, output in zip(prompts, params, together, strict=True):
        assert output.token_ids == llm("none").generate(prompt, one)[0].token_ids


def test_float32_greedy_text_is_transformers_own(llm, folder, llm_of) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for backend in ("openvino", "torch"):
        subject = llm_of(drafter="ngram", backend=backend, weights="float32")
        for prompt in PROMPTS:
            ids = subject.tokenizer.encode(prompt)
            with torch.inference_mode():
                want = model.generate(
                    torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=40, do_sample=False,
                    pad_token_id=0,
                )[0, len(ids) :].tolist()  # fmt: skip
            assert subject.generate(ids, SamplingParams(max_new_tokens=40))[0].token_ids == want


def test_the_torch_backend_drafts_with_its_own_first_layers(llm_of) -> None:
    params = SamplingParams(max_new_tokens=30, temperature=0.7, seed=5)
    options = {"backend": "torch", "weights": "float32", "numerics": "invariant"}
    want = [output.token_ids for output in llm_of(**options).generate(PROMPTS[:4], params)]
    subject = llm_of(drafter="early_exit", exit_layer=2, gamma=3, **options)
    assert [output.token_ids for output in subject.generate(PROMPTS[:4], params)] == want
    assert subject.built.engine.meter.accepted > 0


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_chunks_join_to_the_output(prompt, llm) -> None:
    params = SamplingParams(max_new_tokens=50, temperature=1.0, seed=3)
    whole = llm("none").generate(prompt, params)[0]
    chunks = list(llm("suffix").stream(prompt, params))
    assert "".join(chunk.text for chunk in chunks) == whole.text == chunks[-1].output.text
    assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
    assert all(chunk.output is None for chunk in chunks[:-1])
    assert all(chunk.num_accepted <= len(chunk.token_ids) for chunk in chunks)


def test_stop_strings_cut_text_ids_and_logprobs_at_the_same_token(llm) -> None:
    params = SamplingParams(max_new_tokens=60, logprobs=0)
    whole = llm("none").generate("abcabcabc", params)[0]
    assert "\ufffd" not in whole.text[:6] or len(whole.text) > 10
    stop = whole.text[8:10]
    for drafter in ("none", "ngram", "suffix"):
        output = llm(drafter).generate("abcabcabc", SamplingParams(max_new_tokens=60, logprobs=0, stop=[stop]))[0]
        assert output.text == whole.text[: whole.text.index(stop)]
        assert output.finish_reason == "stop"
        assert whole.token_ids[: len(output.token_ids)] == output.token_ids
        assert len(output.logprobs) == len(output.token_ids)
        found = output.speculation
        assert found.accepted + found.rounds >= len(output.token_ids)


def test_closing_a_stream_frees_its_pages_and_streams_may_be_interleaved(llm) -> None:
    subject = llm("suffix")
    ledger = subject.built.ledger
    before = ledger.free_pages
    params = SamplingParams(max_new_tokens=60)
    want = [subject.generate(prompt, params)[0].text for prompt in ("aaaa", "ab")]
    one, two = subject.stream("aaaa", params), subject.stream("ab", params)
    texts = ["", ""]
    for _ in range(6):
        for index, stream in enumerate((one, two)):
            texts[index] += next(stream).text
    assert ledger.free_pages < before
    one.close()
    texts[1] += "".join(chunk.text for chunk in two)
    assert ledger.free_pages == before
    assert texts[1] == want[1]
    assert want[0].startswith(texts[0])


def test_prompts_of_all_kinds(llm) -> None:
    subject, params = llm("none"), SamplingParams(max_new_tokens=5)
    ids = subject.tokenizer.encode("hello")
    text = subject.generate("hello", params)[0]
    assert text.prompt_token_ids == ids
    assert subject.generate(ids, params)[0].token_ids == text.token_ids
    assert subject.generate([ids, "hello"], params)[1].token_ids == text.token_ids
    chat = subject.generate([{"role": "user", "content": "hello"}], params)[0]
    assert chat.prompt_token_ids == subject.tokenizer.encode("<u>hello</u><a>")
    assert subject.generate("hello", params, chat=True)[0].prompt_token_ids == chat.prompt_token_ids


@pytest.mark.parametrize(
    ("prompt", "params", "error", "says"),
    [
        ("", {}, InvalidPrompt, "empty"),
        ([], {}, InvalidPrompt, "empty"),
        ([1, 99999], {}, InvalidPrompt, "99999"),
        ([1, -1], {}, InvalidPrompt, "-1"),
        ([1, "a"], {}, InvalidPrompt, "list"),
        ("a" * 256, {}, PromptTooLong, "256"),
        ("a", {"logit_bias": {99999: 1.0}}, InvalidParams, "99999"),
        ("a", {"stop_ids": [99999]}, InvalidParams, "99999"),
    ],
)
def test_bad_requests_are_refused_and_leave_the_engine_usable(prompt, params, error, says, llm) -> None:
    subject = llm("suffix")
    with pytest.raises(error, match=says):
        subject.generate([prompt] if isinstance(prompt, str) else [[1, 2], prompt], SamplingParams(**params))
    assert subject.built.ledger.free_pages == subject.built.ledger.num_pages
    assert not subject.built.engine.has_work
    assert len(subject.generate("ok", SamplingParams(max_new_tokens=2))[0].token_ids) == 2


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"drafter": "magic"}, UnknownDrafter, "suffix"),
        ({"drafter": "scripted"}, UnknownDrafter, "Python"),
        ({"drafter": "model"}, InvalidParams, "--draft-model"),
        ({"drafter": "suffix", "draft_model": "x"}, InvalidParams, "takes no draft model"),
        ({"drafter": "early_exit", "exit_layer": 3}, InputError, r"1\.\.2"),
        ({"drafter": "suffix", "draft_weights": "int8"}, InvalidParams, "no second model: drop --draft-weights"),
        ({"drafter": "eagle", "draft_weights": "int8"}, InvalidParams, "model, early_exit or fixed_tree"),
        ({"drafter": "early_exit", "draft_weights": "int9"}, InvalidParams, "draft_weights must be one of"),
        ({"drafter": "early_exit", "draft_weights": "int4"}, InvalidParams, "draft_weights int4: no kernel .* int8"),
        (
            {"drafter": "early_exit", "draft_weights": "int8", "backend": "torch", "weights": "float32"},
            InvalidParams,
            "--backend openvino, or --draft-weights float32",
        ),
        ({"drafter": "suffix", "tree": "auto"}, InvalidParams, "takes no tree"),
        ({"drafter": "suffix", "exit_layer": 1}, InvalidParams, "exit"),
        ({"weights": "int4"}, InvalidParams, "int4"),
        ({"weights": "int9"}, InvalidParams, "int8"),
        ({"weights": "int8", "backend": "torch"}, InvalidParams, "openvino"),
        ({"backend": "jax"}, InvalidParams, "torch"),
        ({"numerics": "exact"}, InvalidParams, "invariant"),
        ({"gamma": -1}, InvalidParams, "gamma"),
        ({"kv_memory": 100}, InputError, "--kv-memory"),
        ({"bogus": 1}, InvalidParams, "bogus"),
    ],
)
def test_bad_options_are_refused_by_name(options, error, says, folder, cache_dir) -> None:
    with pytest.raises(error, match=says):
        LLM(folder, cache_dir=cache_dir, **options)


@pytest.mark.parametrize("drafter", ["model", "early_exit", "fixed_tree"])
def test_a_second_model_may_have_other_weights_than_the_target(drafter, llm, folder) -> None:
    """The target itself with fewer bits is a drafter: texts stay the float32 target's, bit for bit."""
    subject, small = llm(drafter, folder, weights="float32", draft_weights="int8"), llm(drafter, folder)
    assert (subject.info["weights"], subject.info["draft_weights"]) == ("float32", "int8")
    assert (small.info["weights"], small.info["draft_weights"]) == ("int8", "int8")  # as the target's
    sizes = [each.built.draft.target.weight_bytes for each in (subject, small)]
    assert sizes[0] == sizes[1] < 0.5 * subject.built.engine.target.weight_bytes
    for sampling in ({}, SAMPLED):
        params = SamplingParams(max_new_tokens=24, logprobs=0, **sampling)
        plain = llm("none", weights="float32").generate(PROMPTS[:4], params)
        found = subject.generate(PROMPTS[:4], params)
        assert [output.token_ids for output in found] == [output.token_ids for output in plain]
        assert [_logprobs(output) for output in found] == [_logprobs(output) for output in plain]
        drafted = sum(output.speculation.drafted for output in found)
        assert drafted > 0
        if drafter == "model":
            assert sum(output.speculation.accepted for output in found) > 0.5 * drafted


def test_the_torch_backend_loads_a_second_copy_for_other_weights(llm_of) -> None:
    options = {"backend": "torch", "weights": "float32", "numerics": "invariant"}
    params = SamplingParams(max_new_tokens=12, temperature=0.7, seed=5)
    subject = llm_of(drafter="early_exit", exit_layer=2, gamma=2, draft_weights="bfloat16", **options)
    kinds = [next(each._model.parameters()).dtype for each in (subject.built.engine.target, subject.built.draft.target)]
    assert kinds == [torch.float32, torch.bfloat16]
    assert subject.info["draft_weights"] == "bfloat16"
    want = [output.token_ids for output in llm_of(**options).generate(PROMPTS[:2], params)]
    assert [output.token_ids for output in subject.generate(PROMPTS[:2], params)] == want


def test_a_drafter_of_another_tokenizer_is_refused_by_name(folder, other_folder, cache_dir) -> None:
    with pytest.raises(PairingError, match="<more>"):
        LLM(folder, drafter="model", draft_model=str(other_folder), cache_dir=cache_dir)


def test_unseeded_requests_differ_and_report_the_seed_that_repeats_them(llm) -> None:
    subject, params = llm("none"), SamplingParams(temperature=1.5, max_new_tokens=20)
    one, two = subject.generate(["abc", "abc"], params)
    assert one.token_ids != two.token_ids
    again = subject.generate("abc", SamplingParams(temperature=1.5, max_new_tokens=20, seed=one.seed))[0]
    assert again.token_ids == one.token_ids


def test_the_meter_and_the_counts_agree(llm) -> None:
    subject = llm("suffix")
    subject.built.engine.meter.reset()
    outputs = subject.generate(PROMPTS, SamplingParams(max_new_tokens=30))
    meter = subject.built.engine.meter
    assert meter.tokens == sum(len(output.token_ids) for output in outputs)
    assert meter.accepted == sum(output.speculation.accepted for output in outputs)
    assert 0 < meter.forward_s < meter.total_s
    assert all(a >= b for a, b in pairwise((meter.drafted, meter.tested, meter.accepted)))


def test_a_closed_llm_says_so(folder, cache_dir) -> None:
    with LLM(folder, cache_dir=cache_dir, weights="int8", threads=1) as subject:
        pass
    with pytest.raises(EngineError, match="closed"):
        subject.generate("a")


@pytest.mark.parametrize("numerics", ["auto", "fast"])
def test_bfloat16_runs_on_the_cpu_and_speculation_changes_nothing_it_should_not(numerics, llm_of) -> None:
    params = SamplingParams(max_new_tokens=24)
    plain = llm_of(weights="bfloat16", numerics=numerics)
    outputs = plain.generate(PROMPTS[:3], params)
    assert all(len(output.token_ids) == 24 or output.finish_reason == "stop" for output in outputs)
    if plain.info["numerics"] == "invariant":
        drafted = llm_of(weights="bfloat16", numerics=numerics, drafter="ngram").generate(PROMPTS[:3], params)
        assert [output.token_ids for output in drafted] == [output.token_ids for output in outputs]


def test_draft_lengths_can_be_chosen_by_measured_costs(folder, tmp_path):
    """Where a row costs as much as a step nothing is guessed; the text stays."""
    points = [{"sequences": 1, "rows": n, "context": 64, "ms": 10.0 * n} for n in (1, 9)]
    drafts = [{"sequences": 1, "tokens": 1, "context": 64, "ms": 50.0}]
    costs = tmp_path / "cost.json"
    found = {"format": 1, "target": points, "drafters": {"ngram": drafts}, "model": {"name": "another"}}
    costs.write_text(json.dumps(found))
    params = SamplingParams(max_new_tokens=40, ignore_eos=True)
    texts, said = [], []
    for options in ({"drafter": "none"}, {"drafter": "ngram", "cost_file": costs}):
        with LLM(folder, cache_dir=tmp_path, progress=said.append, **options) as llm:
            texts.append(llm.generate("abcabcabcabc", params)[0].token_ids)
            assert llm.built.engine.meter.drafted <= 3  # a try now and then
    assert texts[0] == texts[1]
    assert sum("the costs of another" in line for line in said) == 1
    for content, match in (("{", "can't be read as a cost file"), ('{"format": 1}', "no cost file")):
        costs.write_text(content)
        with pytest.raises(InputError, match=match):
            LLM(folder, drafter="ngram", cost_file=costs, cache_dir=tmp_path)


@pytest.mark.parametrize("drafter", ["none", "suffix", "model"])
@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "coupled"])
def test_a_prompt_that_begins_alike_is_read_from_there_and_no_bit_changes(drafter, sampling, llm, folder) -> None:
    params = SamplingParams(max_new_tokens=24, logprobs=2, **sampling)
    begin = f"{len(sampling)} {drafter}: the same beginning of every prompt, longer than two pages of the cache, abcabc"
    prompts = [begin, begin + " and one end", begin, begin + " and another, rather longer end", begin[:40]]
    whole = [llm(drafter, folder, enable_prefix_caching=False).generate(prompt, params)[0] for prompt in prompts]
    assert {output.cached_tokens for output in whole} == {0}
    subject = llm(drafter, folder)
    assert subject.info["prefix_caching"]
    one_by_one = [subject.generate(prompt, params)[0] for prompt in prompts]
    again = subject.generate(prompts, params)
    for found in (one_by_one, again):
        assert [output.token_ids for output in found] == [output.token_ids for output in whole]
        assert [_logprobs(output) for output in found] == [_logprobs(output) for output in whole]
    size = subject.built.ledger.page_size
    lengths = [len(output.prompt_token_ids) for output in whole]
    assert lengths[0] > 2 * size  # else this test shows nothing
    full = (lengths[0] - 1) // size * size
    assert [output.cached_tokens for output in one_by_one[:3]] == [0, lengths[0] // size * size, full]
    assert again[0].cached_tokens == full
    ledger = subject.built.ledger
    ledger.check()
    assert ledger.free_pages == ledger.num_pages


def _logprobs(output):
    return [(each.logprob, each.top) for each in output.logprobs]


def test_prompts_are_not_shared_where_bits_depend_on_who_read_them_unless_asked_for(llm) -> None:
    assert not llm("none", numerics="fast").info["prefix_caching"]
    subject = llm("none", numerics="fast", enable_prefix_caching=True)
    params = SamplingParams(max_new_tokens=4)
    assert [subject.generate("ab" * 60, params)[0].cached_tokens > 0 for _ in range(2)] == [False, True]
    with pytest.raises(InvalidParams, match="enable_prefix_caching must be"):
        llm("none", enable_prefix_caching="yes")

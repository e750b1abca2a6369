"""Each engine's configuration and command: the names, what is lost, and that a shell reads back what was meant."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml
from plans import CASCADE, EAGLE, EARLY, MEDUSA, MODEL, NGRAM, SUFFIX, Drafter, make_plan, renamed

from draftproof.errors import InputError
from draftproof.export.engines import ENGINES, export
from draftproof.export.exported import Exported, one_line
from draftproof.export.policy import policy_of

NASTY = 'it\'s a "model" $HOME `id` \\ ; rm -rf / #\n--evil \u202e\x1b[31m é'
SURE = {
    name: replace(drafter, alphas=dict.fromkeys(drafter.alphas, 0.95))
    for name, drafter in {"suffix": SUFFIX, "ngram": NGRAM, "small": MODEL}.items()
}


def made(engine: str, *drafters: Drafter, load: int | None = 8, **changes: Any) -> Exported:
    return export(policy_of(make_plan(*drafters, **changes), load), engine)


def argv(exported: Exported, file: str = "f.yaml") -> list[str]:
    """What a real shell makes of the command: its words, without the program (a function's name has no dash)."""
    command = replace(exported, words=("program", *exported.words[1:])).command(file)
    script = f"program() {{ printf '%s\\0' \"$@\"; }}\n{command}\n"
    ran = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def test_vllm_names() -> None:
    bands = make_plan(NGRAM).bucket("all").bands
    lengths = [band.point.gamma if band.enable else 0 for band in bands]
    assert lengths[0] > lengths[1] > lengths[2] == 0  # else this test shows nothing
    exported = made("vllm", NGRAM, load=None)
    assert exported.config == {
        "method": "ngram",
        "num_speculative_tokens": lengths[0],
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 3,
        "num_speculative_tokens_per_batch_size": [[1, 1, lengths[0]], [2, 8, lengths[1]], [9, 64, 0], [65, 65536, 0]],
    }
    assert argv(exported) == ["serve", "org/target-model", "--speculative-config", json.dumps(exported.config)]
    one = made("vllm", NGRAM, load=8).config
    assert one["num_speculative_tokens"] == lengths[1]
    assert "num_speculative_tokens_per_batch_size" not in one


def test_vllm_suffix_has_one_length() -> None:
    assert not made("vllm", SUFFIX, load=None).enabled  # nothing pays at 64, and it could not stop there
    exported = made("vllm", SUFFIX, load=None, loads=(1, 8))
    fixed = policy_of(make_plan(SUFFIX, loads=(1, 8))).candidates[0].fixed
    assert fixed is not None
    assert exported.config == {
        "method": "suffix",
        "num_speculative_tokens": fixed[0].gamma,
        "suffix_decoding_max_cached_requests": 0,
    }
    assert any("each load" in line for line in exported.not_expressed)
    assert any("arctic-inference" in note for note in exported.notes)


@pytest.mark.parametrize(
    ("temperature", "rule", "method"),
    [
        (0.0, "coupled", "greedy"),
        (0.8, "follow", "greedy"),
        (0.8, "coupled", "probabilistic"),
        (0.8, "reject", "probabilistic"),
    ],
)
def test_vllm_samples_drafts_as_they_were_measured(temperature: float, rule: str, method: str) -> None:
    plan = make_plan(MODEL, sampling={"temperature": temperature, "rule": rule})
    config = export(policy_of(plan, 1), "vllm").config
    assert (config["method"], config["model"], config["draft_sample_method"]) == (
        "draft_model",
        "org/small-model",
        method,
    )


def gamma_of(drafter: Drafter, load: int = 1) -> int:
    return make_plan(drafter).bucket("all").band(load).curve(drafter.name).best_gamma


def test_an_eagle_head_in_vllm() -> None:
    exported = made("vllm", EAGLE, load=1)
    assert exported.config == {
        "method": "eagle3",
        "model": "eagle-vllm",
        "num_speculative_tokens": gamma_of(EAGLE),
        "draft_sample_method": "probabilistic",
    }
    (note,) = [note for note in exported.notes if "heads export" in note]
    assert "draftproof heads export 'my heads/eagle' --to speculators --model org/target-model --out eagle-vllm" in note
    assert any("too unsure" in line for line in exported.not_expressed)
    assert made("vllm", EAGLE, load=None).config["num_speculative_tokens_per_batch_size"][0][:2] == [1, 1]


def test_medusa_heads_in_vllm() -> None:
    exported = made("vllm", MEDUSA, load=1)
    assert exported.config == {"method": "medusa", "model": "medusa-vllm", "num_speculative_tokens": gamma_of(MEDUSA)}
    assert any("--to vllm-medusa" in note for note in exported.notes)
    assert any("from 0.33" in note for note in exported.notes)
    assert any("likeliest tokens" in line for line in exported.not_expressed)
    assert "num_speculative_tokens_per_batch_size" not in made("vllm", MEDUSA, load=None, loads=(1, 8)).config


def test_an_eagle_head_in_sglang() -> None:
    gamma = gamma_of(EAGLE)
    exported = made("sglang", EAGLE, load=1)
    assert argv(exported)[4:] == [
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "eagle-sglang",
        "--speculative-num-steps", str(gamma), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(gamma + 1),
    ]  # fmt: skip
    assert any("--to eagle3" in note for note in exported.notes)
    assert any("EAGLE3 takes its likeliest token" in line for line in exported.not_expressed)


def test_a_head_that_ships_is_written_out_without_a_name() -> None:
    plan = make_plan(EAGLE)
    shipped = replace(plan.drafters[0], model={"name": "smollm2-eagle", "path": None})
    exported = export(policy_of(replace(plan, drafters=(shipped,)), 1), "vllm")
    assert exported.config["model"] == "smollm2-eagle-vllm"
    assert any("heads export --to speculators --model" in note for note in exported.notes)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("drafter", [EAGLE, MEDUSA, CASCADE])
def test_heads_that_an_engine_does_not_have_are_named(engine: str, drafter: Drafter) -> None:
    exported = made(engine, drafter, load=1)
    has = drafter.kind in exported.engine.kinds
    assert has == ((engine, drafter.kind) in {("vllm", "eagle"), ("vllm", "medusa"), ("sglang", "eagle")})
    assert exported.enabled == has
    lines = [line for line in exported.not_expressed if line.startswith(f"the drafter {drafter.name}: ")]
    assert len(lines) == 1 - has
    other = {"tensorrt-llm": "Eagle3, but", "llama.cpp": "draft-eagle3, but"} if drafter.kind == "eagle" else {}
    said = other.get(engine, f"none of the kind {drafter.kind}")
    assert has or lines[0].startswith(f"the drafter {drafter.name}: {exported.engine.name} has {said}")
    assert drafter.kind != "cascade" or "measured apart, as suffix and eagle" in lines[0]


def test_sglang_names() -> None:
    plan = make_plan(MODEL)
    gamma = plan.bucket("all").band(1).curve("small").best_gamma
    assert argv(made("sglang", MODEL, load=1)) == [
        "-m", "sglang.launch_server", "--model-path", "org/target-model",
        "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "org/small-model",
        "--speculative-num-steps", str(gamma), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(gamma + 1),
    ]  # fmt: skip
    config = made("sglang", SUFFIX, load=1).config
    gamma = make_plan(SUFFIX).bucket("all").band(1).curve("suffix").best_gamma
    assert config == {
        "speculative-algorithm": "NGRAM",
        "speculative-ngram-max-bfs-breadth": 1,
        "speculative-num-draft-tokens": gamma + 1,
    }
    long = made("sglang", SURE["ngram"], load=1, gamma_max=20).config
    assert long["speculative-num-draft-tokens"] > 17
    assert long["speculative-ngram-max-trie-depth"] == long["speculative-num-draft-tokens"] - 1 + 3


def test_tensorrt_llm_names() -> None:
    lengths = [band.point.gamma if band.enable else 0 for band in make_plan(SUFFIX).bucket("all").bands]
    exported = made("tensorrt-llm", SUFFIX, load=None)
    inner = exported.config["speculative_config"]
    assert inner["decoding_type"] == "SA"
    assert inner["max_draft_len"] == lengths[0]
    assert inner["draft_len_schedule"] == {1: lengths[0], 8: lengths[1]}  # off above the last, so at 64
    assert 0 < inner["acceptance_rate_threshold"] < 1
    assert "max_concurrency" not in inner  # the two exclude each other
    assert exported.file_text is not None
    assert yaml.safe_load(exported.file_text) == exported.config
    assert argv(exported, "a file.yaml") == ["org/target-model", "--config", "a file.yaml"]
    ngram = made("tensorrt-llm", NGRAM).config
    assert ngram["disable_overlap_scheduler"] is True
    assert (
        ngram["speculative_config"] | {"max_matching_ngram_size": 3, "is_public_pool": False}
        == ngram["speculative_config"]
    )
    model = made("tensorrt-llm", MODEL, load=1).config["speculative_config"]
    assert (model["decoding_type"], model["speculative_model"]) == ("DraftTarget", "org/small-model")


def test_tensorrt_llm_one_length_at_some_loads_is_max_concurrency() -> None:
    inner = made("tensorrt-llm", SURE["suffix"], load=None, loads=(1, 8), gamma_max=3).config["speculative_config"]
    assert inner["max_draft_len"] == 3
    assert inner["max_concurrency"] == 8
    assert "draft_len_schedule" not in inner


def test_tensorrt_llm_drafts_most_at_the_lightest_load() -> None:
    policy = policy_of(make_plan(SUFFIX))
    candidate = policy.candidates[0]
    light, middle, heavy = candidate.by_load
    rising = replace(candidate, by_load=(replace(light, gamma=1), replace(middle, gamma=3), heavy))
    exported = export(replace(policy, candidates=(rising,)), "tensorrt-llm")
    assert exported.config["speculative_config"]["max_concurrency"] == 8
    assert exported.config["speculative_config"]["max_draft_len"] == 1
    assert any("no load drafts more than 1" in line for line in exported.not_expressed)
    late = replace(candidate, by_load=(replace(light, gamma=0), middle, heavy))
    exported = export(replace(policy, candidates=(late,)), "tensorrt-llm")
    assert not exported.enabled
    assert "heavier loads only" in exported.summary


def test_llama_cpp_names() -> None:
    gamma = make_plan(NGRAM).bucket("all").band(1).curve("ngram").best_gamma
    assert argv(made("llama.cpp", NGRAM, load=1)) == [
        "-m", "org/target-model", "--spec-type", "ngram-simple",
        "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", str(gamma),
    ]  # fmt: skip
    gamma = make_plan(MODEL).bucket("all").band(1).curve("small").best_gamma
    assert made("llama.cpp", MODEL, load=1).config == {
        "spec-type": "draft-simple", "md": "org/small-model", "spec-draft-n-max": gamma, "spec-draft-p-min": 0,
    }  # fmt: skip
    one = replace(NGRAM, alphas={"all": 0.15})
    assert made("llama.cpp", one, load=1).config["spec-ngram-simple-size-n"] == 1  # a shorter draft would be dropped


@pytest.mark.parametrize("engine", list(ENGINES))
def test_do_not_enable_is_the_plain_command(engine: str) -> None:
    unsure = replace(NGRAM, doubt=0.9)
    exported = made(engine, unsure, load=None)
    assert not exported.enabled
    assert exported.summary.startswith("do not enable: over all prompts no drafter is surely faster")
    assert exported.config == {}
    assert "spec" not in exported.command()
    assert exported.command().split()[-1] == "org/target-model"
    assert exported.file_text is None


def test_a_drafter_that_the_engine_lacks() -> None:
    exported = made("vllm", EARLY, NGRAM)
    assert exported.config["method"] == "ngram"  # the best of those it has
    assert "the drafter early: vLLM has none of the kind early_exit" in exported.not_expressed
    alone = made("vllm", EARLY)
    assert not alone.enabled
    assert "no drafter that vLLM has" in alone.summary
    assert "the drafter early: vLLM has none of the kind early_exit" in alone.not_expressed


def test_an_engine_with_one_length_enables_only_what_pays_at_every_load() -> None:
    for engine in ("sglang", "llama.cpp"):
        exported = made(engine, NGRAM, load=None)
        assert not exported.enabled
        assert "--concurrency" in exported.summary
        assert made(engine, NGRAM, load=1).enabled
        assert made(engine, NGRAM, load=None, loads=(1, 8)).enabled


def test_buckets_that_want_something_else_are_listed() -> None:
    plan = make_plan(SUFFIX)
    lines = made("tensorrt-llm", SUFFIX, load=None).not_expressed
    edit = plan.bucket("edit").band(8).point.gamma
    (chat,) = [line for line in lines if line.startswith("bucket chat")]
    assert (
        chat == "bucket chat: the plan says do not enable at 1; do not enable at 8"
    )  # at 64 nothing is drafted anyway
    (wanted,) = [line for line in lines if line.startswith("bucket edit")]
    assert f"suffix, {edit} tokens at 8" in wanted
    assert not [line for line in lines if line.startswith("bucket all")]


@pytest.mark.parametrize("engine", list(ENGINES))
def test_what_no_engine_can_say(engine: str) -> None:
    lines = made(engine, SURE["ngram"], load=None).not_expressed
    assert any("each request" in line for line in lines)
    assert any("off by itself" in line for line in lines)
    assert any("rule coupled" in line for line in lines)
    followed = made(engine, SURE["ngram"], load=None, sampling={"temperature": 0.8, "rule": "follow"})
    assert not any("rule coupled" in line for line in followed.not_expressed)
    greedy = made(engine, SURE["ngram"], load=None, sampling={"temperature": 0.0, "rule": "coupled"})
    assert not any("rule coupled" in line for line in greedy.not_expressed)  # greedy text has no seed
    assert any("numerics invariant" in line for line in greedy.not_expressed)
    by_load = [line for line in lines if "each load" in line]
    assert bool(by_load) == (engine in ("sglang", "llama.cpp"))


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_shell_reads_every_name_as_it_was(engine: str) -> None:
    plan = renamed(make_plan(SURE["small"]), {"org/target-model": NASTY, "org/small-model": NASTY + " draft"})
    exported = export(policy_of(plan, 1), engine)
    words = argv(exported, "it's a file")
    assert NASTY in words
    if engine == "vllm":
        assert json.loads(words[-1])["model"] == NASTY + " draft"
    elif engine == "tensorrt-llm":
        assert yaml.safe_load(exported.file_text or "")["speculative_config"]["speculative_model"] == NASTY + " draft"
        assert words[-1] == "it's a file"
    else:
        assert NASTY + " draft" in words


@pytest.mark.parametrize("engine", list(ENGINES))
def test_no_name_ends_a_comment(engine: str) -> None:
    names = {
        "chat": "x\ntouch owned",
        "edit": "y\r\u2028\u0085touch owned",
        "ngram": "n\ntouch owned",
        "org/target-model": NASTY,
    }
    plan = renamed(make_plan(SURE["ngram"], EARLY), names)
    script = export(policy_of(plan, 8), engine).script("file\nname")
    comments, _, body = script.partition("\n# note: ")
    assert "touch owned" in comments
    for line in script.splitlines():
        assert line.startswith("#") or "touch owned" not in line
    assert all(char.isprintable() or char == "\n" for char in comments)
    assert body


def test_yaml_holds_what_json_may_and_yaml_may_not() -> None:
    odd = "a\x7f\x85\u2028\ufeff😀\t\"'\\: #{}"
    plan = renamed(make_plan(SURE["small"]), {"org/small-model": odd})
    text = export(policy_of(plan, 1), "tensorrt-llm").file_text
    assert text is not None
    assert yaml.safe_load(text)["speculative_config"]["speculative_model"] == odd


def test_the_script_is_a_script() -> None:
    exported = made("llama.cpp", NGRAM, load=1)
    exported = replace(exported, words=("program", *exported.words[1:]))
    script = "program() { printf '%s\\0' \"$@\"; }\n" + exported.script()
    ran = subprocess.run(["sh"], input=script, capture_output=True, check=True, text=True)
    assert ran.stderr == ""
    assert ran.stdout.split("\0")[:2] == ["-m", "org/target-model"]
    text = made("tensorrt-llm", NGRAM).script("s.yaml")
    assert yaml.safe_load(text) == made("tensorrt-llm", NGRAM).config
    assert "# command: trtllm-serve org/target-model --config s.yaml\n" in text


def test_models_that_the_engine_can_not_read_are_noted() -> None:
    demo = renamed(make_plan(SUFFIX), {"org/target-model": "demo"})
    assert any("demo" in note for note in export(policy_of(demo, 1), "vllm").notes)
    assert any("GGUF" in note for note in made("llama.cpp", NGRAM, load=1).notes)
    gguf = renamed(make_plan(NGRAM), {"org/target-model": "m.GGUF"})
    assert not any("GGUF" in note for note in export(policy_of(gguf, 1), "llama.cpp").notes)


def test_an_unknown_engine_is_an_input_error() -> None:
    with pytest.raises(
        InputError, match=r"no engine is called 'tgi'; there are: vllm, sglang, tensorrt-llm, llama\.cpp"
    ):
        export(policy_of(make_plan(SUFFIX)), "tgi")


def test_json_is_complete() -> None:
    value = made("tensorrt-llm", SUFFIX, load=None).as_dict("f.yaml")
    assert list(value) == [
        "engine", "checked_against", "enabled", "summary", "config", "config_file", "command", "not_expressed", "notes",
    ]  # fmt: skip
    assert json.loads(json.dumps(value))["command"].endswith("--config f.yaml")


def test_one_line_keeps_words_and_drops_control() -> None:
    assert one_line(" a\n\tb \x1b[31m\u202e é ") == "a b [31m é"

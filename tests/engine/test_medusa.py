"""Medusa heads over a tiny target: texts and bits of plain decoding, refusals, and a training run from end to end."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from draftproof import SamplingParams
from draftproof.engine.options import EngineOptions
from draftproof.errors import CorruptModel, InputError, InvalidParams, ModelNotFound, PairingError
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_files import save_head
from draftproof.models.module import load_module
from draftproof.train.job import Job
from draftproof.train.kinds import KINDS
from draftproof.train.settings import TrainSettings
from draftproof.train.start import new_head

pytestmark = pytest.mark.filterwarnings("ignore")
PROMPTS = ["abc abc abc", "x", "The quick brown fox " * 3, "1 2 3 4 5 6 7"]


@pytest.fixture(scope="module")
def trained(folder, cache_dir, tmp_path_factory):
    """(settings, report) of a run of a few seconds."""
    out = tmp_path_factory.mktemp("run") / "heads"
    settings = TrainSettings(
        out, str(folder), minutes=0.1, max_new=12, draft_vocab=128, learning_rate=1e-2, cache_dir=cache_dir, threads=1
    )
    return settings, Job(settings, lambda _: None, KINDS["medusa"]).run(["test"])


@pytest.fixture(scope="module")
def heads_folder(trained):
    """Its heads."""
    return trained[0].out


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.9, "rule": "coupled"}, {"temperature": 1.0, "rule": "follow"}]
)
@pytest.mark.parametrize("shape", [{"gamma": 3, "chunk_rows": 7}, {"gamma": 5, "tree": "2,2,1"}], ids=["chain", "tree"])
def test_texts_and_bits_are_plain_decodings(llm_of, heads_folder, params, shape):
    plain, drafted = llm_of(), llm_of(drafter="medusa", draft_model=str(heads_folder), **shape)
    settings = SamplingParams(max_new_tokens=24, seed=5, logprobs=0, ignore_eos=True, **params)
    truth = [plain.generate(prompt, settings)[0] for prompt in PROMPTS]
    alone = [drafted.generate(prompt, settings)[0] for prompt in PROMPTS]
    for found in (alone, drafted.generate(PROMPTS, settings)):
        for one, other in zip(found, truth, strict=True):
            assert one.token_ids == other.token_ids
            assert [entry.logprob for entry in one.logprobs] == [entry.logprob for entry in other.logprobs]
    assert sum(output.speculation.drafted for output in alone) > 20


@pytest.mark.parametrize("rule", ["reject", "block"])
def test_a_ratio_rule_keeps_its_text_whatever_is_beside_it(llm_of, heads_folder, rule):
    llm = llm_of(drafter="medusa", draft_model=str(heads_folder), gamma=2)
    settings = SamplingParams(max_new_tokens=20, seed=3, temperature=1.0, rule=rule, ignore_eos=True)
    alone = [llm.generate(prompt, settings)[0].token_ids for prompt in PROMPTS]
    assert [output.token_ids for output in llm.generate(PROMPTS, settings)] == alone


def test_sequences_that_were_set_back_go_on(llm_of, heads_folder):
    settings = SamplingParams(max_new_tokens=60, ignore_eos=True)
    prompts = [f"{i} {i} {i} prompt number {i}" for i in range(8)]
    truth = [output.token_ids for output in llm_of().generate(prompts, settings)]
    small = llm_of(drafter="medusa", draft_model=str(heads_folder), gamma=3, kv_memory=200_000)
    assert [output.token_ids for output in small.generate(prompts, settings)] == truth


def test_what_does_not_fit_is_refused_before_it_runs(llm_of, folder, heads_folder, tmp_path):
    with pytest.raises(ModelNotFound, match="no Medusa heads ship"):
        llm_of(drafter="medusa")
    with pytest.raises(ModelNotFound, match="no Medusa heads '/nowhere'"):
        llm_of(drafter="medusa", draft_model="/nowhere")
    with pytest.raises(InvalidParams, match="takes no exit layer"):
        EngineOptions(drafter="medusa", exit_layer=2)
    shutil.copytree(heads_folder, tmp_path / "h")
    config = json.loads((tmp_path / "h" / "config.json").read_text())
    shutil.rmtree(tmp_path / "h" / "work")
    for change, words in (
        ({"target_layers": 5}, "5 layers, this one has 3"),
        ({"hidden_size": 48}, "hidden size of 48, this one has 32"),
        ({"tokenizer": "0" * 32}, "another tokenizer"),
    ):
        (tmp_path / "h" / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(PairingError, match=words):
            llm_of(drafter="medusa", draft_model=str(tmp_path / "h"))
    module = load_module(folder)
    eagle = EagleConfig.of_target(module.config, None, 200)
    save_head(new_head(eagle, module, torch.arange(200), torch.arange(64).reshape(2, 32), 0), tmp_path / "e")
    with pytest.raises(CorruptModel, match="not of Medusa heads"):
        llm_of(drafter="medusa", draft_model=str(tmp_path / "e"))
    with pytest.raises(InputError, match="medusa"):
        llm_of(drafter="eagle", draft_model=str(heads_folder))
    settings = TrainSettings(tmp_path / "e", str(folder), cache_dir=tmp_path / "c")
    with pytest.raises(CorruptModel, match="not of Medusa heads"):  # at once, not after hours
        Job(settings, lambda _: None, KINDS["medusa"]).run([])


def test_a_run_writes_heads_that_draft(trained, llm_of):
    settings, report = trained
    assert report["written"]
    assert set(report["held_out"]) == {"chat", "text"}
    assert all(len(score["acceptance"]) == 4 for score in report["held_out"].values())
    llm = llm_of(drafter="medusa", draft_model=str(settings.out), gamma=2)  # as of the tests of ratio rules
    assert llm.generate("abc", SamplingParams(max_new_tokens=8, ignore_eos=True))[0].speculation.drafted > 0
    config = json.loads((settings.out / "config.json").read_text())
    assert config["card"]["held_out"] == report["held_out"]
    assert config["tokenizer"] is not None


def test_a_killed_run_ends_in_the_same_heads(trained, tmp_path):
    settings, _ = trained
    shutil.copytree(settings.out / "work", tmp_path / "heads" / "work")
    (tmp_path / "heads" / "work" / "state.pt").unlink()
    again = replace(settings, out=tmp_path / "heads")
    with pytest.raises(InputError, match="holds a run with kind 'medusa', this one has 'eagle'"):
        Job(again, lambda _: None).run([])
    Job(again, lambda _: None, KINDS["medusa"]).run(["test"])
    one, other = (load_file(out / "model.safetensors") for out in (settings.out, again.out))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_worse_heads_do_not_replace_better_ones(trained, tmp_path, monkeypatch):
    settings, report = trained
    shutil.copytree(settings.out, tmp_path / "heads")
    (tmp_path / "heads" / "work" / "state.pt").unlink()
    before = (tmp_path / "heads" / "model.safetensors").read_bytes()

    def wreck(trainer, _):
        trainer.losses.append(0.0)
        for parameter in trainer.head.parameters():
            torch.nn.init.normal_(parameter, std=10.0, generator=torch.Generator().manual_seed(0))

    monkeypatch.setattr("draftproof.train.trainer.Trainer._one", wreck)
    found = Job(replace(settings, out=tmp_path / "heads"), lambda _: None, KINDS["medusa"]).run(["test"])
    assert not found["written"]
    assert found["replaced"] == report["held_out"]
    assert (tmp_path / "heads" / "model.safetensors").read_bytes() == before

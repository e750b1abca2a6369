"""A draft model distilled from a tiny target: a run from end to end, killed, given again, judged, refused; drafting."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from draftproof import SamplingParams
from draftproof.errors import CorruptModel, InputError, ModelNotFound, PairingError
from draftproof.models.student_files import load_student
from draftproof.train import job
from draftproof.train.job import Job
from draftproof.train.kinds import KINDS
from draftproof.train.settings import TrainSettings
from draftproof.train.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore")
PROMPTS = ["abc abc abc", "x", "The quick brown fox " * 3, "1 2 3 4 5 6 7"]
KIND = KINDS["draft-model"]
STEPS = 40


@pytest.fixture(scope="module")
def few_steps():
    """Runs time their steps as ever, then take so many."""
    timed, asked = job.steps_that_fit, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "steps_that_fit", lambda *args: asked.append(timed(*args)) or STEPS)
        yield asked


@pytest.fixture(scope="module")
def trained(folder, cache_dir, tmp_path_factory, few_steps):
    """(settings, report) of a run of a few seconds."""
    out = tmp_path_factory.mktemp("run") / "small"
    settings = TrainSettings(
        out, str(folder), minutes=0.1, max_new=24, layers=2, learning_rate=1e-2, cache_dir=cache_dir, threads=1
    )
    report = Job(settings, lambda _: None, KIND).run(["test"])
    assert few_steps[0] >= 8
    return settings, report


def tensors(folder):
    return load_file(folder / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_writes_a_model_that_drafts_better_than_the_picked_layers(trained, folder, llm_of):
    settings, report = trained
    assert report["written"]
    assert report["steps"] == STEPS
    for bucket in ("chat", "text"):
        before, after = report["before"][bucket], report["held_out"][bucket]
        assert len(after["acceptance"]) == 3  # of each draft of a round of three
        assert after["overlap"][0] > before["overlap"][0] + 0.02
    note = json.loads((settings.out / "config.json").read_text())["draftproof"]
    assert note["layers"] == [0, 2]
    assert note["card"]["held_out"] == report["held_out"]
    readme = (settings.out / "README.md").read_text()
    assert "2 of the target's 3 layers: it started from its layers 0, 2" in readme
    assert '"tokens_per_round"' in readme
    llm = llm_of(drafter="model", draft_model=str(settings.out), gamma=3)
    assert llm.generate("abc", SamplingParams(max_new_tokens=8, ignore_eos=True))[0].speculation.drafted > 0


@pytest.mark.parametrize("params", [{}, {"temperature": 0.9, "rule": "coupled"}])
def test_texts_are_plain_decodings(llm_of, trained, params):
    plain, drafted = llm_of(), llm_of(drafter="model", draft_model=str(trained[0].out), gamma=3)
    settings = SamplingParams(max_new_tokens=24, seed=5, logprobs=0, ignore_eos=True, **params)
    truth, found = plain.generate(PROMPTS, settings), drafted.generate(PROMPTS, settings)
    for one, other in zip(found, truth, strict=True):
        assert one.token_ids == other.token_ids
        assert [entry.logprob for entry in one.logprobs] == [entry.logprob for entry in other.logprobs]
    assert sum(output.speculation.drafted for output in found) > 20


def test_transformers_loads_it_and_its_rows_are_the_targets(trained, folder):
    out = trained[0].out
    model, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    target = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for rows in ("get_input_embeddings", "get_output_embeddings"):
        assert torch.equal(getattr(model, rows)().weight, getattr(target, rows)().weight)
    assert not torch.equal(model.model.layers[1].mlp.up_proj.weight, target.model.layers[2].mlp.up_proj.weight)
    assert (model.config.num_hidden_layers, model.config.eos_token_id) == (2, target.config.eos_token_id)
    tokens = torch.arange(40)[None]
    mine = load_student(out, folder)
    torch.testing.assert_close(model(tokens).logits, mine.logits(tokens))
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer("abc").input_ids == transformers.AutoTokenizer.from_pretrained(folder)("abc").input_ids


def test_a_killed_run_ends_in_the_same_model(trained, tmp_path, monkeypatch):
    settings, _ = trained
    shutil.copytree(settings.out / "work", tmp_path / "small" / "work")
    (tmp_path / "small" / "work" / "state.pt").unlink()
    again = replace(settings, out=tmp_path / "small")
    for other, named in ((KINDS["eagle"], "kind 'draft-model', this one has 'eagle'"), (KIND, "layers 2, this one")):
        with pytest.raises(InputError, match=f"holds a run with {named}"):
            Job(replace(again, layers=None), lambda _: None, other).run([])
    step = Trainer._one

    def killed(trainer, batch):
        if trainer.step == STEPS // 2:
            raise KeyboardInterrupt
        step(trainer, batch)

    monkeypatch.setattr(job, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr(Trainer, "_one", killed)
    with pytest.raises(KeyboardInterrupt):
        Job(again, lambda _: None, KIND).run(["test"])
    assert not (again.out / "config.json").exists()
    seen = []
    monkeypatch.setattr(Trainer, "_one", lambda trainer, batch: (seen.append(trainer.step), step(trainer, batch)))
    Job(again, lambda _: None, KIND).run(["test"])
    assert seen[0] == STEPS // 2
    assert same(tensors(settings.out), tensors(again.out))


def wreck(trainer, _):
    trainer.losses.append(0.0)
    for parameter in trainer.head.parameters():
        torch.nn.init.normal_(parameter, std=10.0, generator=torch.Generator().manual_seed(0))


def test_a_worse_one_does_not_replace_a_better_one(trained, tmp_path, monkeypatch):
    settings, report = trained
    shutil.copytree(settings.out, tmp_path / "small")
    (tmp_path / "small" / "work" / "state.pt").unlink()
    before = {file.name: file.read_bytes() for file in (tmp_path / "small").iterdir() if file.is_file()}
    monkeypatch.setattr(Trainer, "_one", wreck)
    found = Job(replace(settings, out=tmp_path / "small"), lambda _: None, KIND).run(["test"])
    assert not found["written"]
    assert found["replaced"] == report["held_out"]
    assert {file.name: file.read_bytes() for file in (tmp_path / "small").iterdir() if file.is_file()} == before


def test_a_full_disk_at_the_end_is_said_and_nothing_is_half_written(trained, tmp_path, monkeypatch):
    settings, _ = trained
    shutil.copytree(settings.out / "work", tmp_path / "small" / "work")

    def full(self, folder, **_):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(transformers.PreTrainedModel, "save_pretrained", full)
        with pytest.raises(InputError, match=r"can't write .*small .*No space left.*; the last checkpoint is kept"):
            Job(replace(settings, out=tmp_path / "small"), lambda _: None, KIND).run(["test"])
    assert [file.name for file in (tmp_path / "small").iterdir()] == ["work"]
    assert Job(replace(settings, out=tmp_path / "small"), lambda _: None, KIND).run(["test"])["written"]
    assert same(tensors(settings.out), tensors(tmp_path / "small"))


def test_it_goes_on_from_an_earlier_one(trained, tmp_path, few_steps):
    settings, report = trained
    later = replace(
        settings,
        out=tmp_path / "later",
        init=settings.out,
        texts=settings.out / "work",
        layers=None,
        learning_rate=1e-3,
    )
    found = Job(later, lambda _: None, KIND).run(["test"])
    assert found["before"] == report["held_out"]
    assert json.loads((later.out / "config.json").read_text())["draftproof"]["layers"] == [0, 2]


def test_what_is_none_of_this_target_is_refused_before_anything_is_written(trained, folder, other_folder, tmp_path):
    settings, out = trained[0], trained[0].out

    def refused(error, words, **changes):
        asked = replace(settings, **{"out": tmp_path / "new", "layers": None, **changes})
        with pytest.raises(error, match=words):
            Job(asked, lambda _: None, KIND).run([])
        assert not (tmp_path / "new").exists()

    refused(ModelNotFound, "holds no draft model", init=tmp_path)
    refused(CorruptModel, "holds no draft model that", init=folder)
    refused(CorruptModel, "holds no draft model that", out=folder)
    for layers in (1, 3):
        refused(InputError, rf"fewer than the target: this one has 3, got {layers}", layers=layers)
    changed = shutil.copytree(out, tmp_path / "changed", ignore=shutil.ignore_patterns("work"))
    values = json.loads((out / "config.json").read_text())
    for name, value in (("num_hidden_layers", 5), ("vocab_size", 258), ("model_type", "qwen2")):
        note = values["draftproof"] | {"target": values["draftproof"]["target"] | {name: value}}
        (changed / "config.json").write_text(json.dumps(values | {"draftproof": note}))
        refused(PairingError, rf"whose {name} is {value!r}, this one's is", init=changed)
    (changed / "config.json").write_text(json.dumps(values))
    state = tensors(out)
    state["lm_head.weight"][3, 4] += 1
    save_file(state, changed / "model.safetensors", {"format": "pt"})
    refused(PairingError, "has other embedding or output rows than this target", init=changed)
    with pytest.raises(InputError, match="--layers is of draft models"):
        Job(replace(settings, out=tmp_path / "new"), lambda _: None, KINDS["eagle"]).run([])

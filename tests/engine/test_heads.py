"""Draft heads over a tiny target: texts and bits of plain decoding, refusals, and a training run from end to end."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from draftproof import SamplingParams
from draftproof.engine import step as stepping
from draftproof.engine.options import EngineOptions
from draftproof.engine.pack import pack
from draftproof.errors import CorruptModel, InputError, InvalidParams, ModelNotFound, PairingError, UnknownDrafter
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_files import save_head
from draftproof.models.module import load_module
from draftproof.train.job import Job
from draftproof.train.kinds import KINDS
from draftproof.train.settings import TrainSettings
from draftproof.train.start import new_head

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("unsure_heads_draft")]
PROMPTS = ["abc abc abc", "x", "The quick brown fox " * 3, "1 2 3 4 5 6 7"]


@pytest.fixture(scope="module")
def head_folder(folder, tmp_path_factory):
    """An untrained head of the tiny target."""
    module = load_module(folder)
    config = EagleConfig.of_target(module.config, None, 200)
    ids = torch.arange(200)
    made = tmp_path_factory.mktemp("head")
    save_head(new_head(config, module, ids, torch.arange(64).reshape(2, 32), 0), made)
    return made


@pytest.mark.parametrize("drafter", ["eagle", "cascade"])
@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.9, "rule": "coupled"}, {"temperature": 1.0, "rule": "follow"}]
)
def test_texts_and_bits_are_plain_decodings(llm_of, head_folder, drafter, params):
    plain, drafted = llm_of(), llm_of(drafter=drafter, draft_model=str(head_folder), gamma=3, chunk_rows=7)
    settings = SamplingParams(max_new_tokens=24, seed=5, logprobs=0, ignore_eos=True, **params)
    truth = [plain.generate(prompt, settings)[0] for prompt in PROMPTS]
    alone = [drafted.generate(prompt, settings)[0] for prompt in PROMPTS]
    for found in (alone, drafted.generate(PROMPTS, settings)):
        for one, other in zip(found, truth, strict=True):
            assert one.token_ids == other.token_ids
            assert [entry.logprob for entry in one.logprobs] == [entry.logprob for entry in other.logprobs]
    assert sum(output.speculation.drafted for output in alone) > 20


TREES = [("eagle", tree) for tree in ("dynamic", "auto", "2,2,1", "1 2 3 1.1 2.1")]
TREES += [("cascade", tree) for tree in ("dynamic", "2,2,1")]


@pytest.mark.parametrize(("drafter", "tree"), TREES)
@pytest.mark.parametrize("params", [{}, {"temperature": 0.9, "rule": "coupled"}])
def test_texts_and_bits_of_trees_are_plain_decodings(llm_of, head_folder, drafter, tree, params):
    plain = llm_of()
    drafted = llm_of(drafter=drafter, draft_model=str(head_folder), gamma=5, tree=tree, chunk_rows=7)
    assert drafted.info["tree"] == tree
    settings = SamplingParams(max_new_tokens=24, seed=5, logprobs=0, ignore_eos=True, **params)
    truth = [plain.generate(prompt, settings)[0] for prompt in PROMPTS]
    found = drafted.generate(PROMPTS, settings)
    for one, other in zip(found, truth, strict=True):
        assert one.token_ids == other.token_ids
        assert [entry.logprob for entry in one.logprobs] == [entry.logprob for entry in other.logprobs]
    assert sum(output.speculation.drafted for output in found) > 20


def test_in_a_cascade_both_drafters_speak_and_a_wrong_parent_is_noticed(llm_of, head_folder, monkeypatch):
    """The comparison above, with a target that is shown nodes on other branches than those they were drafted on."""
    drafted = llm_of(drafter="cascade", draft_model=str(head_folder), gamma=5, tree="2,2,1", chunk_rows=7)
    few = dict.fromkeys((65, 66, 67), 50.0)  # of three tokens an untrained head's trees often hold the right one
    settings = SamplingParams(max_new_tokens=24, seed=5, ignore_eos=True, logit_bias=few)
    seen = {"trees": 0, "chains": 0}

    def watched(items, drafts, *rest, spoil):
        shown = []
        for draft in drafts:
            branched = draft.parents.tolist() != list(range(len(draft)))
            seen["trees" if branched else "chains"] += len(draft) > 0
            parents = np.where(draft.parents > 1, draft.parents - 1, draft.parents) if spoil else draft.parents
            shown.append(replace(draft, parents=parents.astype(np.int32)))
        return pack(items, shown, *rest)

    for spoil in (False, True):
        monkeypatch.setattr(stepping, "pack", partial(watched, spoil=spoil))
        found = [output.token_ids for output in drafted.generate(PROMPTS, settings)]
        same = found == [output.token_ids for output in llm_of().generate(PROMPTS, settings)]
        assert same is not spoil
    assert min(seen.values()) > 5


@pytest.mark.parametrize("tree", ["dynamic", "2,2,1"])
def test_the_states_a_tree_leaves_behind_are_plain_decodings(llm_of, head_folder, tree):
    """What the head reads after a tree round: the kept rows' states, bit for bit, at their places."""
    settings = SamplingParams(max_new_tokens=24, seed=5, ignore_eos=True, temperature=0.9)
    states = []
    for each in (None, tree):
        llm = llm_of(drafter="eagle", draft_model=str(head_folder), gamma=0 if each is None else 5, tree=each)
        engine, seen = llm._built.engine, {}
        observe = engine.drafter.observe

        def watch(commits, observe=observe, seen=seen):
            for commit in commits:
                seen.update({commit.start + row: state for row, state in enumerate(commit.features)})
            observe(commits)

        engine.drafter.observe = watch
        llm.generate(PROMPTS[2], settings)
        engine.drafter.observe = observe
        states.append(seen)
    places = states[0].keys() & states[1].keys()
    assert len(places) >= len(states[0]) - 1  # the last token's row may be there, or not
    assert all((states[0][place] == states[1][place]).all() for place in places)


@pytest.mark.parametrize("rule", ["reject", "block"])
def test_a_ratio_rule_keeps_its_text_whatever_is_beside_it(llm_of, head_folder, rule):
    settings = SamplingParams(max_new_tokens=20, seed=3, temperature=1.0, rule=rule, ignore_eos=True)
    for drafter, tree in (("eagle", None), ("eagle", "dynamic"), ("cascade", "dynamic")):
        keeps_its_text(llm_of(drafter=drafter, draft_model=str(head_folder), gamma=4, tree=tree), settings)


def keeps_its_text(llm, settings):
    alone = [llm.generate(prompt, settings)[0].token_ids for prompt in PROMPTS]
    assert [output.token_ids for output in llm.generate(PROMPTS, settings)] == alone


def test_sequences_that_were_set_back_go_on(llm_of, head_folder):
    """Little memory: sequences are pre-empted, the target's states come again from the start."""
    settings = SamplingParams(max_new_tokens=60, ignore_eos=True)
    prompts = [f"{i} {i} {i} prompt number {i}" for i in range(8)]
    truth = [output.token_ids for output in llm_of().generate(prompts, settings)]
    small = llm_of(drafter="eagle", draft_model=str(head_folder), gamma=3, kv_memory=200_000)
    assert [output.token_ids for output in small.generate(prompts, settings)] == truth


def test_what_does_not_fit_is_refused_before_it_runs(llm_of, head_folder, tmp_path):
    with pytest.raises(ModelNotFound, match="no draft head ships for this model"):
        llm_of(drafter="eagle")
    with pytest.raises(ModelNotFound, match="no draft head"):
        llm_of(drafter="cascade", draft_model="/nowhere")
    with pytest.raises(InvalidParams, match="takes no exit layer"):
        EngineOptions(drafter="eagle", exit_layer=2)
    for tree in ("wide", "3,0", "", "1 1.1.1", "2 1", "1.x"):
        with pytest.raises(UnknownDrafter, match="tree"):
            EngineOptions(drafter="eagle", tree=tree)
    for drafter in ("model", "suffix", "none"):
        with pytest.raises(InvalidParams, match=r"takes no tree: .* eagle, medusa or cascade"):
            EngineOptions(drafter=drafter, tree="auto")
    shutil.copytree(head_folder, tmp_path / "h")
    config = json.loads((tmp_path / "h" / "config.json").read_text())
    (tmp_path / "h" / "config.json").write_text(json.dumps(config | {"target_layers": 5}))
    with pytest.raises(PairingError, match="5 layers, this one has 3"):
        llm_of(drafter="eagle", draft_model=str(tmp_path / "h"))
    (tmp_path / "h" / "config.json").write_text(json.dumps(config | {"tokenizer": "0" * 32}))
    with pytest.raises(PairingError, match="another tokenizer"):
        llm_of(drafter="eagle", draft_model=str(tmp_path / "h"))


@pytest.fixture(scope="module")
def trained(folder, cache_dir, tmp_path_factory):
    """(settings, report) of a run of a few seconds."""
    out = tmp_path_factory.mktemp("run") / "head"
    settings = TrainSettings(
        out, str(folder), minutes=0.1, max_new=12, draft_vocab=128, learning_rate=3e-3, cache_dir=cache_dir, threads=1
    )
    return settings, Job(settings, lambda _: None).run(["test"])


def test_a_run_writes_a_head_that_drafts(trained, llm_of):
    settings, report = trained
    assert report["written"]
    assert report["texts"] > 50
    assert set(report["held_out"]) == {"chat", "text"}
    llm = llm_of(drafter="eagle", draft_model=str(settings.out), gamma=2)
    found = llm.generate(PROMPTS, SamplingParams(max_new_tokens=24, ignore_eos=True))
    assert sum(output.speculation.drafted for output in found) > 0
    card = json.loads((settings.out / "config.json").read_text())["card"]
    assert card["held_out"] == report["held_out"]


def test_a_killed_run_ends_in_the_same_head(trained, tmp_path):
    """Texts and the number of steps were written down; no checkpoint had been."""
    settings, _ = trained
    shutil.copytree(settings.out / "work", tmp_path / "head" / "work")
    (tmp_path / "head" / "work" / "state.pt").unlink()
    again = TrainSettings(**{name: getattr(settings, name) for name in settings.__slots__} | {"out": tmp_path / "head"})
    Job(again, lambda _: None).run(["test"])
    one, other = (load_file(out / "model.safetensors") for out in (settings.out, again.out))
    assert all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(InputError, match="holds a run with seed 0, this one has 1"):
        Job(TrainSettings(**{name: getattr(again, name) for name in again.__slots__} | {"seed": 1}), print).run([])


def test_a_run_does_not_go_on_with_other_prompts(folder, cache_dir, tmp_path, monkeypatch):
    """The same file with a line changed between kill and resume."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_write_texts", killed)
    data = tmp_path / "data.jsonl"
    settings = TrainSettings(tmp_path / "head", str(folder), data=data, minutes=0.1, cache_dir=cache_dir)
    lines = [json.dumps({"prompt": f"tell me about {word}"}) for word in ("rivers", "bread")]
    for last, ends in ((lines[1], KeyboardInterrupt), (lines[1], KeyboardInterrupt), (lines[0], InputError)):
        data.write_text("\n".join([lines[0], last]))
        with pytest.raises(ends) as stopped:
            Job(settings, print).run([])
    assert f"{data} is not what it was when the run" in str(stopped.value)


def test_texts_that_were_taken_over_may_be_gone_when_the_run_goes_on(trained, tmp_path, monkeypatch):
    settings, _ = trained
    theirs = shutil.copytree(settings.out / "work", tmp_path / "theirs")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_run", killed)
    again = TrainSettings(tmp_path / "head", settings.model, texts=theirs, minutes=0.1, cache_dir=settings.cache_dir)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            Job(again, print).run([])
        shutil.rmtree(theirs, ignore_errors=True)


def test_a_worse_head_does_not_replace_a_better_one(trained, tmp_path, monkeypatch):
    settings, report = trained
    shutil.copytree(settings.out, tmp_path / "head")
    (tmp_path / "head" / "work" / "state.pt").unlink()
    before = (tmp_path / "head" / "model.safetensors").read_bytes()
    monkeypatch.setattr("draftproof.train.trainer.Trainer._one", lambda self, texts: self.losses.append(0.0))
    again = TrainSettings(**{name: getattr(settings, name) for name in settings.__slots__} | {"out": tmp_path / "head"})
    found = Job(again, lambda _: None).run(["test"])
    assert not found["written"]
    assert found["replaced"] == report["held_out"]
    assert (tmp_path / "head" / "model.safetensors").read_bytes() == before


def test_bad_data_is_said_with_its_line_before_anything_is_written(folder, cache_dir, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a"}\n{"text": "b"}\n')
    settings = TrainSettings(tmp_path / "out", str(folder), data=data, cache_dir=cache_dir)
    with pytest.raises(InputError, match=r"line 2 of .*no prompt"):
        Job(settings, lambda _: None).run([])
    assert not (tmp_path / "out").exists()
    for wrong in ({"minutes": 0}, {"draft_vocab": 3}, {"minutes": float("nan")}, {"learning_rate": float("nan")}):
        with pytest.raises(InputError):
            TrainSettings(tmp_path, **wrong)
    for name, value in (("seed", -1), ("threads", 0)):
        with pytest.raises(InputError, match=f"--{name} must be"):
            TrainSettings(tmp_path, **{name: value})


def test_what_a_run_lost_is_made_again(trained, tmp_path, monkeypatch):
    """A part, the held-out texts, a checkpoint that can't be read: the command that is advised mends it."""
    settings, _ = trained
    work = shutil.copytree(settings.out / "work", tmp_path / "head" / "work")
    again = TrainSettings(**{name: getattr(settings, name) for name in settings.__slots__} | {"out": tmp_path / "head"})
    (work / "state.pt").write_bytes((work / "state.pt").read_bytes()[:1000])
    with pytest.raises(CorruptModel, match=r"state\.pt can't be read: delete it and give the same command again"):
        Job(again, print).run([])
    names = ("held-out.json", "texts-00000.json")
    before = {name: (work / name).read_bytes() for name in names}
    for name in (*names, "state.pt"):
        (work / name).unlink()
    Job(again, print).run([])
    assert {name: (work / name).read_bytes() for name in names} == before
    one, other = (load_file(out / "model.safetensors") for out in (settings.out, again.out))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_drafter_to_start_from_that_changed_is_noticed(trained, tmp_path, monkeypatch):
    settings, _ = trained
    init = shutil.copytree(settings.out, tmp_path / "init", ignore=shutil.ignore_patterns("work"))

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_run", killed)
    texts, out = settings.out / "work", tmp_path / "head"
    again = TrainSettings(out, settings.model, init=init, texts=texts, minutes=0.1, cache_dir=settings.cache_dir)
    with pytest.raises(KeyboardInterrupt):
        Job(again, print).run([])
    config = json.loads((init / "config.json").read_text())
    (init / "config.json").write_text(json.dumps(config | {"card": {}}))
    with pytest.raises(InputError, match=f"the drafter in {init} is not what it was"):
        Job(again, print).run([])


def test_options_that_would_change_nothing_are_refused(tmp_path):
    cases = {
        "--draft-vocab is of a new head": {"init": tmp_path, "draft_vocab": 99},
        "--layers is of a new draft model": {"init": tmp_path, "layers": 3},
        "give one of them": {"texts": tmp_path, "data": tmp_path},
        "--bucket-field is a field of --data": {"bucket_field": "task"},
        "--seed must be in": {"seed": 1 << 70},
        r"--minutes must be in 0\.1\.\.100000, got inf": {"minutes": float("inf")},
    }
    for words, options in cases.items():
        with pytest.raises(InputError, match=words):
            TrainSettings(tmp_path, **options)
    TrainSettings(tmp_path, seed=1 << 40)


@pytest.mark.parametrize("name", ["README.md", "model.safetensors", "tokenizer_config.json"])
def test_files_that_no_run_made_are_not_written_over(folder, cache_dir, tmp_path, name):
    (tmp_path / name).write_text("mine")
    for kind in KINDS.values():
        settings = TrainSettings(tmp_path, str(folder), cache_dir=cache_dir)
        with pytest.raises(InputError, match=f"holds {name}, which no run made"):
            Job(settings, lambda _: None, kind).run([])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_refused_command_leaves_no_run_that_refuses_the_mended_one(folder, cache_dir, tmp_path):
    settings = TrainSettings(tmp_path / "out", str(folder), texts=tmp_path, cache_dir=cache_dir)
    with pytest.raises(InputError, match="holds no texts of another run"):
        Job(settings, lambda _: None).run([])
    assert not (tmp_path / "out").exists()
    (tmp_path / "out" / "work").mkdir(parents=True)
    (tmp_path / "out" / "work" / "run.json").write_text('{"settings"')
    with pytest.raises(InputError, match=r"run\.json can't be read .* delete"):
        Job(TrainSettings(tmp_path / "out", str(folder), cache_dir=cache_dir), lambda _: None).run([])

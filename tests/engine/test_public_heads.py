"""A head in another engine's format, given to a drafter as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from draftproof import SamplingParams
from draftproof.errors import PairingError
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.folder import read_config
from draftproof.models.head_files import save_head
from draftproof.models.head_formats.eagle import open_head
from draftproof.models.head_formats.folder import PUBLIC, write_folder
from draftproof.models.head_formats.rows import target_rows
from draftproof.models.head_formats.transfer import Target, to_public
from draftproof.models.module import load_module
from draftproof.train.start import new_head

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """own/ and public/: the same head; the public one brings its output rows and an embedding."""
    where, module = tmp_path_factory.mktemp("heads"), load_module(folder)
    config = EagleConfig.of_target(module.config, (0, 1, 2), 200)
    save_head(new_head(config, module, torch.arange(200), torch.arange(64).reshape(2, 32), 0), where / "own")
    head = open_head(where / "own", read_config(folder))
    values, state = to_public(head, "eagle3", target_rows(folder), Target("any"), embedding=True)
    write_folder(where / "public", values, state, metadata=PUBLIC)
    return where


def test_it_drafts_and_the_text_is_plain_decodings(llm_of, made):
    settings = SamplingParams(max_new_tokens=24, ignore_eos=True)
    prompts = ["abc abc abc", "The quick brown fox"]
    llm = llm_of(drafter="eagle", draft_model=str(made / "public"), gamma=3, weights="float32")
    truth = llm.generate(prompts, replace(settings, max_draft_tokens=0))
    found = llm.generate(prompts, settings)
    assert [output.token_ids for output in found] == [output.token_ids for output in truth]
    assert sum(output.speculation.drafted for output in found) > 5


def test_one_of_another_target_is_refused_before_it_runs(llm_of, made, tmp_path):
    values = json.loads((made / "public" / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((made / "public" / "model.safetensors").read_bytes())
    values["draftproof"]["target_layers"] = 5
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(PairingError, match="5 layers, this one has 3"):
        llm_of(drafter="eagle", draft_model=str(tmp_path))

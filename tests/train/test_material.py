"""Texts of another run, taken over."""

from __future__ import annotations

import json

import pytest

from draftproof.errors import CorruptModel, InputError
from draftproof.train.material import Material


def work(folder, parts, held=True):
    folder.mkdir()
    for number in range(parts):
        record = {"bucket": "chat", "prompt": [1, 2], "tokens": [number, 4, 5, 6, 7], "text": "t"}
        (folder / f"texts-{number:05d}.json").write_text(json.dumps([record]))
    if held:
        (folder / "held-out.json").write_text(json.dumps([record | {"bucket": "text"}]))
    return folder


def test_texts_of_another_run_are_copied_and_stay_when_it_is_gone(tmp_path):
    theirs = work(tmp_path / "theirs", 3)
    (theirs / "texts-notes.json").write_text("mine")
    ours = tmp_path / "ours"
    ours.mkdir()
    material = Material(ours, [], 0, 8)
    assert material.take(theirs) == 3
    for file in theirs.iterdir():
        file.unlink()
    assert [text.tokens.tolist() for text in material.texts(3)] == [[1, 2, n, 4, 5, 6, 7] for n in range(3)]
    assert material.held_out()[0].bucket == "text"
    assert not (ours / "texts-notes.json").exists()


def test_a_folder_without_texts_is_refused(tmp_path):
    (tmp_path / "ours").mkdir()
    material = Material(tmp_path / "ours", [], 0, 8)
    for theirs in (tmp_path / "none", work(tmp_path / "no-held", 2, held=False)):
        with pytest.raises(InputError, match="holds no texts of another run"):
            material.take(theirs)
    broken = work(tmp_path / "broken", 2)
    (broken / "texts-00001.json").write_text("[")
    with pytest.raises(CorruptModel, match=r"texts-00001.json can't be read"):
        material.take(broken)

"""The folder of a run: one run, one process, and nothing of another run taken over."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from draftproof.errors import InputError
from draftproof.train.folder import RunFolder

IDENTITY = {"kind": "eagle", "seed": 0}
GIVEN = {"target": ("the model m", "1234"), "initial": ("the drafter in d", None)}


def begun(path, **state):
    folder = RunFolder(path)
    folder.begin(IDENTITY, GIVEN)
    folder.note(**state)
    folder.leave()
    return folder


def test_a_run_goes_on_as_itself_alone(tmp_path):
    begun(tmp_path / "w", parts=3)
    again = RunFolder(tmp_path / "w")
    again.begin(IDENTITY, GIVEN)
    assert again.state["parts"] == 3
    again.leave()
    with pytest.raises(InputError, match="holds a run with seed 0, this one has 1"):
        RunFolder(tmp_path / "w").begin(IDENTITY | {"seed": 1}, GIVEN)
    with pytest.raises(InputError, match="holds a run with seed 0") as refused:
        RunFolder(tmp_path / "w").begin(IDENTITY | {"seed": 1}, GIVEN)
    assert refused.value.__traceback__ is not None  # it keeps the refused one alive, which may not keep others out
    for name in GIVEN:
        called = GIVEN[name][0]
        with pytest.raises(InputError, match=f"{called} is not what it was when the run in .* began"):
            RunFolder(tmp_path / "w").begin(IDENTITY, GIVEN | {name: (called, "other")})


def test_a_run_of_before_digests_goes_on(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"settings": IDENTITY, "text_seconds": 1.5, "parts": 2}))
    folder = RunFolder(tmp_path)
    folder.begin(IDENTITY, GIVEN)
    assert folder.state["target"] == "1234"


HOLDER = """
import sys
from draftproof.train.folder import RunFolder
folder = RunFolder(__import__("pathlib").Path(sys.argv[1]))
folder.begin({"kind": "eagle", "seed": 0}, {})
print("at work", flush=True)
sys.stdin.read()
"""


def test_two_processes_are_never_at_one_run(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "at work\n"
        before = (tmp_path / "run.json").read_bytes()
        with pytest.raises(InputError, match="another run is at work in"):
            RunFolder(tmp_path).begin(IDENTITY, {})
        assert (tmp_path / "run.json").read_bytes() == before
        other.kill()  # a lock ends with its process
        other.wait()
        RunFolder(tmp_path).begin(IDENTITY, {})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"settings": 3}', '{"settings": {}, "parts": "x"}'])
def test_a_note_that_is_none_is_said(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json can't be read .*: delete .* to begin anew"):
        RunFolder(tmp_path).begin(IDENTITY, GIVEN)
    assert (tmp_path / "run.json").read_text() == text


@pytest.mark.parametrize("name", ["texts-00000.json", "held-out.json", "state.pt"])
def test_what_a_run_without_a_note_left_is_not_taken_over(tmp_path, name):
    (tmp_path / name).write_text("theirs")
    with pytest.raises(InputError, match=f"holds {name} of a run without run.json"):
        RunFolder(tmp_path).begin(IDENTITY, GIVEN)
    assert not (tmp_path / "run.json").exists()

"""`certify --endpoint` and `--subject`: what goes together, and a whole run against draftproof's own server."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.main import main

_SPEC = importlib.util.spec_from_file_location("cli_serve_fixtures", Path(__file__).parents[1] / "serve/conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_SERVING = importlib.util.module_from_spec(_SPEC)
sys.modules["cli_serve_fixtures"] = _SERVING
_SPEC.loader.exec_module(_SERVING)
folder, cache_dir, built, serve = _SERVING.folder, _SERVING.cache_dir, _SERVING.built, _SERVING.serve


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--endpoint", "http://h", "--subject", "transformers"], "exclude each other"),
        (["--baseline", "http://h"], "--baseline goes with --endpoint"),
        (["--api-key", "k"], "--api-key goes with --endpoint"),
        (["--python", "p"], "--python goes with --subject"),
        (["--endpoint", "http://h", "--gamma", "3"], "drop --gamma"),
        (["--endpoint", "http://h", "--drafter", "ngram"], "drop --drafter"),
        (["--subject", "transformers", "--subject-options", "[1]"], "must be a JSON object"),
        (["--subject", "transformers", "--subject-options", "{"], "is not JSON"),
    ],
)
def test_what_does_not_go_together_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_server_against_itself(
    serve: Any, folder: Path, cache_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = serve()
    words = [
        "--endpoint",
        running.url,
        "--model",
        str(folder),
        "--weights",
        "int8",
        "--threads",
        "1",
        "--temperature",
        "0",
    ]
    words += ["--cache-dir", str(cache_dir)]
    length = ["--tokens", "400", "--max-tv", "0.2", "--max-new-tokens", "24"]
    path = str(tmp_path / "cert.json")
    code = main(["certify", *words, *length, "--json", "--quiet", "--out", path])
    made = json.loads(capsys.readouterr().out)
    identity = next(test for test in made["tests"] if test["test"] == "identity.greedy")
    assert identity["detail"]["equal"] == identity["detail"]["texts"] > 5
    assert made["subject"]["kind"] == "endpoint"
    assert made["verdict"] in ("lossless", "not_enough_evidence")
    assert code == {"lossless": 0, "not_enough_evidence": 3}[made["verdict"]]
    check = ["certify", "--check", path, "--cache-dir", str(cache_dir), "--quiet"]
    assert main(check) == 2
    assert "give its address again" in capsys.readouterr().err
    assert main([*check, "--endpoint", running.url]) == code
    said = capsys.readouterr().out
    assert "the certificate still holds" in said
    assert "changed" not in said
    assert main(["certify", *words, "--tests", "oracle"]) == 2
    assert "is of our own engine" in capsys.readouterr().err


def test_another_engine_is_checked_again(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "cert.json")
    words = ["--subject", "transformers", "--subject-options", '{"lookup": 3, "threads": 1}', "--model", str(folder)]
    length = ["--temperature", "0", "--tokens", "60", "--max-new-tokens", "16", "--max-tv", "0.3", "--quiet"]
    code = main(["certify", *words, *length, "--out", path])
    made = json.loads(Path(path).read_text())
    assert made["fault"] is None
    assert made["again"]["options"] == {"lookup": 3, "threads": 1}
    assert "model.safetensors" in made["subject"]["files"]
    capsys.readouterr()
    assert main(["certify", "--check", path, "--quiet"]) == code
    assert "the certificate still holds" in capsys.readouterr().out
    assert main(["certify", "--check", path, "--endpoint", "http://h"]) == 2
    assert "not of a server: drop --endpoint" in capsys.readouterr().err

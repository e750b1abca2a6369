"""A model in numbers, from the headers of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from draftproof.measure.describe import count_parameters
from draftproof.measure.provenance import provenance
from draftproof.models.source import ModelSource, resolve


def test_parameters_of_a_folder_are_counted_from_its_headers(model_folder: Path) -> None:
    source = resolve(model_folder)
    assert count_parameters(source) == 259 * 32 + 16 + 8
    assert [count_parameters(source, layers) for layers in (1, 3, 4)] == [259 * 32 + 16] * 2 + [259 * 32 + 24]


def test_parameters_of_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, shape in (("token_embd.weight", (7, 4)), ("blk.0.w", (4, 4)), ("blk.1.w", (2, 4)), ("rope_freqs", (9,))):
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = ModelSource("x", "gguf", path)
    assert count_parameters(source) == 28 + 16 + 8
    assert count_parameters(source, 1) == 28 + 16


def test_a_folder_without_headers_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert count_parameters(ModelSource("x", "folder", tmp_path)) is None


def test_provenance_says_when_where_and_with_what() -> None:
    found: dict[str, Any] = provenance(["draftproof", "measure"])
    assert found["command"] == ["draftproof", "measure"]
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["numpy"] == np.__version__
    assert found["created"].endswith("+00:00")
    assert found["commit"] is None or len(found["commit"]) == 40


@pytest.mark.demo
def test_the_demo_model_has_its_parameters() -> None:
    assert count_parameters(resolve("demo")) == 134_515_008

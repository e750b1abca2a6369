"""Memory of weights and KV: the sizes people quote."""

from __future__ import annotations

import pytest

from draftproof.planner.memory import head_parameters, kv_bytes_per_token, memory_rows, weight_bytes

GIB = 2**30
SEVEN = {"parameters": 7 * 10**9, "num_layers": 32, "num_kv_heads": 32, "head_dim": 128}
SEVENTY = {"parameters": 70 * 10**9, "num_layers": 80, "num_kv_heads": 8, "head_dim": 128}


def test_a_7b_draft() -> None:
    assert weight_bytes(7 * 10**9, "fp16") == 14 * 10**9
    assert weight_bytes(7 * 10**9, "int8") == 7 * 10**9
    assert weight_bytes(7 * 10**9, "int4") == pytest.approx(4e9, rel=0.02)
    assert weight_bytes(7 * 10**9, "int4", group=128) == pytest.approx(3.6e9, rel=0.01)


def test_medusa_heads_are_some_hundred_mib() -> None:
    one = weight_bytes(head_parameters(4096, 32_000), "fp16") / 2**20
    assert 200 < one < 400
    assert head_parameters(4096, 32_000, heads=5) == 5 * head_parameters(4096, 32_000)


def test_kv() -> None:
    assert kv_bytes_per_token(32, 32, 128) == 512 * 1024  # half a MiB a token: a 7B model without grouped heads
    assert kv_bytes_per_token(80, 8, 128, value_bytes=1) == 160 * 1024


def test_70b_and_7b_do_not_fit_80_gib_in_16_bits() -> None:
    rows = memory_rows(SEVENTY, {"draft": SEVEN}, [1], 4096, 80 * GIB)
    fits = {(row.drafter, row.weights): row.fits for row in rows}
    assert fits == {
        (None, "fp16"): False,
        (None, "int8"): True,
        (None, "int4"): True,
        ("draft", "fp16"): False,
        ("draft", "int8"): True,
        ("draft", "int4"): True,
    }
    draft = next(row for row in rows if (row.drafter, row.weights) == ("draft", "fp16"))
    assert draft.total == draft.target_weights + draft.target_kv + draft.drafter_weights + draft.drafter_kv
    assert draft.target_kv == 4096 * kv_bytes_per_token(80, 8, 128)
    assert draft.drafter_kv == 4096 * kv_bytes_per_token(32, 32, 128)


def test_kv_grows_with_load_and_weights_do_not() -> None:
    one, many = (memory_rows(SEVENTY, {}, [load], 2048, None)[0] for load in (1, 64))
    assert many.target_kv == 64 * one.target_kv
    assert many.target_weights == one.target_weights
    assert one.fits is None


def test_a_drafter_without_a_model_adds_nothing_and_an_unknown_model_is_left_out() -> None:
    rows = memory_rows(SEVEN, {"suffix": None, "odd": {**SEVEN, "parameters": None}}, [1], 100, None)
    assert {row.drafter for row in rows} == {None, "suffix"}
    by_name = {(row.drafter, row.weights): row.total for row in rows}
    assert by_name["suffix", "int8"] == by_name[None, "int8"]
    assert memory_rows({"parameters": None}, {"suffix": None}, [1], 100, None) == ()

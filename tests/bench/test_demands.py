"""The wanted bounds: they are the ones that were set, they decide rightly at the edge, and missing is not holding."""

import pytest
from bench.demands import Row
from bench.workloads import BUCKETS

from bench import demands, groups


def _bounds(rows):
    return {
        (row.what, row.bucket): (row.sense, row.bound) for row in rows if row.bound is not None and row.unit != "of"
    }


def test_the_bounds_are_the_ones_that_were_set():
    found = _bounds(demands.table({}))
    wanted = {
        **{("float32 plain / transformers generate", bucket): (">=", 1.3) for bucket in BUCKETS},
        **{("int8 plain, fast / openvino-genai plain", bucket): (">=", 0.8) for bucket in BUCKETS},
        ("int8 suffix / openvino-genai lookup", "edit"): (">=", 1.3),
        ("int8 suffix / openvino-genai lookup", "passage"): (">=", 1.3),
        ("int8 suffix / openvino-genai lookup", "chat"): (">=", 0.8),
        ("8 streams int8 plain / genai batching", "all"): (">=", 1.0),
        ("8 streams int8 suffix / genai batching", "all"): (">=", 1.0),
        ("time to first token, suffix / plain", "all"): ("<=", 1.05),
        ("8 streams, mixed: auto / genai batching", "all"): (">=", 1.2),
        **{
            (f"{streams} streams, mixed: auto / {other}", "all"): (">=", 0.97)
            for streams in (8, 32)
            for other in ("off", "gamma 1", "gamma 2", "gamma 4", "gamma 8")
        },
        **{
            (f"{streams}: auto / off", bucket): (">=", 0.98)
            for streams in ("1 stream", "4 streams", "8 streams", "16 streams")
            for bucket in BUCKETS
        },
    }
    shares = {key: value for key, value in found.items() if value[0] == "<=" and value[1] < 1}
    assert {key: value for key, value in found.items() if key not in shares} == wanted
    assert {bound for (what, _), (_, bound) in shares.items() if "greedy" in what} == {0.10}
    assert {bound for (what, _), (_, bound) in shares.items() if "top-p" in what} == {0.20}


def test_nothing_measured_is_nothing_held():
    rows = demands.table({})
    assert all(row.value is None and row.holds is None for row in rows)


@pytest.mark.parametrize(
    ("sense", "value", "holds"),
    [(">=", 1.3, True), (">=", 1.2999, False), ("<=", 0.1, True), ("<=", 0.1001, False)],
)
def test_a_bound_holds_at_its_edge_and_not_beyond(sense, value, holds):
    bound = 1.3 if sense == ">=" else 0.1
    assert Row("", "all", "x", value, sense, bound).holds is holds


def _greedy(make_run, seconds):
    return [
        make_run(config, index, time, bucket=bucket)
        for index, bucket in enumerate(BUCKETS)
        for config, time in seconds.items()
    ]


def test_rows_read_the_right_configurations(make_run):
    seconds = {
        groups.GENAI_PLAIN.name: 1.0,
        groups.GENAI_LOOKUP.name: 0.9,
        groups.INT8_FAST.name: 1.1,
        groups.INT8_PLAIN.name: 1.2,
        groups.INT8_SUFFIX.name: 0.6,
    }
    rows = {(row.what, row.bucket): row for row in demands.table({"int8": _greedy(make_run, seconds)})}
    assert rows["int8 plain, fast / openvino-genai plain", "chat"].value == pytest.approx(1 / 1.1)
    assert rows["int8 suffix / openvino-genai lookup", "edit"].value == pytest.approx(1.5)
    assert rows["invariant costs: int8 plain fast / invariant", "edit"].value == pytest.approx(1.2 / 1.1)
    assert rows["int8 suffix / openvino-genai lookup", "passage"].holds is True
    assert rows["float32 plain / transformers generate", "edit"].value is None


def test_ours_are_compared_while_all_streams_are_busy_and_a_peer_over_the_whole_list(make_run):
    load, peer = "8 streams, mixed", groups.SERVED_BATCHING.name
    runs = [
        make_run(config, 0, seconds, load=load, bucket="all", **more)
        for config, seconds, more in (
            ("auto", 2.0, {"busy": {"seconds": 0.5, "tokens": 80}}),
            ("off", 2.0, {"busy": {"seconds": 1.0, "tokens": 80}}),
            (peer, 1.0, {}),
        )
    ]
    found = {row.what: row.value for row in demands.serving(runs) if row.value is not None}
    assert found[f"{load}: auto / off"] == pytest.approx(2.0)
    assert found[f"{load}: auto / genai batching"] == pytest.approx(0.5)


def test_a_text_that_differs_from_plain_is_a_row_that_does_not_hold(make_run):
    same = _greedy(make_run, {groups.INT8_PLAIN.name: 1.0, groups.INT8_SUFFIX.name: 1.0})
    (row,) = [row for row in demands.table({"int8": same}) if row.what == "same texts: ours int8 suffix, plain"]
    assert (row.value, row.out_of, row.holds) == (3.0, 3, True)
    broken = [*same[:-1], {**same[-1], "digests": ["another"]}]
    (row,) = [row for row in demands.table({"int8": broken}) if row.what == "same texts: ours int8 suffix, plain"]
    assert (row.value, row.holds) == (2.0, False)


def test_the_strict_share_counts_drafting(make_run):
    meter = {"total_s": 1.0, "forward_s": 0.86, "draft_s": 0.09}
    runs = [make_run(groups.INT8_SUFFIX.name, 0, 1.0, meter=meter)]
    rows = demands.table({"int8": runs})
    first = next(i for i, row in enumerate(rows) if row.what == "engine outside forwards, greedy, suffix")
    assert rows[first].value == pytest.approx(0.05)
    assert rows[first].holds is True
    assert rows[first + 1].value == pytest.approx(0.14)
    assert rows[first + 1].holds is False

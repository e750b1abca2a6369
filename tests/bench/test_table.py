"""What a reader sees."""

from bench.demands import Row
from bench.stats import Ratio

from bench import table


def test_columns_line_up():
    lines = table.grid(["name", "x"], [["a long name", "1.5"], ["b", "10.25"]]).splitlines()
    assert lines == [
        "name             x",
        "-----------  -----",
        "a long name    1.5",
        "b            10.25",
    ]


def test_a_row_says_value_bound_and_verdict():
    ratio = Ratio(1.25, 1.2, 1.31, 1.1, 1.26, 1.4, 12)
    text = table.demand_table(
        [
            Row("ours / theirs", "edit", "x", 1.25, ">=", 1.3, ratio),
            Row("engine share", "all", "%", 0.071, "<=", 0.1),
            Row("same texts", "all", "of", 12.0, ">=", 12.0, out_of=12),
            Row("missing peer", "chat", "x", None, ">=", 0.8),
        ]
    )
    speed, share, texts, missing = (" ".join(line.split()) for line in text.splitlines()[2:])
    assert speed == "ours / theirs edit 1.25x >= 1.30x NO 1.20 .. 1.31 1.10 / 1.26 / 1.40 (12)"
    assert share == "engine share all 7.1 % <= 10.0 % yes"
    assert texts == "same texts all 12 of 12 all yes"
    assert missing == "missing peer chat not measured >= 0.80x"


def test_rates_by_bucket_and_what_speculation_did(make_run):
    meter = {"total_s": 0.5, "steps": 50, "rounds": 40, "tokens": 100, "tested": 80, "accepted": 60}
    runs = [
        make_run("ours", 0, 0.5, meter=meter),
        make_run("ours", 4, 1.0, bucket="chat", meter=meter),
        make_run("peer", 0, 2.0),
    ]
    lines = [line.split() for line in table.rate_table(runs, ["ours", "peer"]).splitlines()[2:]]
    assert lines == [["ours", "200.0", "100.0", "2.50", "75", "%", "10.00"], ["peer", "50.0", "-"]]


def test_latencies_are_medians_in_milliseconds(make_run):
    runs = [make_run("ours", index, 1.0, ttft_s=time) for index, time in enumerate((0.1, 0.3, 0.11))]
    assert table.latency_table(runs, ["ours"]).splitlines()[2].split() == ["ours", "110.0"]

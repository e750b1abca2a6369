"""/metrics says what the answers said, under vLLM's names; health and stats agree."""

from __future__ import annotations

import concurrent.futures
import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PROMPTS = ["abcabcabc", "aaaaaaaa", "1212121212", "hello hello "]


def scrape(running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = running.http().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_counters_are_the_sums_of_the_answers(server):
    http = server.http()
    bodies = [
        {"prompt": prompt, "max_tokens": 30, "temperature": 0, "bucket": f"b{index % 2}"}
        for index, prompt in enumerate(PROMPTS * 3)
    ]
    bodies.append({"prompt": "a", "max_tokens": 5, "speculation": {"enabled": False}})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: http.post("/v1/completions", json=body).json(), bodies))
    found = scrape(server)
    told = [answer["usage"]["speculative_decoding"] for answer in answers]
    model = ("model_name", server.service.model)
    for name, field in (
        ("num_drafts", "num_spec_steps"),
        ("num_draft_tokens", "num_draft_tokens"),
        ("num_accepted_tokens", "num_accepted_draft_tokens"),
    ):
        assert found[f"vllm:spec_decode_{name}_total", (model,)] == sum(each[field] for each in told) > 0
    for position in range(4):
        want = sum(sum(each["acceptance_histogram"][position + 1 :]) for each in told)
        place = (model, ("position", str(position)))
        assert found.get(("vllm:spec_decode_num_accepted_tokens_per_pos_total", place), 0) == want
    for bucket in ("b0", "b1"):
        for name in ("tested", "accepted"):
            want = sum(each[f"num_{name}_draft_tokens"] for each in told if each["bucket"] == bucket)
            place = (("bucket", bucket), ("mode", "on"))
            assert found[f"draftproof_{name}_tokens_total", place] == want
    texts = {"on": answers[:-1], "off": answers[-1:]}
    for mode, each in texts.items():
        tokens = sum(answer["usage"]["completion_tokens"] for answer in each)
        label = (("mode", mode),)
        assert found["draftproof_generated_tokens_total", label] == tokens
        assert found["draftproof_time_to_first_token_seconds_count", label] == len(each)
        assert found["draftproof_inter_token_latency_seconds_count", label] == tokens - len(each)
        assert found["draftproof_inter_token_latency_seconds_sum", label] > 0
    assert found["draftproof_responses_total", (("route", "/v1/completions"), ("status", "200"))] == len(bodies)
    assert found["draftproof_prompt_tokens_total", ()] == sum(a["usage"]["prompt_tokens"] for a in answers)
    assert found["draftproof_request_seconds_count", ()] == len(bodies)
    assert found["draftproof_kv_pages_free", ()] == found["draftproof_kv_pages", ()] > 0
    assert (found["draftproof_ready", ()], found["draftproof_texts_running", ()]) == (1.0, 0.0)


def test_histograms_are_cumulative(server):
    server.http().post("/v1/completions", json={"prompt": "a", "max_tokens": 20, "temperature": 0})
    found = scrape(server)
    buckets = [
        (float(dict(labels)["le"]), value)
        for (name, labels), value in found.items()
        if name == "draftproof_inter_token_latency_seconds_bucket"
    ]
    values = [value for _, value in sorted(buckets)]
    assert values == sorted(values)
    assert values[-1] == found["draftproof_inter_token_latency_seconds_count", (("mode", "on"),)]


def test_refusals_are_counted_by_route_and_status(server):
    http = server.http()
    http.post("/v1/completions", json={"nonsense": 1})
    http.get("/v1/models")
    http.get(f"/{'x' * 50}")
    found = scrape(server)
    responses = {labels: value for (name, labels), value in found.items() if name == "draftproof_responses_total"}
    assert responses[("route", "/v1/completions"), ("status", "400")] == 1
    assert responses[("route", "/v1/models"), ("status", "200")] == 1
    assert responses[("route", "other"), ("status", "404")] == 1  # labels are bounded


def test_the_dashboard_asks_for_metrics_that_are_there(server):
    server.http().post("/v1/completions", json={"prompt": "abcabcabc", "max_tokens": 30, "temperature": 0})
    names = {name for name, _ in scrape(server)}
    path = Path(__file__).parents[2] / "docs" / "grafana" / "draftproof.json"
    panels = json.loads(path.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(expressions) >= 8
    declared = set(re.findall(r"^# TYPE (\S+)", server.http().get("/metrics").text, re.MULTILINE))
    for expression in expressions:
        used = re.findall(r"\b(?:vllm:spec_decode|draftproof)_[a-z_]+", expression)
        assert used, expression
        for name in used:
            assert name in names or name.removesuffix("_total") in declared or name in declared, name


def test_stats_are_the_same_numbers(server):
    http = server.http()
    body = {"prompt": "abcabcabc", "max_tokens": 30, "temperature": 0}
    tokens = http.post("/v1/completions", json=body).json()["usage"]["completion_tokens"]
    stats, found = http.get("/admin/stats").json(), scrape(server)
    assert stats["generated_tokens"]["on"] == found["draftproof_generated_tokens_total", (("mode", "on"),)]
    (bucket,) = stats["buckets"]
    assert bucket["tested"] == found["draftproof_tested_tokens_total", (("bucket", "default"), ("mode", "on"))]
    assert stats["inter_token_seconds"]["on"]["count"] == tokens - 1
    assert stats["trouble"] is None

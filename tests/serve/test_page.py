"""The page at /ui in Chromium: silent, its own server's only, the API's answer in the trace's colours, buttons that
move stages, names that stay text, keys, and servers that go and come back."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from draftproof.serve import run as serving
from draftproof.serve import service as services
from draftproof.serve.history import History
from draftproof.serve.tally import Sums, Tally
from draftproof.serve.ui import FOLDER

NASTY = "</option><img src=x onerror=alert(1)>{{7*7}}${8}&amp;"
PROMPT = "abcabcabcabcabc"
BUCKET = "of the page"  # the drafters are shared with other tests, and learn by bucket
POLICY = "shadow_share: 1.0\nmin_requests: 20\nmin_seconds: 0\ncanary_share: 0.5\nwide_shares: [0.6]\n"


# -- without a browser -------------------------------------------------------------------------------------------------


def test_every_file_of_the_page_is_in_the_package():
    project = Path(__file__).parents[2] / "pyproject.toml"
    globs = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["draftproof"]
    root = FOLDER.parents[1]
    packed = {path for pattern in globs for path in root.glob(pattern)}
    files = {path for path in FOLDER.rglob("*") if path.is_file()}
    assert {"index.html", "app.js", "style.css"} <= {path.name for path in files}
    assert files <= packed


def test_the_page_comes_with_a_policy_that_lets_nothing_else_run(serve):
    http = serve(api_keys=("secret-key",)).http()
    answer = http.get("/ui")
    assert (answer.status_code, answer.headers["location"]) == (307, "ui/")  # relative: also behind a prefix
    page = http.get("/ui", follow_redirects=True)
    assert str(page.url).endswith("/ui/")
    kinds = {"": "text/html", "index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css"}
    for name, kind in kinds.items():
        found = http.get(f"/ui/{name}")
        assert found.status_code == 200
        assert found.headers["content-type"] == f"{kind}; charset=utf-8"
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        again = http.get(f"/ui/{name}", headers={"If-None-Match": found.headers["etag"]})
        assert again.status_code == 304
    for path in ("nothing", "../app.py", "..%2fapp.py", "%2e%2e/app.py"):
        assert http.get(f"/ui/{path}").status_code in (401, 404)
    assert http.post("/ui/").status_code == 405
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?! type=\"module\" src=)|<style| style=| on[a-z]+=|https?://", page)
    for script in FOLDER.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", script.read_text()
        )


def test_points_are_differences():
    gauges = {"kv_pages": 10, "kv_pages_free": 4, "texts_running": 2, "texts_waiting": 1}
    place, quiet = ("code", "on"), ("chat", "off")
    first = Sums(1, 0, {"on": 10}, {quiet: (3, 0.5)}, {})
    history = History(first, 100.0)
    second = Sums(3, 1, {"on": 15, "off": 2}, {quiet: (3, 0.5), place: (4, 0.25)}, {place: (8, 5)})
    history.note(second, gauges, 102.0)
    history.note(second, gauges, 101.0)  # the clock was set back
    history.note(second, gauges, 103.0)
    one, two = history.since(0)
    assert (one["time"], one["seconds"], one["answered"], one["refused"]) == (102, 2, 2, 1)
    assert (one["running"], one["waiting"], one["memory"]) == (2, 1, 0.6)
    assert one["tokens"] == {"on": 5, "off": 2}
    assert one["gaps"] == [{"bucket": "code", "mode": "on", "count": 4, "seconds": 0.25}]
    assert one["drafts"] == [{"bucket": "code", "mode": "on", "tested": 8, "accepted": 5}]
    assert (two["time"], two["seconds"], two["answered"], two["tokens"], two["gaps"]) == (103, 2, 0, {}, [])
    assert history.since(102) == [two]
    for step in range(1000):
        history.note(second, gauges, 104.0 + step)
    assert len(history.since(0)) == 450
    assert history.since(0)[-1]["time"] == 1103


def test_gaps_of_all_buckets_are_those_of_all_modes():
    tally = Tally()
    for bucket, mode, count, seconds, first in (
        ("a", "on", 1, 0.5, True),
        ("a", "on", 3, 0.3, False),
        ("b", "on", 2, 0.1, False),
        ("b", "off", 1, 0.2, False),
    ):
        tally.tokens(mode, bucket, count, seconds, first=first)
    assert tally.sums().gaps == {("a", "on"): (3, 0.3), ("b", "on"): (2, 0.1), ("b", "off"): (1, 0.2)}
    for mode, sums in tally.as_dict()["inter_token_seconds"].items():
        own = [value for (_, other), value in tally.sums().gaps.items() if other == mode]
        assert (sum(count for count, _ in own), sum(total for _, total in own)) == (
            sums["count"],
            pytest.approx(sums["sum"]),
        )


def test_history_is_read_from_a_time_on(serve, monkeypatch):
    monkeypatch.setattr(services, "EVERY", 0.05)
    http = serve(("suffix",)).http()
    ask(http, bucket="code", max_tokens=30)
    points: list[dict[str, Any]] = []
    while sum(point["answered"] for point in points) < 1:
        points += http.get("/admin/history", params={"after": points[-1]["time"] if points else 0}).json()["points"]
    times = [point["time"] for point in points]
    assert times == sorted(set(times))
    gaps = [gap for point in points for gap in point["gaps"]]
    assert sum(gap["count"] for gap in gaps) == 29
    assert {(gap["bucket"], gap["mode"]) for gap in gaps} == {("code", "on")}
    assert http.get("/admin/history", params={"after": "nan"}).status_code == 400


# -- with one ----------------------------------------------------------------------------------------------------------


def ask(http: httpx.Client, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "bucket": BUCKET, **more}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@dataclass
class Opened:
    """The page, and everything it said, asked for or threw."""

    page: Any
    url: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def is_quiet(self) -> None:
        """Nothing on the console, no error, no dialog of the browser, no request of another server."""
        assert self.said == []
        self.is_at_home()

    def is_at_home(self) -> None:
        assert self.asked
        assert [url for url in self.asked if not url.startswith(f"{self.url}/")] == []

    def look(self) -> None:
        """Asks the server at once, as a page does that is seen again."""
        self.page.evaluate("dispatchEvent(new Event('online'))")

    def text(self, query: str) -> str:
        return str(self.page.locator(query).text_content())

    def wait(self, query: str, text: str | re.Pattern[str]) -> Any:
        """The visible element with this text, once it is there."""
        found = self.page.locator(query).filter(has_text=text).first
        found.wait_for()
        return found

    def only_in_log(self, name: str) -> None:
        """Waits until the log shows decisions of this bucket and of no other."""
        self.page.wait_for_function(
            "(name) => { const all = [...document.querySelectorAll('#log .name')];"
            " return all.length > 0 && all.every((one) => one.textContent === name); }",
            arg=name,
        )

    def send(self, prompt: str, **fields: Any) -> None:
        """Asks in the prompt box and waits for the end."""
        self.page.get_by_text("Completion", exact=True).click()
        self.page.locator(".more").evaluate("(more) => { more.open = true; }")
        self.page.fill("#text", prompt)
        for name, value in {"bucket": BUCKET, **fields}.items():
            self.page.fill(f"#{name.replace('_', '-')}", str(value))
        self.page.press("#text", "Control+Enter")
        self.page.wait_for_selector("#output:not([aria-busy])")


@pytest.fixture(scope="module")
def browser(chromium: Callable[..., Any]) -> Any:
    return chromium()


@pytest.fixture
def opened(browser: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Opened]]:
    """opened(server, width=..., scheme=..., live=...) -> Opened; servers begun after this fixture note often."""
    pages = []
    monkeypatch.setattr(services, "EVERY", 0.1)

    def open_(url: str, *, width: int = 1280, scheme: str = "light", live: bool = True) -> Opened:
        page = browser.new_page()
        page.set_default_timeout(15_000)
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        one = Opened(page, url)
        page.on("console", lambda message: one.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: one.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (one.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: one.asked.append(request.url))
        page.goto(f"{url}/ui")
        if live:
            page.wait_for_selector("#connection[data-state=live]")
        return one

    yield open_
    for page in pages:
        page.close()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def rollout(http: httpx.Client) -> dict[str, Any]:
    return http.get("/admin/rollout").json()["status"]


def test_an_answer_is_the_apis_in_the_colours_of_its_trace(opened, serve):
    running = serve(("suffix", "ngram"))
    one = opened(running.url)
    page = one.page
    page.select_option("#drafter", "ngram")
    with page.expect_response("**/v1/completions") as answered:
        one.send(PROMPT, max_tokens=60)
    chunks = [json.loads(line[6:]) for line in answered.value.text().split("\n\n") if line.startswith("data: {")]
    traced = [token for chunk in chunks for token in chunk["choices"][0]["tokens"]]
    want = ask(running.http(), max_tokens=60, ignore_eos=False, speculation={"drafter": "none"})["choices"][0]["text"]
    assert page.locator("#output").text_content() == want
    tokens = page.locator("#output .token").evaluate_all(
        "each => each.map((e) => [Number(e.dataset.id), e.classList[1], e.textContent])"
    )
    assert tokens == [[token["id"], token["kind"], token["text"]] for token in traced]
    kinds = [token[1] for token in tokens]
    assert {"accepted", "plain"} <= set(kinds) <= {"accepted", "correction", "bonus", "plain"}
    legend = {
        kind: int(page.locator(f"#kinds [data-kind={kind}] b").text_content())
        for kind in ("accepted", "correction", "bonus", "plain")
    }
    assert legend == {kind: kinds.count(kind) for kind in legend}
    counts = dict(
        page.locator("#counts > div").evaluate_all("all => all.map((e) => [...e.children].map((c) => c.textContent))")
    )
    rounds = page.locator("#output .round").count()
    assert (counts["Tokens"], counts["Rounds"]) == (str(len(tokens)), str(rounds))
    assert counts["Tokens per round"] == f"{len(tokens) / rounds:.2f}"
    told = chunks[-1]["metrics"]["speculative_decoding"]
    assert (legend["accepted"], counts["Tokens per round"]) == (
        told["num_accepted_draft_tokens"],
        f"{told['tokens_per_round']:.2f}",
    )
    assert counts["Acceptance"] == f"{told['acceptance']:.2f}"
    assert f"speculating with ngram in bucket {BUCKET}" in one.text("#applied")
    looks = page.locator("#output").evaluate(
        "(box) => Object.fromEntries([...box.querySelectorAll('.token')].map((e) => [e.classList[1],"
        " getComputedStyle(e).backgroundColor]))"
    )
    assert len(set(looks.values())) == len(looks)
    page.locator("#tokens summary").click()
    page.locator("#tokens tbody tr").nth(len(tokens) - 1).wait_for()
    assert page.locator("#tokens tbody tr").count() == len(tokens)
    one.is_quiet()


def test_what_the_trace_said_is_what_is_coloured(opened, serve):
    """A stream as the API would send it, so that every kind and every break is there for certain."""
    one = opened(serve(("suffix",)).url)
    steps = [
        [("plain", "He")],
        [("accepted", "l"), ("accepted", ""), ("correction", "lo <b>")],
        [("accepted", "\n"), ("bonus", "é")],
    ]
    chunks = [
        {
            "choices": [
                {
                    "index": 0,
                    "text": "".join(text for _, text in step),
                    "finish_reason": None,
                    "tokens": [{"id": at, "kind": kind, "text": text} for at, (kind, text) in enumerate(step)],
                }
            ]
        }
        for step in steps
    ]
    events = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)
    bodies = [events + "data: [DONE]\n\n", events, events + 'data: {"error": {"message": "it <i>broke</i>"}}\n\n']
    one.page.route(
        "**/v1/completions", lambda route: route.fulfill(body=bodies.pop(0), content_type="text/event-stream")
    )
    one.send("x")
    assert one.text("#output") == "Hello <b>\né"
    assert one.page.locator("#output .token").evaluate_all("all => all.map((e) => e.classList[1])") == [
        kind for step in steps for kind, _ in step
    ]
    assert one.page.locator("#output .round").count() == 3
    assert one.text("#counts > div:nth-child(3) dd") == "2.00"
    assert one.text("#counts > div:nth-child(4) dd") == "0.75"
    assert one.text("#ask-error") == ""
    one.send("x")
    assert "not whole" in one.text("#ask-error")
    assert one.text("#output") == "Hello <b>\né"
    one.send("x")
    assert one.text("#ask-error") == "it <i>broke</i>"
    chunks[-1]["choices"][0]["text"] = "\n"  # the end's own text is no part of the answer
    bodies.append("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n")
    one.send("x")
    assert one.text("#output") == "Hello <b>\n"
    assert one.text("#counts > div:nth-child(1) dd") == "6"
    one.is_quiet()


def test_an_answer_can_be_stopped(opened, serve):
    one = opened(serve(("suffix",)).url)
    one.page.route("**/v1/completions", lambda route: None)  # it never answers
    one.page.get_by_text("Completion", exact=True).click()
    one.page.fill("#text", PROMPT)
    one.page.get_by_role("button", name="Send").click()
    one.page.get_by_role("button", name="Stop", exact=True).click()
    one.wait("#applied", "Stopped")
    one.page.get_by_role("button", name="Send").wait_for()
    one.is_quiet()


def test_refusals_are_shown_and_the_box_goes_on(opened, serve):
    one = opened(serve(("suffix",)).url)
    one.send("")
    assert "no text" in one.text("#ask-error")
    one.send(PROMPT, max_tokens=4, bucket="*")
    assert "a bucket's name" in one.text("#ask-error")
    one.page.select_option("#enabled", "on")
    one.page.select_option("#drafter", "none")
    one.send(PROMPT, max_tokens=4)
    assert "can't be enabled" in one.text("#ask-error")
    one.page.select_option("#enabled", "off")
    one.send(PROMPT, max_tokens=4)
    assert one.text("#ask-error") == ""
    assert one.page.locator("#output .token.plain").count() == 4
    assert "plain decoding" in one.text("#applied")
    assert {text.split(":")[0] for text in one.said} == {"error"}  # the browser's own word on each 400
    one.is_at_home()


def test_stages_are_moved_by_hand(opened, serve, policy):
    running = serve(("suffix",), policy=policy)
    http = running.http()
    ask(http, bucket="live")
    one = opened(running.url)
    page = one.page
    row = page.locator("#buckets > tbody").filter(has_text="live")
    seen = []
    for stage in ("canary", "wide", "full"):
        row.get_by_role("button", name="Promote live").click()
        assert "Gate not passed: acceptance" in one.text("#confirm-list") or stage == "full"
        page.fill("#confirm-reason", f"on to <b>{stage}</b>")
        page.get_by_role("button", name=re.compile("Promote it")).click()
        page.wait_for_selector("#confirm", state="hidden")
        one.look()
        row.locator(".badge", has_text=stage).wait_for()
        seen.append(rollout(http)["buckets"]["live"]["stage"])
    assert seen == ["canary", "wide", "full"]
    assert row.get_by_role("button", name="Promote live").count() == 0
    first = one.wait("#log > li", "on to <b>full</b>")
    assert "wide → full" in first.text_content()
    row.get_by_role("button", name="Stop live").click()
    page.keyboard.press("Escape")
    assert rollout(http)["buckets"]["live"]["stage"] == "full"
    row.get_by_role("button", name="Stop live").click()
    page.keyboard.press("Enter")  # the field for the reason has the focus
    row.locator(".badge", has_text="off").wait_for()
    assert rollout(http)["buckets"]["live"]["stopped"] is True
    row.get_by_role("button", name="Start live").click()
    http.post("/admin/rollout/start", json={"bucket": "live"})  # somebody was quicker
    page.get_by_role("button", name="Start it").click()
    one.wait("#confirm-error", "is in stage shadow already")
    page.get_by_role("button", name="Cancel").click()
    assert rollout(http)["buckets"]["live"]["stage"] == "shadow"
    assert [text for text in one.said if "400" not in text] == []
    one.is_at_home()


def test_the_kill_switch_stops_all_after_a_question(opened, serve, policy):
    running = serve(("suffix",), policy=policy)
    http = running.http()
    ask(http, bucket="live")
    http.post("/admin/rollout/promote", json={"bucket": "live"})
    one = opened(running.url)
    kill = one.page.get_by_role("button", name="Stop all speculation")
    kill.click()
    one.page.get_by_role("button", name="Cancel").click()
    assert rollout(http)["stopped"] is False
    kill.click()
    one.page.fill("#confirm-reason", "odd answers")
    one.page.get_by_role("button", name="Stop all", exact=True).click()
    one.page.get_by_text("All speculation is stopped").wait_for()
    assert rollout(http)["stopped"] is True
    assert kill.is_hidden()
    assert one.page.get_by_role("button", name="Promote live").count() == 0
    assert http.get("/admin/rollout/log").json()["decisions"][0]["reason"] == "odd answers"
    line = one.wait("#log > li", "odd answers")
    line.locator("summary").click()
    assert "canary" in line.locator(".evidence").text_content()  # the stage it had
    one.page.get_by_role("button", name="Start again").click()
    one.page.locator("#confirm").get_by_role("button", name="Start again").click()
    kill.wait_for()
    assert rollout(http)["stopped"] is False
    one.is_quiet()


def test_a_late_answer_to_an_older_choice_of_the_log_is_not_shown(opened, serve, policy):
    running = serve(("suffix",), policy=policy)
    for name in ("older", "newer"):
        ask(running.http(), bucket=name)
    one = opened(running.url)
    one.wait("#log .name", "older")
    held: list[Any] = []
    one.page.route("**/admin/rollout/log?*bucket=older", lambda route: held.append(route))
    with one.page.expect_request("**/admin/rollout/log?*bucket=older"):
        one.page.select_option("#log-bucket", "older")
    one.page.select_option("#log-bucket", "newer")
    one.only_in_log("newer")
    with one.page.expect_response("**/admin/rollout/log?*bucket=older") as late:
        held[0].continue_()
    late.value.finished()
    one.page.evaluate("() => new Promise((done) => setTimeout(done, 100))")  # it would have been drawn by now
    assert set(one.page.locator("#log .name").all_text_contents()) == {"newer"}
    one.is_quiet()


def test_names_and_texts_stay_text(opened, serve, policy):
    names = [NASTY, "__proto__", "constructor", "a b/c?d=e&f#g"]
    running = serve(("suffix",), policy=policy)
    http = running.http()
    for name in names:
        ask(http, bucket=name)
    http.post("/admin/rollout/promote", json={"bucket": NASTY, "reason": NASTY})
    one = opened(running.url)
    rows = one.page.locator("#buckets > tbody")
    rows.nth(len(names) - 1).wait_for()
    assert rows.locator(".fold .name").all_text_contents() == names
    for name in names:
        row = rows.filter(has=one.page.get_by_text(name, exact=True))
        row.locator(".fold").click()
        one.page.select_option("#log-bucket", name)
        one.only_in_log(name)
        one.wait("#log > li", "new, and the policy")
        one.page.locator(f"#latency-bucket option:text-is({json.dumps(name)})").wait_for(state="attached")
    assert sorted(one.page.locator("#acceptance .name").all_text_contents()) == sorted(names)
    one.page.select_option("#log-bucket", "")
    one.page.locator("#log summary").first.click()
    assert one.wait("#log .reason", NASTY).text_content() == NASTY
    one.send(NASTY, max_tokens=4, bucket=NASTY)
    assert NASTY in one.text("#applied")
    rows.filter(has_text="</option>").get_by_role("button", name="Stop").click()
    assert NASTY in one.text("#confirm-title")
    assert one.page.locator("img, b:text-is('x')").count() == 0
    one.is_quiet()
    made = one.page.evaluate(
        "() => { try { document.body.innerHTML = '<i>'; return 'made'; } catch (e) { return e.name; } }"
    )
    assert made == "TypeError"  # the second wall: markup is not made from text at all


def test_a_server_is_said_to_be_away_and_found_again(opened, serve, policy, monkeypatch):
    """The page stays as it is, says since when, and goes on with the server that comes back at the address."""
    running = serve(("suffix",), policy=policy)
    ask(running.http(), bucket="before")
    one = opened(running.url)
    one.wait("#buckets .name", "before")
    one.page.fill("#text", "half a prompt")
    port = int(running.url.rpartition(":")[2])
    running.stop()
    one.look()
    one.wait("#lost", "does not answer")
    assert one.page.get_attribute("#connection", "data-state") == "lost"
    assert one.page.locator("#buckets .name").first.text_content() == "before"
    one.page.get_by_role("button", name="Stop before").click()
    one.page.get_by_role("button", name="Stop it").click()
    one.wait("#confirm-error", "does not answer")
    one.page.get_by_role("button", name="Cancel").click()
    monkeypatch.setitem(serve.__globals__, "bind", lambda host, _: serving.bind(host, port))
    again = serve(("suffix",), policy=policy)
    assert again.url == running.url
    ask(again.http(), bucket="after")
    one.page.wait_for_selector("#connection[data-state=live]")
    one.wait("#toast", "restarted")
    one.wait("#buckets .name", "after")
    assert one.page.locator("#lost").is_hidden()
    assert one.page.input_value("#text") == "half a prompt"
    assert [text for text in one.said if "ERR_" not in text] == []
    one.is_at_home()


def test_keys_are_asked_for_and_kept_for_the_tab(opened, serve):
    running = serve(("suffix",), api_keys=("user-key-1",), admin_keys=("admin-key-1",))
    one = opened(running.url, live=False)
    page = one.page
    one.wait("#key", "admin key")
    page.fill("#key-field", "wrong-key-1")
    page.keyboard.press("Enter")
    one.wait("#key-error", "refuses")
    page.fill("#key-field", "kéy")
    page.keyboard.press("Enter")
    one.wait("#key-error", "ASCII")
    page.fill("#key-field", "admin-key-1")
    page.get_by_role("button", name="Use it").click()
    page.wait_for_selector("#connection[data-state=live]")
    one.send(PROMPT, max_tokens=4)
    one.wait("#key", "API key")
    page.fill("#key-field", "user-key-1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key", state="hidden")
    one.send(PROMPT, max_tokens=4)
    assert page.locator("#output .token").count() == 4
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert page.evaluate("Object.values(sessionStorage).sort()") == ["admin-key-1", "user-key-1"]
    assert not [url for url in one.asked if "key-1" in url]
    page.reload()
    page.wait_for_selector("#connection[data-state=live]")
    assert [text for text in one.said if "401" not in text] == []
    one.is_at_home()


def test_without_a_policy_it_says_that_nothing_is_compared(opened, serve):
    running = serve(("suffix",))
    http = running.http()
    ask(http, bucket="code")
    one = opened(running.url)
    one.wait("#latency-verdict", "no control group")
    one.wait("#buckets-none", "no policy, so no rollout")
    one.wait("#acceptance li", "code")
    assert one.page.locator("#kill").is_hidden()
    ask(http, bucket="code", speculation={"enabled": False})
    found = one.wait("#latency-verdict", "times as long").text_content()
    sums = http.get("/admin/stats").json()["inter_token_seconds"]
    on, off = (sums[mode]["sum"] / sums[mode]["count"] for mode in ("on", "off"))
    assert float(re.search(r"took ([0-9.,]+) times", found)[1].replace(",", "")) == pytest.approx(on / off, rel=0.01)
    assert one.page.locator("#latency-chart .dot-on, #latency-chart .line-on").count() > 0
    one.page.locator("#latency-chart svg").focus()
    one.page.keyboard.press("End")
    one.wait("#latency-chart .tip", " ms")
    one.page.locator("#latency-table summary").click()
    one.page.locator("#latency-table tbody tr").first.wait_for()
    one.page.select_option("#latency-bucket", "code")
    one.wait("#latency-note", "chose so")
    one.is_quiet()


def test_a_plain_server_has_a_page_too(opened, serve):
    running = serve(())
    one = opened(running.url)
    one.wait("#buckets-none", "no drafter")
    one.send(PROMPT, max_tokens=5)
    assert one.page.locator("#output .token.plain").count() == 5
    one.wait("#latency-verdict", "no drafter")
    one.is_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_and_can_be_read(opened, serve, policy, scheme, width):
    running = serve(("suffix",), policy=policy)
    http = running.http()
    long = "never-ends-" * 5
    for bucket in (long, "b"):
        ask(http, bucket=bucket)
        http.post("/admin/rollout/promote", json={"bucket": bucket, "reason": long * 9})
    one = opened(running.url, width=width, scheme=scheme)
    page = one.page
    one.wait("#buckets .name", long)
    page.locator(".fold").first.click()
    page.locator("#log summary").first.click()
    one.send(PROMPT, max_tokens=40)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for what, ratio in page.evaluate(_CONTRASTS).items():
        assert ratio >= 4.5, (what, ratio)  # WCAG AA for text
    nameless = page.evaluate(_NAMELESS)
    assert nameless == []
    fold = page.locator(".fold").first
    fold.focus()
    before = page.locator("#log > li").count()
    http.post("/admin/rollout/stop", json={"bucket": "b"})
    one.look()
    page.locator("#log > li").nth(before).wait_for()
    assert fold.evaluate("e => e === document.activeElement")  # an update takes no focus, and folds nothing up
    assert fold.get_attribute("aria-expanded") == "true"
    one.is_quiet()


_NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea")]
  .filter((e) => e.checkVisibility() && !(e.textContent.trim() && e.tagName === "BUTTON"))
  .filter((e) => !e.labels?.length && !e.ariaLabel).map((e) => e.outerHTML)"""
_CONTRASTS = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  for (const node of document.querySelectorAll("main *, header *")) {
    if (!node.checkVisibility() || ![...node.childNodes].some((e) => e.nodeType === 3 && e.data.trim())) continue;
    const style = getComputedStyle(node);
    const color = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
    found[`${node.tagName}.${node.className.baseVal ?? node.className} ${node.textContent.slice(0, 20)}`] =
      contrast(color, behind(node));
  }
  return found;
}"""

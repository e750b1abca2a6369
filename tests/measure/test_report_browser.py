"""The report and the calculator in Chromium: offline, silent, the planner's numbers, harmless names, both schemes."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

_PLANS = str(Path(__file__).resolve().parents[1] / "export")
if _PLANS not in sys.path:
    sys.path.insert(0, _PLANS)

from plans import MODEL, NGRAM, SUFFIX, Drafter, make_plan, renamed  # noqa: E402

from draftproof.measure.report import Settings, write_calculator, write_report  # noqa: E402
from draftproof.planner import price  # noqa: E402

SLIDERS = {
    "alpha": "acceptance alpha",
    "gamma": "draft length gamma",
    "t_target": "target step T_t (ms)",
    "t_draft": "draft token T_d (ms)",
    "slope": "verify slope (per draft)",
}


@dataclass
class Opened:
    """A page, and everything it said, asked for or threw."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def is_quiet(self) -> bool:
        """Nothing on the console, no error, no dialog, no request but its own file."""
        assert self.said == []
        assert self.asked
        assert [url for url in self.asked if not url.startswith(("file://", "data:,"))] == []
        return True

    def set(self, name: str, value: float) -> None:
        """Moves a slider, as a hand would."""
        self.page.get_by_label(SLIDERS[name], exact=True).evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            value,
        )
        self.settle()

    def settle(self) -> None:
        """Waits until the answers are those of where the sliders stand (Vega computes a moment later)."""
        self.page.wait_for_function(
            """() => {
              const shown = JSON.parse(document.getElementById("controls").dataset.shown);
              const sliders = [...document.querySelectorAll("#controls input")];
              return sliders.every((slider, index) => Math.abs(slider.value - shown[index]) <= slider.step / 2);
            }"""
        )

    def stands(self) -> dict[str, float]:
        """Where the sliders are: what the browser made of what was asked."""
        return {name: float(self.page.get_by_label(text, exact=True).input_value()) for name, text in SLIDERS.items()}

    def answer(self, name: str) -> dict[str, float]:
        return {
            key: float(value)
            for key, value in self.page.locator(f"#answer-{name}").evaluate("e => ({...e.dataset})").items()
        }

    def texts(self, chart: str) -> list[str]:
        """The texts in a chart's drawing."""
        return [" ".join(text.split()) for text in self.page.locator(f"#{chart} svg text").all_text_contents()]


@pytest.fixture(scope="module")
def browser(chromium: Callable[..., Any]) -> Any:
    return chromium(offline=True)


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    pages = []

    def open_(path: Path, *, width: int = 1280, scheme: str = "light", ready: bool = True) -> Opened:
        page = browser.new_page()
        page.set_default_timeout(15_000)
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        one = Opened(page)
        page.on("console", lambda message: one.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: one.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (one.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: one.asked.append(request.url))
        page.goto(path.as_uri())
        if ready:
            page.locator("html[data-ready=yes]").wait_for(state="attached", timeout=60_000)
        return one

    yield open_
    for page in pages:
        page.close()


def expected(stands: dict[str, float]) -> tuple[int, float, float]:
    """The planner's best gamma, its speed-up, and the speed-up at the slider's gamma."""
    costs = price.round_costs(stands["t_target"], stands["t_draft"], stands["slope"], 16)
    gains = price.speedups(stands["alpha"], costs)
    best = price.best_gamma(stands["alpha"], costs)
    return best, gains[best], gains[int(stands["gamma"])]


def check(one: Opened) -> tuple[int, float]:
    """The page's peak and own point, as text, in the drawing and as numbers, are the planner's."""
    stands = one.stands()
    best, peak, mine = expected(stands)
    assert one.answer("peak") == pytest.approx({"gamma": best, "speedup": peak}, rel=1e-12), stands
    own = one.answer("mine")
    assert own["gamma"] == stands["gamma"]
    assert own["speedup"] == pytest.approx(mine, rel=1e-12)
    assert own["itl"] == pytest.approx(stands["t_target"] / mine, rel=1e-12)
    least = price.break_even_alpha(price.round_costs(stands["t_target"], stands["t_draft"], stands["slope"], 16))
    even = one.answer("even")["alpha"]
    assert even == pytest.approx(least, abs=1e-9) if least is not None else even >= 1
    said = one.page.locator("#answer-peak").text_content()
    assert said == (
        f"Peak: gamma {best}, {peak:.2f}x" if best else "Do not enable: nothing is faster than plain decoding"
    )
    drawn = one.texts("sliders")
    assert f"peak: gamma {best}, {peak:.2f}x" in drawn
    assert f"gamma {int(stands['gamma'])}, {mine:.2f}x" in drawn
    return best, peak


def test_the_pages_peak_is_the_planners(opened: Callable[..., Opened], tmp_path: Path) -> None:
    path = tmp_path / "calculator.html"
    write_calculator(path, Settings(100, 8, 4, 0.6))
    one = opened(path)
    assert one.stands() == {"alpha": 0.6, "gamma": 4, "t_target": 100, "t_draft": 8, "slope": 0}
    peaks = [check(one)]
    draw = random.Random(7)
    spans = {"alpha": (0, 1), "gamma": (0, 16), "t_target": (1, 200), "t_draft": (0, 50), "slope": (0, 0.5)}
    for _ in range(12):
        for name, (low, high) in spans.items():
            one.set(name, draw.uniform(low, high))
        peaks.append(check(one))
    for alpha in (0, 1):
        one.set("alpha", alpha)
        peaks.append(check(one))
    assert len({gamma for gamma, _ in peaks}) > 4  # different answers, and "do not enable" among them
    assert min(peaks)[0] == 0
    one.is_quiet()


def test_the_missions_figures(opened: Callable[..., Opened], tmp_path: Path) -> None:
    path = tmp_path / "calculator.html"
    write_calculator(path, Settings(100, 8, 1, 0.2))
    one = opened(path)
    assert one.page.locator("#answer-mine").text_content() == "At gamma 1: 1.11x, 90.0 ms per token"
    one.set("gamma", 16)
    assert "0.55x" in one.page.locator("#answer-mine").text_content()
    assert one.page.locator("#answer-even").text_content() == "Some gamma wins if alpha is above 0.080"
    one.set("alpha", 0.08)  # not above: no gamma wins
    assert one.answer("peak")["gamma"] == 0
    one.set("alpha", 0.09)
    assert one.answer("peak")["gamma"] == 1


def test_sliders_move_by_keyboard_and_have_names(opened: Callable[..., Opened], tmp_path: Path) -> None:
    path = tmp_path / "calculator.html"
    write_calculator(path, Settings(100, 8, 4, 0.6))
    one = opened(path)
    for text in SLIDERS.values():
        assert one.page.get_by_role("slider", name=text).count() == 1
    one.page.get_by_role("slider", name="draft length gamma").press("ArrowRight")
    one.settle()
    assert one.stands()["gamma"] == 5
    check(one)
    assert one.page.locator("#sliders[role=graphics-document][aria-label]").count() == 1


def test_a_report_opens_offline_in_silence(opened: Callable[..., Opened], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(make_plan(SUFFIX, NGRAM, MODEL), path)
    one = opened(path)
    for name in ("sliders", "acceptance", "tokens", "speedup-1", "speedup-8", "speedup-64", "verify", "draft"):
        assert one.page.locator(f"#{name} svg path").count() > 2, name
    assert one.page.get_by_text("do not enable", exact=True).first.is_visible()
    assert one.page.locator("#sliders path[aria-label*='bucket: ']").count() == 9  # three buckets under three loads
    assert one.page.locator("#sliders path[aria-label*='bucket: edit, 8 at once, suffix']").count() == 1
    one.is_quiet()


def test_a_preset_sets_the_sliders(opened: Callable[..., Opened], tmp_path: Path) -> None:
    plan = make_plan(SUFFIX, MODEL)
    path = tmp_path / "report.html"
    write_report(plan, path)
    one = opened(path)
    band = plan.bucket("edit").band(8)
    one.page.select_option("#preset", label=f"edit, 8 at once, {band.drafter}")
    one.settle()
    curve = band.curve(str(band.drafter))
    own = one.answer("mine")
    assert own["gamma"] == band.point.gamma
    assert own["speedup"] == pytest.approx(band.point.speedup.mean, rel=2e-3)  # settings are kept to four digits
    assert one.stands()["alpha"] == pytest.approx(curve.alpha, abs=0.01)
    one.set("alpha", 0.3)
    assert one.page.locator("#preset").input_value() == ""  # they are the reader's own now
    check(one)
    one.is_quiet()


def test_the_buckets_choice_reaches_every_chart(opened: Callable[..., Opened], tmp_path: Path) -> None:
    plan = make_plan(SUFFIX, MODEL)
    path = tmp_path / "report.html"
    write_report(plan, path)
    one = opened(path)
    for bucket in ("all", "edit", "chat"):
        one.page.select_option("select[data-signal=bucket]", label=bucket)
        for load in plan.concurrency:
            band = plan.bucket(bucket).band(load)
            mark = f"gamma {band.point.gamma}, {band.point.speedup.mean:.2f}x" if band.point.gamma else "plain decoding"
            label = mark if band.enable or not band.point.gamma else f"not sure: {mark}"
            one.page.locator(f"#speedup-{load} svg text", has_text=re.compile(f"^{re.escape(label)}$")).wait_for()
    before = one.texts("draft")
    one.page.select_option("select[data-signal=load]", label="1")
    assert one.texts("draft") == before  # drafting costs the same at each load in this plan: the same axis
    one.is_quiet()


def test_hostile_names_do_nothing(opened: Callable[..., Opened], tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    other = "'\"&lt;b&gt;{{7*7}}${alert(3)}datum[0]\\"
    plan = renamed(make_plan(SUFFIX, MODEL), {"edit": nasty, "chat": other, "suffix": nasty, "org/target-model": nasty})
    path = tmp_path / "report.html"
    write_report(replace(plan, notes=(nasty,)), path, {"machine": {"cpu": nasty}, "command": [nasty]})
    one = opened(path)
    assert nasty in one.page.title()
    for name in (nasty, other):
        assert one.page.locator("tbody th").get_by_text(name, exact=True).first.is_visible()
        one.page.select_option("select[data-signal=bucket]", label=name)
        load = plan.concurrency[0]
        point = plan.bucket(name).band(load).point
        one.page.locator(
            f"#speedup-{load} svg text", has_text=f"gamma {point.gamma}, {point.speedup.mean:.2f}x"
        ).wait_for()
    assert [text for text in one.texts("speedup-1") if text.startswith("</script><script>")]  # the legend, cut short
    one.page.select_option("#preset", index=5)
    one.page.locator("#speedup-1 svg").hover(position={"x": 150, "y": 120})
    assert one.page.locator("img").count() == 0
    one.is_quiet()


def test_a_foreign_script_may_not_run(opened: Callable[..., Opened], tmp_path: Path) -> None:
    """The second wall: even if a name became markup, the page's policy would not run it, nor reach a network."""
    path = tmp_path / "calculator.html"
    write_calculator(path, Settings(100, 8, 4, 0.6))
    page = path.read_text()
    page = page.replace("<header>", "<script>window.broken = 1</script><header onclick='window.broken = 1'>", 1)
    page, end, rest = page.rpartition("</body>")
    path.write_text(f"{page}<img src='https://example.com/x.png'>{end}{rest}")
    one = opened(path)
    one.page.locator("header").click()
    assert one.page.evaluate("window.broken") is None
    assert len([text for text in one.said if "Content Security Policy" in text]) >= 3
    check(one)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(opened: Callable[..., Opened], tmp_path: Path, scheme: str, width: int) -> None:
    long = renamed(make_plan(SUFFIX, NGRAM, MODEL), {"edit": "a-bucket-with-a-name-that-" + "never-ends-" * 20})
    path = tmp_path / "report.html"
    write_report(long, path)
    one = opened(path, width=width, scheme=scheme)
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("sliders", "speedup-1", "verify"):
        box = one.page.locator(f"#{name} svg").bounding_box()
        assert 250 < box["width"] <= width
    colors = one.page.evaluate(_COLORS)
    for what, ratio in colors.items():
        assert ratio >= 4.5, (what, ratio)  # WCAG AA for text
    one.is_quiet()


_COLORS = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const page = getComputedStyle(document.body).backgroundColor;
  const of = (query, property = "color") => getComputedStyle(document.querySelector(query))[property];
  return {
    text: contrast(of("body"), page), note: contrast(of(".note"), page),
    axis: contrast(of("#sliders svg text", "fill"), page),
    legend: contrast(of("#tokens .role-legend text", "fill"), page),
    yes: contrast(of(".yes"), of(".yes", "backgroundColor")), no: contrast(of(".no"), of(".no", "backgroundColor")),
  };
}"""


@pytest.mark.parametrize("gamma_max", [0, 1])
def test_small_plans_draw_too(opened: Callable[..., Opened], tmp_path: Path, gamma_max: int) -> None:
    one_bucket = Drafter("suffix", "suffix", 0.5, {"only": 0.5})
    plan = make_plan(one_bucket, loads=(1,), gamma_max=gamma_max, price_per_hour=None, memory_limit=None, memory=())
    if gamma_max == 0:
        bucket = plan.buckets[0]
        curve = replace(bucket.bands[0].curves[0], alpha=None)
        plan = replace(plan, buckets=(replace(bucket, bands=(replace(bucket.bands[0], curves=(curve,)),)),))
    path = tmp_path / "report.html"
    write_report(plan, path)
    one = opened(path)
    assert one.page.locator("select[data-signal=bucket]").is_hidden()  # there is nothing to choose
    one.is_quiet()


@pytest.mark.parametrize(("alpha", "best"), [(0.97, 72), (1.0, 256)])
def test_the_calculators_peak_is_the_planners_however_long_the_draft(
    opened: Callable[..., Opened], tmp_path: Path, alpha: float, best: int
) -> None:
    settings = Settings(t_target=100, t_draft=0.5, gamma=4, alpha=alpha)
    assert price.best_gamma(alpha, price.round_costs(100, 0.5)) == best
    path = tmp_path / "long.html"
    write_calculator(path, settings)
    one = opened(path)
    assert one.answer("peak")["gamma"] == best
    assert one.is_quiet()

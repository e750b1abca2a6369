(() => {
  "use strict";
  const SETTINGS = ["alpha", "gamma", "t_target", "t_draft", "slope"];
  const views = [];  // {view, spec}

  const has = (spec, name) => (spec.params || []).some((param) => param.name === name);
  const fixed = (value) => value.toFixed(2) + "x";

  async function draw(script) {
    const spec = JSON.parse(script.textContent);
    const name = script.dataset.chart;
    const options = { renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };
    if (name === "sliders") {
      options.bind = "#controls";
    }
    const { view } = await vegaEmbed("#" + name, spec, options);
    views.push({ view, spec });
    if (name === "sliders") {
      answer(view);
    }
  }

  // What the sliders say, as text: for readers who do not see the chart, and for those who copy numbers.
  function answer(view) {
    document.querySelectorAll("#controls label").forEach((label) => {  // a name without the value, which changes
      label.querySelector("input").setAttribute("aria-label", label.querySelector(".vega-bind-name").textContent);
    });
    const outputs = ["peak", "mine", "even"].map((name) => document.getElementById("answer-" + name));
    const show = () => {
      const [alpha, gamma, target, draft, slope] = SETTINGS.map((name) => view.signal(name));
      const [peakGamma, peak, mine] = [view.signal("peak_gamma"), view.signal("peak"), view.signal("speedups")[gamma]];
      const even = draft / target + slope;
      const [top, own, least] = outputs;
      top.textContent = peakGamma === 0
        ? "Do not enable: nothing is faster than plain decoding"
        : `Peak: gamma ${peakGamma}, ${fixed(peak)}`;
      own.textContent = `At gamma ${gamma}: ${fixed(mine)}, ${(target / mine).toFixed(1)} ms per token`;
      least.textContent = even < 1
        ? `Some gamma wins if alpha is above ${even.toFixed(3)}`
        : "No alpha wins: a draft costs more than the step it saves";
      Object.assign(top.dataset, { gamma: peakGamma, speedup: peak });
      Object.assign(own.dataset, { gamma, speedup: mine, itl: target / mine });
      Object.assign(least.dataset, { alpha: even });
      document.getElementById("controls").dataset.shown = JSON.stringify([alpha, gamma, target, draft, slope]);
    };
    // A listener is called as soon as its own signal is new: what follows from it is not computed yet.
    SETTINGS.forEach((name) => view.addSignalListener(name, () => view.runAfter(show)));
    show();
    const preset = document.getElementById("preset");
    if (preset) {
      preset.addEventListener("change", () => start(view, preset.selectedOptions[0]));
      const own = () => { preset.value = ""; view.signal("picked", -1).runAsync(); };
      document.getElementById("controls").addEventListener("input", own);
    }
  }

  function start(view, option) {
    if (option.dataset.settings) {
      const settings = JSON.parse(option.dataset.settings);
      SETTINGS.forEach((name) => view.signal(name, settings[name]));
    }
    view.signal("picked", option.value === "" ? -1 : Number(option.value)).runAsync();
  }

  function choose(select) {
    const value = JSON.parse(select.selectedOptions[0].dataset.value);
    const name = select.dataset.signal;
    const concerned = views.filter(({ spec }) => has(spec, name));
    return Promise.all(concerned.map(({ view }) => view.signal(name, value).runAsync()));
  }

  async function all() {
    const scripts = [...document.querySelectorAll("script[data-chart]")];
    document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
    await Promise.all(scripts.map(draw));
    document.querySelectorAll("select[data-signal]").forEach((select) => {
      select.addEventListener("change", () => choose(select));
    });
    document.documentElement.dataset.ready = "yes";
  }

  all();
})();

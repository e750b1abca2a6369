// Seconds per token of speculating and of plain requests over time, and in one sentence what that comes to.

import { byId, el, reconcile, say, setOptions, show, table } from "./dom.js";
import { LineChart } from "./chart.js";
import { clock, ms, number, plural } from "./format.js";

const SERIES = [
  { id: "on", label: "speculating" },
  { id: "off", label: "plain" },
  { id: "shadow", label: "plain, drafts scored in shadow" },
];
const BINS = 90;
const LEAST = 60; // seconds that the chart spans

/** The section; update(state) shows a state of the server. */
export function makeLatency() {
  const bucket = byId("latency-bucket");
  const span = byId("latency-window");
  const unfolded = byId("latency-table");
  const chart = new LineChart(byId("latency-chart"), SERIES, axis, "Time between tokens");
  let state = null;
  const draw = () => state && drawAll(state, chart, bucket.value, Number(span.value));
  for (const control of [bucket, span]) control.addEventListener("change", draw);
  unfolded.addEventListener("toggle", draw);
  return {
    update(next) {
      state = next;
      const names = new Set(next.points.flatMap((point) => point.gaps.map((gap) => gap.bucket)));
      const sorted = [...names].sort((a, b) => a.localeCompare(b));
      // a value of its own for "all": a bucket may be called anything but the empty text
      setOptions(bucket, [["", "all"], ...sorted.map((name) => [name, name])]);
      draw();
    },
  };
}

function axis(value, step = null) {
  if (step === null) return ms(value);
  const digits = Math.max(0, -Math.floor(Math.log10(1000 * step) + 1e-9));
  return `${(1000 * value).toFixed(digits)} ms`;
}

function drawAll(state, chart, bucket, seconds) {
  const newest = state.points.at(-1)?.time ?? state.stats.started;
  const oldest = state.points[0] ? state.points[0].time - state.points[0].seconds : newest;
  // a young server's chart begins with the server, not with an empty stretch
  const from = Math.max(newest - seconds, Math.min(oldest, newest - LEAST));
  const bins = binned(state.points, bucket, from, newest);
  const sums = totals(bins);
  const summary = verdict(sums, state, bucket);
  const lines = Object.fromEntries(SERIES.map(({ id }) => [id, lineOf(bins, id)]));
  chart.update({ from, to: newest, gap: Math.max(10, (3 * seconds) / BINS), lines }, summary);
  say(byId("latency-verdict"), summary);
  say(byId("latency-note"), caveat(sums, state, bucket));
  reconcile(byId("latency-legend"), SERIES.filter(({ id }) => id !== "shadow" || sums.shadow), (one) => one.id,
    ({ id, label }) => el("span", { class: `swatch swatch-${id}` }, label, " ", el("b")),
    (node, { id }) => say(node.lastElementChild, sums[id] ? ms(sums[id].seconds / sums[id].count) : "no tokens"));
  if (byId("latency-table").open) drawTable(bins);
}

/** Points of one bucket ("" is all) gathered in even pieces of time: {end, on: {count, seconds}, ...}. */
function binned(points, bucket, from, to) {
  const width = (to - from) / BINS;
  const bins = new Map();
  for (const point of points) {
    if (point.time <= from || point.time > to) continue;
    const place = Math.floor((point.time - from - 1e-6) / width);
    for (const gap of point.gaps) {
      if (bucket !== "" && gap.bucket !== bucket) continue;
      const bin = bins.get(place) ?? { end: from };
      bins.set(place, bin);
      bin.end = point.time;
      const sum = (bin[gap.mode] ??= { count: 0, seconds: 0 });
      sum.count += gap.count;
      sum.seconds += gap.seconds;
    }
  }
  return [...bins.values()];
}

function totals(bins) {
  const sums = {};
  for (const { id } of SERIES) {
    for (const bin of bins) {
      if (!bin[id]) continue;
      const sum = (sums[id] ??= { count: 0, seconds: 0 });
      sum.count += bin[id].count;
      sum.seconds += bin[id].seconds;
    }
  }
  return sums;
}

function lineOf(bins, id) {
  return bins.filter((bin) => bin[id]).map((bin) => [bin.end, bin[id].seconds / bin[id].count]);
}

/** One sentence. What is missing is said, not drawn as nothing. */
function verdict({ on, off, shadow }, { stats, rollout }, bucket) {
  if (on && off) {
    const ratio = on.seconds / on.count / (off.seconds / off.count);
    return `Speculating requests took ${number(ratio)} times as long for a token as plain ones.`;
  }
  const where = bucket === "" ? "" : " in this bucket";
  if (on) {
    const why = rollout ? "No plain request in this time" : "This server has no control group: no policy, so every " +
      "request speculates unless it declines. No plain request in this time";
    return `${why}${where}: nothing to compare with.`;
  }
  if (off || shadow) {
    if (!stats.drafters.length) return "This server has no drafter: every request is plain.";
    return `No request speculated in this time${where}: nothing to compare with.`;
  }
  return `No tokens in this time${where}.`;
}

function caveat({ on, off }, { rollout }, bucket) {
  if (!on || !off) return "";
  const counts = `Over ${plural(on.count, "speculated gap")} and ${plural(off.count, "plain one")}. `;
  if (bucket === "") return `${counts}All buckets mixed: the two may differ in kind. Choose a bucket.`;
  return counts + (rollout ? "The rollout decides by blocks of time in which both kinds saw the same load: see below."
    : "Who declines speculation chose so: the two kinds may differ in more than that.");
}

function drawTable(bins) {
  const cell = (sum) => (sum ? ms(sum.seconds / sum.count) : "–");
  const rows = [...bins].reverse().map((bin) => [clock(bin.end), ...SERIES.map(({ id }) => cell(bin[id]))]);
  const place = byId("latency-table").querySelector(".scroll");
  place.replaceChildren(table("Time between tokens", ["until", ...SERIES.map(({ label }) => label)], rows));
  show(place, rows.length > 0);
}

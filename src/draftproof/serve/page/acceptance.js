// Acceptance by bucket as bars: accepted / tested, with its interval and the floor where there is a rollout.

import { byId, el, reconcile, say } from "./dom.js";
import { number } from "./format.js";

/** The section; update(state) shows a state of the server. */
export function makeAcceptance() {
  return {
    update(state) {
      const rows = state.rollout ? ofRollout(state.rollout.status) : ofCounts(state.stats);
      rows.sort((a, b) => b.tested - a.tested || a.name.localeCompare(b.name));
      say(byId("acceptance-note"), noteOf(rows, state));
      reconcile(byId("acceptance"), rows, (row) => row.key, create, update);
    },
  };
}

/** The latest requests of each bucket that has tested drafts. */
function ofRollout(status) {
  return Object.entries(status.buckets).filter(([, bucket]) => bucket.acceptance).map(([name, bucket]) => ({
    key: name, name, tested: bucket.tested, floor: bucket.floor, what: "", ...bucket.acceptance,
  }));
}

/** Everything since the start; there is no interval to go with it. */
function ofCounts(stats) {
  return stats.buckets.filter((bucket) => bucket.tested).map((bucket) => ({
    key: JSON.stringify([bucket.bucket, bucket.mode]), name: bucket.bucket, tested: bucket.tested, floor: null,
    what: bucket.mode === "shadow" ? " in shadow" : "", mean: bucket.accepted / bucket.tested, low: null, high: null,
  }));
}

function noteOf(rows, { rollout, stats }) {
  if (!rows.length) {
    return stats.drafters.length ? "No draft has been tested yet." : "This server has no drafter.";
  }
  if (!rollout) return "Accepted / tested drafts since the server started.";
  return "Accepted / tested drafts of each bucket's latest requests. The line is the interval, the mark the floor.";
}

function create() {
  const parts = ["fill", "range", "floor"].map((name) => el("i", { class: name }));
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, ...parts);
  const [name, value, note] = ["name", "value", "soft"].map((kind) => el("span", { class: kind }));
  return el("li", {}, name, bar, value, note);
}

function update(node, row) {
  const [name, bar, value, note] = node.children;
  const [fill, range, floor] = bar.children;
  say(name, row.name);
  fill.style.width = `${100 * row.mean}%`;
  range.hidden = row.low === null;
  if (row.low !== null) {
    range.style.left = `${100 * row.low}%`;
    range.style.width = `${100 * (row.high - row.low)}%`;
  }
  floor.hidden = row.floor === null;
  if (row.floor !== null) floor.style.left = `${100 * row.floor}%`;
  bar.classList.toggle("low", row.floor !== null && row.mean < row.floor);
  say(value, row.mean.toFixed(2));
  const between = row.low === null ? "" : `${row.low.toFixed(2)} to ${row.high.toFixed(2)}, `;
  const limit = row.floor === null ? "" : `, floor ${number(row.floor)}`;
  say(note, `${between}${number(row.tested)} tested${row.what}${limit}`);
}

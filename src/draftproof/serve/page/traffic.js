// Tiles: what runs and waits now, rates over the last seconds, and the last five minutes as small lines.

import { el, say } from "./dom.js";
import { spark } from "./chart.js";
import { number, percent } from "./format.js";

const RATE_POINTS = 5;
const LINE_SECONDS = 300;
const total = (tokens) => Object.values(tokens).reduce((sum, value) => sum + value, 0);

const TILES = [
  { id: "running", label: "Running", unit: "texts", of: (point) => point.running },
  { id: "waiting", label: "Waiting", unit: "texts", of: (point) => point.waiting },
  { id: "requests", label: "Requests", unit: "per second", of: (point) => point.answered / point.seconds },
  { id: "tokens", label: "Tokens", unit: "per second", of: (point) => total(point.tokens) / point.seconds },
  { id: "memory", label: "Memory for texts", unit: "in use", of: (point) => point.memory },
];

/** The section; update(state) shows a state of the server. */
export function makeTraffic(root) {
  const tiles = TILES.map((tile) => {
    const value = el("b", { id: `tile-${tile.id}` }, "–");
    const note = el("span", { class: "soft" });
    const line = el("div", { class: "line-box" });
    const node = el("div", { class: "tile" }, el("h2", {}, tile.label),
      el("p", {}, value, " ", el("span", { class: "unit" }, tile.unit)), line, note);
    root.append(node);
    return { ...tile, value, note, line };
  });
  return { update: (state) => tiles.forEach((tile) => showTile(tile, state)) };
}

function showTile(tile, { stats, points }) {
  const newest = points.at(-1)?.time ?? 0;
  const recent = points.filter((point) => point.time > newest - LINE_SECONDS);
  tile.line.replaceChildren(spark(recent.map(tile.of)));
  say(tile.value, valueOf(tile, stats, points.slice(-RATE_POINTS)));
  say(tile.note, noteOf(tile.id, stats, points));
}

function valueOf(tile, stats, last) {
  const state = stats.state;
  if (tile.id === "running") return number(state.texts_running);
  if (tile.id === "waiting") return number(state.texts_waiting);
  if (tile.id === "memory") return percent(state.kv_pages ? 1 - state.kv_pages_free / state.kv_pages : 0);
  const seconds = last.reduce((sum, point) => sum + point.seconds, 0);
  if (!seconds) return "0";
  const sum = last.reduce((all, point) => all + tile.of(point) * point.seconds, 0);
  const rate = sum / seconds;
  return rate >= 100 ? rate.toFixed(0) : rate.toFixed(1);
}

function noteOf(id, stats, points) {
  const tokens = stats.generated_tokens;
  if (id === "tokens" && total(tokens)) {
    return `${percent((tokens.on ?? 0) / total(tokens))} of all by speculating requests`;
  }
  if (id === "requests") {
    const refused = points.reduce((sum, point) => sum + point.refused, 0);
    return refused ? `${number(refused)} refused or failed in 15 min` : "none refused";
  }
  if (id === "memory") return `${number(stats.info.kv_tokens)} tokens fit`;
  return "";
}

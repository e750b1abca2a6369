// The decision log, newest first; each line unfolds to the numbers that led to it.

import { byId, el, reconcile, say, setOptions, show } from "./dom.js";
import { call } from "./api.js";
import { evidence } from "./evidence.js";
import { moment } from "./format.js";

const PAGE = 30;
const MOST = 1000;

/** The section; refresh(state) asks for the log where something was decided since. */
export function makeLog() {
  const chosen = byId("log-bucket");
  let limit = PAGE;
  let seen = null;
  let asked = 0;
  async function load() {
    const mine = (asked += 1);
    const bucket = chosen.value === "" ? "" : `&bucket=${encodeURIComponent(chosen.value)}`;
    const { decisions } = await call(`admin/rollout/log?limit=${limit}${bucket}`);
    if (mine !== asked) return; // an answer to an older choice may come after a newer one's
    draw(decisions);
    show(byId("log-more"), decisions.length >= limit && limit < MOST);
  }
  const again = () => load().catch((error) => say(byId("log-none"), error.message));
  chosen.addEventListener("change", () => {
    limit = PAGE;
    again();
  });
  byId("log-more").addEventListener("click", () => {
    limit = Math.min(MOST, 3 * limit);
    again();
  });
  return {
    async refresh({ rollout, stats }) {
      show(chosen.closest("section"), rollout !== null);
      if (!rollout) return;
      const names = Object.keys(rollout.status.buckets).sort((a, b) => a.localeCompare(b));
      setOptions(chosen, [["", "all"], ["*", "about all at once"], ...names.map((name) => [name, name])]);
      const now = `${stats.started} ${stats.decisions}`;
      if (now === seen) return;
      await load();
      seen = now;
    },
  };
}

function draw(decisions) {
  const counts = new Map();
  const items = decisions.toReversed().map((decision) => {
    const name = JSON.stringify([decision.time, decision.bucket, decision.action]);
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return { ...decision, key: `${name}${counts.get(name)}` };
  }).toReversed();
  say(byId("log-none"), items.length ? "" : "Nothing was decided.");
  show(byId("log-none"), !items.length);
  reconcile(byId("log"), items, (item) => item.key, create, () => {});
}

function create(decision) {
  const { from_stage: from, to_stage: to } = decision;
  const stages = from === to ? from : `${from} → ${to}`;
  const bucket = decision.bucket === "*" ? "all buckets" : decision.bucket;
  const body = el("div", { class: "inside" });
  const details = el("details", {}, el("summary", {},
    el("time", { class: "soft", datetime: new Date(1000 * decision.time).toISOString() }, moment(decision.time)),
    el("span", { class: "name" }, bucket),
    el("span", { class: `badge act-${actionKind(decision.action)}` }, decision.action),
    el("span", { class: "stages" }, stages), el("span", { class: "reason" }, decision.reason)), body);
  details.addEventListener("toggle", () => {
    if (details.open && !body.children.length) body.append(...evidence(decision.evidence));
  });
  return el("li", {}, details);
}

function actionKind(action) {
  if (["promote", "start", "reenter", "manual"].includes(action)) return "up";
  if (["off", "stop"].includes(action)) return "down";
  return ["alarm", "probe_failed"].includes(action) ? "alarm" : "other";
}

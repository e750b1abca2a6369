// The rollout: each bucket's stage on its ladder, what it waits for, and the hand that moves it.

import { byId, el, reconcile, say, show } from "./dom.js";
import { confirm } from "./confirm.js";
import { gatesTable, watchesList } from "./evidence.js";
import { interval, moment, ms, number, percent, plural, span } from "./format.js";

/** The section. move(what, bucket, reason): asks the server, resolves once it is done. */
export function makeBuckets(move) {
  return {
    update({ rollout, stats }) {
      const names = rollout ? Object.keys(rollout.status.buckets) : [];
      show(byId("buckets"), names.length > 0);
      say(byId("buckets-none"), names.length ? "" : noneText(rollout, stats));
      show(byId("buckets-none"), names.length === 0);
      say(byId("buckets-summary"), names.length ? plural(names.length, "bucket") : "");
      const items = names.map((name) => itemOf(name, rollout));
      reconcile(byId("buckets"), items, (item) => item.name, (item) => createRow(item, move), updateRow);
    },
  };
}

function noneText(rollout, stats) {
  if (rollout) return "No bucket yet: one appears with its first request.";
  if (!stats.drafters.length) return "This server has no drafter, so no rollout: every request is plain.";
  return "This server has no policy, so no rollout: requests speculate unless they decline. " +
    "Start it with --policy to turn speculation on step by step.";
}

function itemOf(name, { status, policy }) {
  const bucket = status.buckets[name];
  const own = Object.hasOwn(policy.buckets, name) ? policy.buckets[name] : policy;
  const wide = own.wide_shares.map((share) => ({ stage: "wide", share }));
  const ladder = [{ stage: "off", share: 0 }, { stage: "shadow", share: 0 },
    { stage: "canary", share: own.canary_share }, ...wide, { stage: "full", share: 1 - own.holdout }];
  const place = ladder.findIndex((step) => step.stage === bucket.stage &&
    (step.stage !== "wide" || Math.abs(step.share - bucket.share) < 1e-6 || !bucket.live));
  return { name, bucket, policy: own, ladder, place, allStopped: status.stopped, time: status.time };
}

// ---------------------------------------------------------------------------------------------------------------- rows

function createRow(item, move) {
  const id = `more-${createRow.count = (createRow.count ?? 0) + 1}`;
  const cell = (name) => el("td", { "data-label": name });
  const more = el("button", { class: "fold", type: "button", "aria-expanded": "false", "aria-controls": id },
    el("span", { class: "name" }, item.name));
  const details = el("tr", { id, class: "inside", hidden: true }, el("td", { colspan: "7" }));
  const body = el("tbody", {}, el("tr", {}, el("th", { scope: "row" }, more), cell("Stage"), cell("Acceptance"),
    cell("Time between tokens"), cell("Requests"), cell("Waits for"), el("td", { class: "acts" })), details);
  body.querySelector(".acts").append(...["promote", "start", "stop"].map((what) => button(what, body, move)));
  more.addEventListener("click", () => {
    details.hidden = !details.hidden;
    more.setAttribute("aria-expanded", String(!details.hidden));
    updateRow(body, body.item);
  });
  return body;
}

function button(what, body, move) {
  const label = { promote: "Promote", start: "Start", stop: "Stop" }[what];
  const looks = what === "stop" ? "quiet danger" : "quiet";
  const node = el("button", { type: "button", class: looks, "data-act": what }, label,
    el("span", { class: "hidden" }, ` ${body.querySelector(".name").textContent}`));
  node.addEventListener("click", () => confirm(ask(what, body.item, move)));
  return node;
}

function updateRow(body, item) {
  body.item = item;
  const { bucket } = item;
  const [, stage, acceptance, latency, requests, waits, acts] = body.firstElementChild.children;
  fill(stage, stageParts(item));
  fill(acceptance, [interval(bucket.acceptance)]);
  fill(latency, latencyParts(bucket));
  fill(requests, requestParts(bucket.requests));
  fill(waits, [remark(item)]);
  const allowed = possible(item);
  for (const node of acts.children) show(node, allowed.has(node.dataset.act));
  const inside = body.lastElementChild;
  if (!inside.hidden) fill(inside.firstElementChild, insideParts(item));
}

/** New children only where something is to be seen anew. */
function fill(node, parts) {
  const next = el("div", {}, ...parts);
  if (node.firstElementChild?.isEqualNode(next)) return;
  node.replaceChildren(next);
}

function stageParts({ bucket, ladder, place, allStopped }) {
  const name = bucket.live || bucket.stage === "off" ? bucket.stage : `${bucket.stage}, stopped`;
  const steps = ladder.map((_, index) => el("i", { class: index <= place && place > 0 ? "done" : "" }));
  const kind = allStopped || !bucket.live ? "off" : bucket.stage;
  const share = bucket.share ? ` ${percent(bucket.share, bucket.share < 0.1 ? 1 : 0)} of keys` : "";
  return [el("span", { class: `badge stage-${kind}` }, name), el("span", { class: "soft" }, share),
    el("span", { class: "ladder", "aria-hidden": "true" }, ...steps)];
}

function latencyParts({ itl_ratio: ratio, itl_on_s: on, itl_off_s: off }) {
  if (!ratio) return [el("span", { class: "soft" }, "nothing compared yet")];
  return [`${interval(ratio)} times plain`, el("br"), el("span", { class: "soft" }, `${ms(on)} against ${ms(off)}`)];
}

function requestParts(requests) {
  const kinds = [["on", "speculating"], ["shadow", "in shadow"], ["off", "plain"]].filter(([mode]) => requests[mode]);
  if (!kinds.length) return [el("span", { class: "soft" }, "none")];
  return kinds.flatMap(([mode, label], index) => [...(index ? [el("br")] : []), `${number(requests[mode])} ${label}`]);
}

function remark({ bucket, allStopped, time }) {
  if (!bucket.enabled) return "disabled by the policy";
  if (allStopped) return "all are stopped";
  if (bucket.stopped) return "stopped: waits for a start";
  if (bucket.probing) return "a probe looks whether acceptance is back";
  if (bucket.probe_at !== null) {
    return `a probe in ${span(Math.max(0, bucket.probe_at - time))} (setback ${bucket.setbacks})`;
  }
  if (bucket.stage === "off") return "waits for a start";
  const missing = bucket.gates.filter((gate) => !gate.passed);
  if (!missing.length) return bucket.stage === "full" ? "nothing: it is watched" : "the next look";
  return missing.map((gate) => gate.name).join(", ");
}

function insideParts({ bucket, time }) {
  const parts = [el("p", { class: "soft" }, `In stage ${bucket.stage} since ${moment(bucket.since)} ` +
    `(${span(Math.max(0, time - bucket.since))}), ${plural(bucket.alarms, "alarm")}.`)];
  if (bucket.gates.length) parts.push(el("h3", {}, "Gates to the next stage"), gatesTable(bucket.gates));
  parts.push(el("h3", {}, "Watches: how near to an alarm"), watchesList(bucket.watches));
  return parts;
}

// ------------------------------------------------------------------------------------------------------------- actions

function possible({ bucket, allStopped, ladder, place }) {
  const found = new Set();
  if (!bucket.enabled) return found;
  if (!bucket.stopped) found.add("stop");
  if (allStopped) return found;
  if (bucket.stage === "off") found.add("start");
  else if (place < ladder.length - 1) found.add("promote");
  return found;
}

function ask(what, item, move) {
  const { name, bucket, ladder, place } = item;
  const act = (reason) => move(what, name, reason);
  if (what === "stop") {
    const text = "Its requests are decoded plainly from now on, until somebody starts it again.";
    return { title: `Stop ${name}?`, text, yes: "Stop it", danger: true, act };
  }
  if (what === "start") {
    const text = "It goes to stage shadow: some requests are drafted for and the drafts scored, none is emitted.";
    return { title: `Start ${name}?`, text, yes: "Start it", act };
  }
  const next = ladder[place + 1];
  const missing = bucket.gates.filter((gate) => !gate.passed).map((gate) => `Gate not passed: ${gate.name}`);
  const text = next.share ? `It goes to stage ${next.stage}: ${percent(next.share)} of its keys speculate.`
    : `It goes to stage ${next.stage}.`;
  const yes = missing.length ? "Promote it anyway" : "Promote it";
  return { title: `Promote ${name}?`, text, list: missing, yes, act };
}

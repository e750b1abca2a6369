// The page: asks the server every other second, shows its state, and says so where it can't.

import { makeAcceptance } from "./acceptance.js";
import { call, dropKey, hasKey, setKey } from "./api.js";
import { makeBuckets } from "./buckets.js";
import { confirm, setUpConfirm } from "./confirm.js";
import { byId, say, show } from "./dom.js";
import { clock, number } from "./format.js";
import { makeLatency } from "./latency.js";
import { makeLog } from "./log.js";
import { makePrompt } from "./prompt.js";
import { makeTraffic } from "./traffic.js";

const EVERY = 2000;
const HIDDEN = 15000; // while nobody looks
const LONGEST = 8000; // between tries while the server is away
const KEPT = 900; // seconds of points

const state = { stats: null, points: [], rollout: null };
const link = { failures: 0, since: null, timer: null, asking: false, locked: false, area: "admin" };

setUpConfirm();
const log = makeLog();
const sections = [makeTraffic(byId("traffic")), makeLatency(), makeAcceptance(), makeBuckets(move),
  makePrompt(() => askForKey("api"))];

// ------------------------------------------------------------------------------------------------------------- reading

async function refresh() {
  if (link.asking || link.locked) return;
  link.asking = true;
  clearTimeout(link.timer);
  try {
    answered(await read());
  } catch (error) {
    if (error.status === 401) askForKey("admin");
    else unanswered(error);
  } finally {
    link.asking = false;
    if (!link.locked) link.timer = setTimeout(refresh, pause());
  }
}

/** Asks and shows; true where the server is another one than before. */
async function read() {
  const stats = await call("admin/stats");
  const [rollout, { points }] = await Promise.all([
    stats.rollout ? call("admin/rollout") : null,
    call(`admin/history?after=${state.points.at(-1)?.time ?? 0}`),
  ]);
  const restarted = state.stats !== null && state.stats.started !== stats.started;
  const newest = points.at(-1)?.time ?? state.points.at(-1)?.time ?? 0;
  state.points = [...state.points, ...points].filter((point) => point.time > newest - KEPT);
  Object.assign(state, { stats, rollout });
  for (const section of sections) section.update(state);
  showHead();
  await log.refresh(state);
  return restarted;
}

function pause() {
  if (link.failures) return Math.min(LONGEST, 500 * 2 ** link.failures) * (0.8 + 0.4 * Math.random());
  return document.hidden ? HIDDEN : EVERY;
}

function answered(restarted) {
  if (restarted) toast("The server was restarted: its counts began anew.");
  else if (link.failures) toast("The server answers again.");
  Object.assign(link, { failures: 0, since: null });
  show(byId("lost"), false);
  show(byId("key"), link.area === "api" && !byId("key").hidden);
  document.body.classList.remove("stale");
  const { trouble } = state.stats;
  connection(trouble ? "trouble" : "live", trouble ? "takes no requests" : "live");
  say(byId("trouble"), trouble ? `The server takes no requests: ${trouble}.` : "");
  show(byId("trouble"), Boolean(trouble));
}

function unanswered(error) {
  link.failures += 1;
  link.since ??= Date.now() / 1000;
  connection("lost", "no connection");
  const shown = state.stats ? " Shown is what it said last." : "";
  say(byId("lost"), `No answer since ${clock(link.since)}: ${error.message}.${shown} Trying again.`);
  show(byId("lost"), true);
  document.body.classList.add("stale");
}

function connection(kind, text) {
  byId("connection").dataset.state = kind;
  say(byId("connection"), text);
}

function showHead() {
  const { stats, rollout } = state;
  const { info } = stats;
  say(byId("model"), stats.model);
  const drafters = stats.drafters.length ? `drafters: ${stats.drafters.join(", ")}` : "no drafter";
  say(byId("facts"), `${info.weights} on ${info.backend}, numerics ${info.numerics}, ${drafters}, ` +
    `context ${number(info.max_len)}`);
  const title = `${stats.model} · draftproof`;
  if (document.title !== title) document.title = title;
  show(byId("kill"), rollout !== null && !rollout.status.stopped);
  show(byId("stopped"), rollout !== null && rollout.status.stopped);
}

// ---------------------------------------------------------------------------------------------------------------- keys

function askForKey(area) {
  if (hasKey(area)) {
    dropKey(area);
    say(byId("key-error"), "The server refuses this key.");
  } else {
    say(byId("key-error"), "");
  }
  link.area = area;
  if (area === "admin") {
    link.locked = true;
    connection("locked", "needs a key");
  }
  say(byId("key-text"), area === "admin" ? "This server shows its state to those with its admin key:"
    : "This server asks for an API key to answer prompts:");
  show(byId("lost"), false);
  show(byId("key"), true);
  byId("key-field").focus();
}

byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key-field").value.trim();
  byId("key-field").value = "";
  if (!/^[!-~]+$/.test(key)) {
    say(byId("key-error"), "A key has printable ASCII characters only.");
    return;
  }
  setKey(link.area, key);
  show(byId("key"), false);
  link.locked = false;
  refresh();
});

// ------------------------------------------------------------------------------------------------------------- actions

/** Moves a bucket, or with null all of them. Raises ApiError. */
async function move(what, bucket, reason) {
  const body = bucket === null ? { reason } : { bucket, reason };
  const { decisions } = await call(`admin/rollout/${what}`, { body });
  const last = decisions.at(-1);
  toast(last ? `${bucket ?? "All buckets"}: ${last.from_stage} → ${last.to_stage}.` : "Done.");
  refresh();
}

byId("kill").addEventListener("click", () => confirm({
  title: "Stop all speculation?",
  text: "Requests of every bucket are decoded plainly from now on, until somebody starts it again. No answer is lost.",
  yes: "Stop all",
  danger: true,
  act: (reason) => move("stop", null, reason),
}));

byId("restart").addEventListener("click", () => confirm({
  title: "Start speculation again?",
  text: "Buckets go on where they were, at most in stage canary: what was wider must show its worth again.",
  yes: "Start again",
  act: (reason) => move("start", null, reason),
}));

let hiding = null;

function toast(text) {
  say(byId("toast"), text);
  show(byId("toast"), true);
  clearTimeout(hiding);
  hiding = setTimeout(() => show(byId("toast"), false), 6000);
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
window.addEventListener("online", refresh);
refresh();

// The numbers behind a decision or a stage: gates, intervals, counts, whatever depth they have.

import { el, table } from "./dom.js";
import { interval, moment, number, percent } from "./format.js";

const isInterval = (value) => value !== null && typeof value === "object" && "mean" in value && "low" in value;
const isGates = (value) => Array.isArray(value) && value.length > 0 && value.every((gate) => gate?.needs !== undefined);

/** A value in one line. */
export function short(value) {
  if (isInterval(value)) return interval(value, 3);
  if (typeof value === "number") return number(value, 4);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value === null || value === undefined) return "not known";
  if (Array.isArray(value)) return value.map(short).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, of]) => `${name}: ${short(of)}`).join(", ");
  return String(value);
}

/** Gates as a table: the number, what is needed, and whether it is there. */
export function gatesTable(gates) {
  const rows = gates.map((gate) => [
    el("span", { class: gate.passed ? "mark-yes" : "mark-no" }, gate.passed ? "passed" : "not yet"),
    gate.name, short(gate.value), `${gate.needs} ${number(gate.threshold, 4)}`,
  ]);
  return el("div", { class: "wide-table" }, table("Gates", ["", "gate", "now", "needed"], rows));
}

/** How far each watch is from an alarm. */
export function watchesList(watches) {
  const list = el("ul", { class: "watches" });
  for (const [name, share] of Object.entries(watches)) {
    const fill = el("i");
    fill.style.width = `${100 * Math.min(1, share)}%`;
    const bar = el("span", { class: "meter", "aria-hidden": "true" }, fill);
    list.append(el("li", {}, el("span", {}, name), bar, el("span", { class: "soft" }, percent(share))));
  }
  return list;
}

/** All of a decision's numbers. */
export function evidence(values) {
  const parts = [];
  const plain = el("dl", { class: "evidence" });
  for (const [name, value] of Object.entries(values)) {
    if (isGates(value)) parts.push(gatesTable(value));
    else plain.append(el("dt", {}, words(name)), el("dd", {}, name.endsWith("_at") ? moment(value) : short(value)));
  }
  if (plain.children.length) parts.unshift(plain);
  return parts.length ? parts : [el("p", { class: "soft" }, "No numbers go with this one.")];
}

function words(name) {
  const unit = name.match(/^(.*)_s$/);
  return (unit ? `${unit[1]} (seconds)` : name).replaceAll("_", " ").replace(/\bitl\b/, "ITL");
}

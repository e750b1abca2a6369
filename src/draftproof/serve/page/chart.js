// Lines over time as SVG: drawn at the size it has, read by pointer, by arrow keys, and in words.

import { el, say, svg } from "./dom.js";
import { clock } from "./format.js";

const PAD = { left: 46, right: 12, top: 12, bottom: 24 };
const HEIGHT = 250;

/** A step of 1, 2 or 5 times a power of ten that cuts `most` into about `parts`. */
function niceStep(most, parts) {
  const raw = most / parts;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= raw - 1e-12);
}

export class LineChart {
  /** series: [{id, label}]; their looks are the style sheet's, by `line-ID`. format: value -> text. */
  constructor(root, series, format, label) {
    Object.assign(this, { root, series, format, label, data: null, at: null });
    this.canvas = svg("svg", { role: "img", tabindex: "0", height: HEIGHT });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    root.append(this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.choose(null));
    this.canvas.addEventListener("blur", () => this.choose(null));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  /** data: {from, to, gap, lines: {id: [[time, value], ...]}}, times in seconds, in order; gap: that breaks a line. */
  update(data, summary) {
    this.data = data;
    const times = Object.values(data.lines).flatMap((line) => line.map(([time]) => time));
    this.times = [...new Set(times)].sort((a, b) => a - b);
    if (this.at !== null && !this.times.includes(this.at)) this.at = null;
    this.canvas.setAttribute("aria-label", `${this.label}. ${summary}`);
    this.draw();
  }

  draw() {
    const width = this.root.clientWidth;
    if (!this.data || !width) return;
    const { from, to, lines } = this.data;
    const values = Object.values(lines).flatMap((line) => line.map(([, value]) => value));
    const step = niceStep(1.05 * Math.max(1e-9, ...values), 4);
    const most = values.length ? step * Math.ceil((1.02 * Math.max(...values)) / step) : 1;
    this.x = (time) => PAD.left + ((width - PAD.left - PAD.right) * (time - from)) / (to - from);
    this.y = (value) => HEIGHT - PAD.bottom - ((HEIGHT - PAD.top - PAD.bottom) * value) / most;
    this.canvas.setAttribute("width", width);
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const marks = values.length ? this.marks(step, most, width) : [];
    const drawn = this.series.flatMap((one) => this.line(one));
    this.canvas.replaceChildren(...this.hours(from, to, width), ...marks, ...drawn);
    if (!values.length) {
      const place = { x: (PAD.left + width - PAD.right) / 2, y: HEIGHT / 2, class: "none", "text-anchor": "middle" };
      this.canvas.append(svg("text", place, "no tokens in this time"));
    }
    this.cursor = svg("g", { class: "cursor" });
    this.canvas.append(this.cursor);
    this.choose(this.at);
  }

  marks(step, most, width) {
    const found = [];
    for (let value = 0; value <= most + step / 2; value += step) {
      const y = this.y(value);
      found.push(svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }),
        svg("text", { class: "mark", x: PAD.left - 6, y: y + 4, "text-anchor": "end" }, this.format(value, step)));
    }
    return found;
  }

  hours(from, to, width) {
    const parts = width < 480 ? 2 : 4;
    return Array.from({ length: parts + 1 }, (_, part) => {
      const time = from + ((to - from) * part) / parts;
      const anchor = part === 0 ? "start" : part === parts ? "end" : "middle";
      return svg("text", { class: "mark", x: this.x(time), y: HEIGHT - 6, "text-anchor": anchor }, clock(time));
    });
  }

  /** A path for what hangs together, a dot for what stands alone. */
  line({ id }) {
    const pieces = [];
    let last = null;
    for (const [time, value] of this.data.lines[id] ?? []) {
      if (last === null || time - last > this.data.gap) pieces.push([]);
      pieces.at(-1).push([this.x(time), this.y(value)]);
      last = time;
    }
    const place = ([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    const path = pieces.filter((piece) => piece.length > 1).map((piece) => piece.map(place).join("")).join("");
    const dots = pieces.filter((piece) => piece.length === 1).map(([[x, y]]) => svg("circle",
      { class: `dot-${id}`, cx: x, cy: y, r: 2.5 }));
    return [...(path ? [svg("path", { class: `line line-${id}`, d: path })] : []), ...dots];
  }

  point(x) {
    if (!this.times?.length) return;
    const near = this.times.reduce((a, b) => (Math.abs(this.x(b) - x) < Math.abs(this.x(a) - x) ? b : a));
    this.choose(Math.abs(this.x(near) - x) < 40 ? near : null);
  }

  press(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.choose(null);
    if (!(event.key in moves) || !this.times?.length) return;
    event.preventDefault();
    const now = this.at === null ? this.times.length : this.times.indexOf(this.at);
    const next = Math.min(this.times.length - 1, Math.max(0, now + moves[event.key]));
    this.choose(this.times[next]);
  }

  /** Puts the cursor at a time and says the values there. */
  choose(at) {
    this.at = at;
    this.tip.hidden = at === null;
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    if (at === null) return;
    const x = this.x(at);
    this.cursor.append(svg("line", { x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom }));
    const told = [];
    for (const { id, label } of this.series) {
      const value = this.data.lines[id]?.find(([time]) => time === at)?.[1];
      if (value === undefined) continue;
      this.cursor.append(svg("circle", { class: `dot-${id}`, cx: x, cy: this.y(value), r: 4 }));
      told.push(`${label} ${this.format(value)}`);
    }
    say(this.tip, `${clock(at)}  ${told.join(", ")}`);
    const left = Math.min(Math.max(0, x - this.tip.offsetWidth / 2), this.root.clientWidth - this.tip.offsetWidth);
    this.tip.style.left = `${left}px`;
  }
}

/** A small line without axes. values: numbers, oldest first. */
export function spark(values, width = 120, height = 30) {
  const most = Math.max(...values, 1e-9);
  const x = (index) => (width * index) / Math.max(1, values.length - 1);
  const y = (value) => height - 1 - ((height - 3) * value) / most;
  const points = values.map((value, index) => `${x(index).toFixed(1)} ${y(value).toFixed(1)}`);
  const drawing = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none",
    "aria-hidden": "true" });
  if (points.length > 1) {
    drawing.append(svg("path", { class: "area", d: `M0 ${height}L${points.join("L")}L${width} ${height}Z` }),
      svg("path", { class: "edge", d: `M${points.join("L")}` }));
  }
  return drawing;
}

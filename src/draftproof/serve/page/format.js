// Numbers and times as people read them.

const DASH = "–";

/** A number with about `digits` significant ones, never in powers of ten where it is of everyday size. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(digits - 1);
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(places, 6) });
}

/** Seconds as milliseconds. */
export function ms(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const value = seconds * 1000;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;
}

/** A share of 1. */
export function percent(share, digits = 0) {
  if (share === null || share === undefined) return DASH;
  return `${(100 * share).toFixed(digits)} %`;
}

/** {mean, low, high} as "0.71 (0.68 to 0.74)". */
export function interval(value, digits = 2) {
  if (!value) return DASH;
  const of = (number) => number.toFixed(digits);
  return value.low === null ? of(value.mean) : `${of(value.mean)} (${of(value.low)} to ${of(value.high)})`;
}

/** Seconds of the epoch as a time of the day. */
export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB");
}

/** The same with the date, where it is not today. */
export function moment(seconds) {
  const date = new Date(1000 * seconds);
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock(seconds) : `${date.toLocaleDateString("en-CA")} ${clock(seconds)}`;
}

/** A length of time in words. */
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${number(seconds / 3600, 2)} h` : `${number(seconds / 86400, 2)} days`;
}

/** "1 text", "2 texts". */
export function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

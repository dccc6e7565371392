// Numbers as text for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// 1536 -> "1.50 KiB": the units of the program's own tables.
function bytes(number) {
  let value = number, unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    ++unit;
  }
  return unit === 0 ? `${value} B` : `${value.toFixed(2)} ${UNITS[unit]}`;
}

// The same in four characters or so, for narrow places.
function shortBytes(number) {
  let value = number, unit = 0;
  while (Math.abs(value) >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

function commas(number) {
  const [whole, ...fraction] = String(number).split(".");
  return [whole.replace(/\B(?=(\d{3})+(?!\d))/g, ","), ...fraction].join(".");
}

function digits(value, count) {
  return isNumber(value) ? String(Number(value.toPrecision(count))) : "not a number";
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// [ns] -> "1.23 ms"
function time(ns) {
  if (ns >= 1e9) return `${(ns / 1e9).toPrecision(3)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toPrecision(3)} ms`;
  return ns >= 1e3 ? `${(ns / 1e3).toPrecision(3)} µs` : `${Math.round(ns)} ns`;
}

function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %";
}

function plural(count, one) {
  return `${commas(count)} ${one}${count === 1 ? "" : "s"}`;
}

// ["a", "b", "c"] -> "a, b and c"
function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// "optimizer_state" and "optimizer state" -> "optimizer state"
const spaced = (name) => name.replaceAll("_", " ");

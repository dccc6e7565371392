// Elements, numbers as text, tables, and the report as the sections read it.

addEventListener("error", ({message}) => document.querySelector("#headline > .body").append(
  html("div", {class: "failure", role: "alert"}, `This report cannot be shown whole: ${message}`)));

// ---- elements: text from the document is always text, never markup ------------------------------

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

// html("p", {class: "note"}, "text", html("b", {}, "more")); "onclick" adds a listener.
const html = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const note = (text) => html("p", {class: "note"}, text);

// Both change the page only where something differs: the browser then has less to do.
function set(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// `choices`: texts, or [value, text].
function selectBox(label, choices, value, chosen) {
  const box = html("select", {onchange: () => chosen(box.value)}, choices.map((choice) =>
    html("option", {value: [choice].flat()[0]}, [choice].flat().pop())));
  box.value = value;
  return html("label", {}, label, " ", box);
}

// A picture; `build(width)` draws it anew whenever the section has another width.
function drawn(section, build) {
  const box = html("div", {});
  section.append(box);
  const draw = () => {
    box.width = section.clientWidth;
    box.replaceChildren(...[build(box.width)].flat());
  };
  new ResizeObserver(() => { if (section.clientWidth !== box.width) draw(); }).observe(section);
  draw();
  return draw;
}

// `entries`: [class, text].
const legend = (entries) => html("ul", {class: "legend"}, entries.map(([kind, text]) =>
  html("li", {}, svg("svg", {width: 16, height: 12, "aria-hidden": "true"},
    svg("rect", {class: kind, width: 16, height: 12})), text)));

// ---- numbers ------------------------------------------------------------------------------------

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const commas = (number) => number.toLocaleString("en-US", {maximumFractionDigits: 20});
const digits = (value, count) =>
  isNumber(value) ? String(Number(value.toPrecision(count))) : "not a number";
const plural = (count, one) => `${commas(count)} ${one}${count === 1 ? "" : "s"}`;
const spaced = (name) => name.replaceAll("_", " ");   // "optimizer_state" -> "optimizer state"

// 1536 -> "1.5 KiB"
function bytes(number) {
  let value = number, unit = 0;
  while (Math.abs(value) >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return `${Number(value.toFixed(2))} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

// [ns] -> "1.23 ms"
function time(ns) {
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([most]) => ns >= most)
    ?? [1, "ns"];
  return `${Number((ns / unit).toPrecision(3))} ${name}`;
}

// ["a", "b", "c"] -> "a, b and c"
const listed = (words) => words.length < 2 ? words.join("")
  : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;

// What controls a terminal or the direction of writing, as its code.
const printable = (text) => String(text).replace(
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

// A number of report.json, shown as text, with the path of its key so that it can be checked. In a
// path [*] adds up all elements of a list, [key=value] those that match.
class Quantity {
  constructor(value, path, show = bytes) {
    Object.assign(this, {value, path, show});
  }
  element() {
    return html("data", {class: "number", value: this.value, "data-value": this.value,
      "data-path": this.path, title: commas(this.value)}, this.show(this.value));
  }
}

// ---- the numbers behind a picture: a table that opens -------------------------------------------

const MOST_ROWS = 2000;

// `rows`: lists of texts, numbers and quantities. The table is built when it opens.
function numberTable(title, headings, rows, open = false) {
  const cell = (value) => html("td", {class: typeof value === "number" ? "number" : null},
    value instanceof Quantity ? value.element() : isNumber(value) ? commas(value) : value ?? "");
  const box = html("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": title});
  const details = html("details", {ontoggle: () => {
    if (!box.childElementCount) box.append(html("table", {},
      html("tr", {}, headings.map((heading) => html("th", {scope: "col"}, heading))),
      rows.slice(0, MOST_ROWS).map((row) => html("tr", {}, row.map(cell)))));
  }}, html("summary", {}, title), box, rows.length <= MOST_ROWS ? ""
    : note(`The first ${commas(MOST_ROWS)} of ${commas(rows.length)} rows; report.json has all.`));
  details.open = open;
  return details;
}

// ---- the report ---------------------------------------------------------------------------------

const [report, sources] = ["report", "sources"].map((id) =>
  JSON.parse(document.getElementById(id).textContent));
const STAGES = ["ddp", "zero1", "zero2", "zero3"];

// What the document says about one stage.
class StageResult {
  constructor(stage, data, path) {
    Object.assign(this, {stage, data, path, failed: data.out_of_memory,
      memory: data.memory ?? [], traffic: data.communication ?? []});
  }
  // The rows of a list as quantities: those of all `keys` that are numbers, else "".
  rows(list, keys, show = bytes) {
    return this[list].map((row, i) => keys.map((key) => isNumber(row[key])
      ? new Quantity(row[key], `${this.path}.${list === "traffic" ? "communication" : list}[${i
      }].${key}`, key.includes("bytes") ? show : commas) : ""));
  }
  // Bytes of rank 0 in steady state, in one pool, of one use or of all.
  kept({pool = "device", use = null} = {}) {
    const rows = this.memory.filter((row) => row.rank === 0 && row.pool === pool &&
      (use === null || row.use === use));
    const of = `rank=0,pool=${pool}${use === null ? "" : `,use=${use}`}`;
    return isNumber(rows[0]?.rest_bytes) ? new Quantity(sum(rows.map((row) => row.rest_bytes)),
      `${this.path}.memory[${of}].rest_bytes`) : null;
  }
  // The highest sum of all uses of a rank.
  peak(rank = 0, predicted = false, pool = "device") {
    const name = pool === "host" ? "peak_host_bytes" : "peak_total_bytes";
    const key = !predicted && this.data[name] ? name : `predicted_${name}`;
    const at = isNumber(this.data[key]?.[rank]) ? rank : 0, value = this.data[key]?.[at];
    return isNumber(value) ? new Quantity(value, `${this.path}.${key}[${at}]`) : null;
  }
  // Bytes that rank 0 sends in one step.
  sent() {
    const key = "sent_bytes_per_rank";
    return isNumber(this.traffic[0]?.[key]) ? new Quantity(
      sum(this.traffic.map((row) => row[key])), `${this.path}.communication[*].${key}`) : null;
  }
}

const results = !report.document ? [] : report.document.stages
  ? report.document.stages.map((data, i) =>
    new StageResult(data.stage, data, `document.stages[${i}]`))
  : [new StageResult(report.document.stage, report.document, "document")];
const ranStages = results.filter((result) => !result.failed);
const resultOf = (stage) => results.find((result) => result.stage === stage);

// The report as the sections read it: which stages there are, and where their numbers are. Every
// number that a section shows carries the path of its key, so that it can be checked.

const report = JSON.parse(document.getElementById("report").textContent);
const sources = JSON.parse(document.getElementById("sources").textContent);

const STAGES = ["ddp", "zero1", "zero2", "zero3"];
const planned = report.kind === "plan";

// A number with the text that is shown and the key of report.json that it comes from. In a path,
// [*] adds up all elements of a list, [key=value] those that match.
class Quantity {
  constructor(value, path, show = bytes) {
    this.value = value;
    this.path = path;
    this.show = show;
  }
  element(attributes = {}) {
    return html("data", {...attributes, value: this.value, "data-value": this.value,
      "data-path": this.path, title: `${commas(this.value)}`}, this.show(this.value));
  }
}

// What the document says about one stage.
class StageResult {
  constructor(stage, data, path) {
    this.stage = stage;
    this.data = data;
    this.path = path;
  }
  get failed() { return this.data.out_of_memory ?? null; }
  get memory() { return this.data.memory ?? []; }
  get traffic() { return this.data.communication ?? []; }

  // The key of a row that holds the measurement, or in a plan the prediction. null: neither.
  key(row, name) {
    if (isNumber(row[name])) return name;
    return isNumber(row[`predicted_${name}`]) ? `predicted_${name}` : null;
  }
  // Bytes of one rank in one pool, of one use or of all, in "rest_bytes" or "peak_bytes".
  held(name, {rank = 0, pool = "device", use = null} = {}) {
    const rows = this.memory.filter((row) => row.rank === rank && row.pool === pool &&
      (use === null || row.use === use));
    const key = rows.length ? this.key(rows[0], name) : null;
    if (key === null) return null;
    const which = `rank=${rank},pool=${pool}${use === null ? "" : `,use=${use}`}`;
    return new Quantity(sum(rows.map((row) => row[key])), `${this.path}.memory[${which}].${key}`);
  }
  // The highest sum of all uses of a rank.
  peak(rank = 0, predicted = false, pool = "device") {
    const name = pool === "host" ? "peak_host_bytes" : "peak_total_bytes";
    const measured = predicted ? null : this.data[name];
    const key = measured ? name : `predicted_${name}`;
    const value = this.data[key]?.[rank] ?? this.data[key]?.[0];
    return isNumber(value) ? new Quantity(value, `${this.path}.${key}[${
      isNumber(this.data[key][rank]) ? rank : 0}]`) : null;
  }
  // Bytes that rank 0 sends in one step.
  sent() {
    const name = "sent_bytes_per_rank";
    const key = this.traffic.length ? this.key(this.traffic[0], name) : null;
    if (key) return new Quantity(sum(this.traffic.map((row) => row[key])),
      `${this.path}.communication[*].${key}`);
    const total = this.data[`predicted_${name}`];
    return isNumber(total) ? new Quantity(total, `${this.path}.predicted_${name}`) : null;
  }
}

function stageResults() {
  const doc = report.document;
  if (!doc) return [];
  if (Array.isArray(doc.stages)) return doc.stages.map((data, i) =>
    new StageResult(data.stage, data, `document.stages[${i}]`));
  return doc.stage ? [new StageResult(doc.stage, doc, "document")] : [];
}

const results = stageResults();
const ranStages = results.filter((result) => !result.failed);
const resultOf = (stage) => results.find((result) => result.stage === stage);

// Every stage that has anything to show, in their order.
const shownStages = STAGES.filter((stage) => resultOf(stage) || report.metrics?.[stage] ||
  report.recordings.some((recording) => recording.stage === stage));

// Memory over one step: for each stage a chart of one rank and one pool, all on one scale.

const CHART = {height: 230, left: 66, right: 10, top: 16, bottom: 24};

function ticks(most, count) {
  const raw = most / count, unit = 1024 ** Math.floor(Math.log2(Math.max(1, raw)) / 10);
  const step = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 512, 1024]
    .find((candidate) => candidate * unit >= raw) * unit;
  return Array.from({length: Math.floor(most / step) + 1}, (_, i) => i * step);
}

class MemoryChart {
  constructor(recording, rank, pool, {width, most, predicted}) {
    const {wanted, names} = recording.pool(pool), {height, left, right, top, bottom} = CHART;
    const points = recording.profile(rank, wanted), peak = peakOf(points);
    const x = (k) => left + (k / recording.length) * (width - left - right);
    const y = (value) => height - bottom - (value / most) * (height - top - bottom);
    this.x = x;
    const axis = ticks(most, 4).map((value) => [
      svg("path", {class: "grid", d: `M${left} ${y(value)}H${width - right}`}),
      svg("text", {class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end"},
        shortBytes(value))]);
    const picture = svg("svg", {class: "chart", width, height, viewBox: `0 0 ${width} ${height}`,
      role: "img", "aria-label": `Memory of rank ${recording.shown[rank].rank} in one step of ${
        recording.stage}: at most ${bytes(peak.total)}`},
    axis, recording.phases().map((phase) => this.phase(phase, width)),
    layers(points, names, {x, y, end: recording.length}),
    predicted ? this.line(predicted, y, width) : null,
    svg("circle", {class: "peak", cx: x(peak.x) + 2, cy: y(peak.total), r: 4}));
    this.cursor = new CursorLine(picture, top, height - top - bottom);
    this.element = this.cursor.element;
    this.peak = peak;
    this.names = names;
  }
  phase({name, begin, end}, width) {
    const {height, top, bottom} = CHART, from = this.x(begin);
    return svg("g", {}, svg("path", {class: "grid", d: `M${from} ${top}V${height - bottom + 6}`}),
      this.x(end) - from > 6.5 * name.length + 3
        ? svg("text", {class: "tick", x: from + 3, y: height - 8}, name) : null);
  }
  line(predicted, y, width) {
    return svg("g", {}, svg("path", {class: "predicted",
      d: `M${CHART.left} ${y(predicted)}H${width - CHART.right}`}),
    svg("text", {class: "tick", x: width - CHART.right, y: y(predicted) - 5, "text-anchor": "end"},
      "predicted peak"));
  }
  show(k) { this.cursor.moveTo(this.x(k + 0.5)); }
}

function peakText(recording, chart) {
  const {peak, names} = chart, after = Math.min(Math.ceil(peak.x), recording.length - 1);
  const held = names.map((name, i) => [name, peak.values[i]]).filter(([, value]) => value > 0)
    .sort((a, b) => b[1] - a[1]).map(([name, value]) => `${name} ${bytes(value)}`);
  const when = peak.x < after
    ? `between event ${after} (${recording.text(after - 1)}) and event ${after + 1}`
    : `at event ${after + 1} (${recording.text(after)})`;
  return `Peak ${bytes(peak.total)} ${when}: ${listed(held)}.`;
}

// Stage, rank, pool, use: measured and predicted, in steady state and at the peak.
function memoryTable() {
  const headings = ["stage", "rank", "pool", "use", "steady state [B]", "predicted [B]",
    "peak of this use [B]", "predicted peak [B]"];
  const rows = ranStages.flatMap((result) => result.memory.map((row, i) => {
    const at = (key) => isNumber(row[key])
      ? new Quantity(row[key], `${result.path}.memory[${i}].${key}`) : "";
    return [result.stage, row.rank, row.pool, spaced(row.use), at("rest_bytes"),
      at("predicted_rest_bytes"), at("peak_bytes"), at("predicted_peak_bytes")];
  }));
  return rows.length ? numberTable("All bytes of memory", headings, rows, "memory.csv") : null;
}

function recordedTable() {
  const headings = ["stage", "rank", "event", "what", "series", "bytes"];
  const rows = recordings.flatMap((recording) => recording.shown.flatMap((rank) =>
    rank.memory.map(([event, series, value]) => [recording.stage, rank.rank, event + 1,
      recording.text(event), recording.data.series[series], value])));
  return numberTable("Every change in the recorded steps", headings, rows, "memory_events.csv");
}

function diskNote() {
  const disk = ranStages.map((result) => result.data.checkpoint?.disk_bytes).find(isNumber);
  if (disk) return note(`A checkpoint takes ${bytes(disk)} on disk, under every stage.`);
  const saved = report.document?.checkpoints ?? [];
  return saved.length ? note(`The last of ${plural(saved.length, "checkpoint")} takes ${
    bytes(saved[saved.length - 1].bytes)} on disk.`) : null;
}

class MemorySection {
  constructor(section) {
    this.section = section;
    this.rank = 0;
    this.pool = "device";
    this.charts = new Map();
    this.grid = html("div", {class: "grid-2"});
    const ranks = recordings[0].shown.map((rank, i) =>
      ({value: String(i), text: `rank ${rank.rank}`}));
    const host = recordings.some((recording) => recording.pool("host").names.length);
    section.append(html("div", {class: "controls"},
      selectBox("memory of", ranks, "0", (value) => { this.rank = Number(value); this.draw(); }),
      host ? buttonGroup("pool", [{value: "device", text: "device"}, {value: "host", text: "host"}],
        "device", (value) => { this.pool = value; this.draw(); })
        : note("All of it is device memory: the run keeps nothing in host memory.")), this.grid);
    this.draw();
    cursor.listeners.push(() => this.showCursor());
    new ResizeObserver(() => { if (this.section.clientWidth !== this.width) this.draw(); })
      .observe(section);
  }
  draw() {
    this.width = this.section.clientWidth;
    const two = this.width > 760 && recordings.length > 1;
    const width = two ? (this.width - 24) / 2 : this.width;
    const predictions = recordings.map((recording) => planned ? null : resultOf(recording.stage)
      ?.peak(recording.shown[this.rank]?.rank, true, this.pool)?.value);
    const most = 1.06 * Math.max(...recordings.map((r) => highest(r, this.pool)),
      ...predictions.filter(isNumber));
    this.charts.clear();
    this.grid.classList.toggle("single", !two);
    this.grid.replaceChildren(...recordings.map((recording, i) => {
      const rank = Math.min(this.rank, recording.shown.length - 1);
      const chart = new MemoryChart(recording, rank, this.pool,
        {width, most, predicted: predictions[i]});
      this.charts.set(recording.stage, chart);
      return html("figure", {}, html("figcaption", {}, html("b", {}, recording.stage),
        ` ${peakText(recording, chart)}`), chart.element, useLegend(chart.names));
    }));
    this.showCursor();
  }
  showCursor() {
    for (const [stage, chart] of this.charts) chart.show(cursor.events.get(stage) ?? 0);
  }
}

function memory(section) {
  if (recordings.length) new MemorySection(section);
  else section.append(note("No step was recorded, so there is no chart of memory."));
  section.append(...[diskNote(), memoryTable(), recordings.length ? recordedTable() : null]
    .filter(Boolean));
  if (planned)
    section.append(note("A plan computes the memory of one rank. The others hold as much."));
}

// The board of the step player: a row for each rank, a column for each unit. A cell has three bars:
// parameter, gradient, optimizer state, cut into one slice per rank. Beside it the rank's memory.

const BAR_NAMES = ["P", "G", "O"];
const STATES = {
  "#": "full", "/": "this rank's slice", ".": "not held", "0": "full, all zero",
  "+": "full, this rank's own values, not averaged yet", "~": "full, only this rank's slice valid",
};

function boardLayout(recording, width) {
  const units = recording.units.length, rows = recording.shown.length;
  const bar = rows <= 4 ? 15 : rows <= 8 ? 11 : 7, gap = rows <= 8 ? 3 : 2;
  const wide = width >= 700, gutter = 66;
  const room = width - gutter - (wide ? 200 : 6);
  const cell = Math.max(26, Math.min(190, room / units));
  const cellHeight = 3 * bar + 2 * gap;
  const pitch = cellHeight + (rows <= 4 ? 30 : rows <= 8 ? 20 : 14) + (wide ? 0 : 24);
  const right = gutter + units * cell;
  return {
    units, rows, bar, gap, wide, gutter, cell, cellHeight, pitch, right, top: 34,
    width: wide ? Math.max(width, right + 160) : Math.max(width, right + 6),
    height: 34 + rows * pitch + 40,
    inset: cell > 60 ? 8 : 3,
    x: (unit) => gutter + unit * cell,
    y: (row) => 34 + row * pitch,
  };
}

function shortened(name, room) {
  const most = Math.max(2, Math.floor(room / 7));
  return name.length <= most ? name : `${name.slice(0, most - 1)}…`;
}

// The most that a rank has held until each event, at any instant. [B]
function highWater(recording, row) {
  const most = new Array(recording.length).fill(0);
  for (const [x, values] of recording.profile(row, recording.pool("device").wanted))
    most[Math.ceil(x)] = Math.max(most[Math.ceil(x)], sum(values));
  for (let k = 1; k < most.length; ++k) most[k] = Math.max(most[k], most[k - 1]);
  return most;
}

class Board {
  // `scale`: [B] that fill the memory bar.
  constructor(recording, width, scale) {
    this.recording = recording;
    this.layout = boardLayout(recording, width);
    this.scale = scale;
    this.highs = recording.shown.map((_, row) => highWater(recording, row));
    const {width: w, height: h} = this.layout;
    this.current = svg("rect", {class: "current-unit", rx: 6, width: 0, height: h - 36});
    this.arrows = svg("g", {class: "arrows"});
    this.names = recording.units.map((unit, u) => this.unitName(unit, u));
    this.bars = recording.shown.map((_, row) => recording.units.map((_u, u) => this.cell(row, u)));
    this.memory = recording.shown.map((rank, row) => this.memoryBar(row));
    const picture = svg("svg", {class: "board", width: w, height: h, viewBox: `0 0 ${w} ${h}`,
      role: "img", "aria-label": `What each rank holds of each unit under ${recording.stage}`},
    this.current, this.names, recording.shown.map((rank, row) => this.rankName(rank, row)),
    this.memoryTitle(), this.bars.map((row) => row.map((cell) => cell.element)),
    this.memory.map((bar) => bar.element), this.arrows);
    // Texts that change often are not part of the picture: there each would cost a millisecond.
    this.element = html("div", {class: "with-texts"}, picture, this.memory.map((bar) => bar.text));
    this.element.addEventListener("pointerover", (event) => this.explain(event.target));
  }

  unitName(unit, u) {
    const {x, cell} = this.layout;
    return svg("text", {class: "unit-name", x: x(u) + cell / 2, y: 20, "text-anchor": "middle"},
      shortened(unit.name, cell), svg("title", {}, `${unit.name}: ${
        commas(unit.elements)} elements, ${commas(unit.shard)} in a slice`));
  }
  rankName(rank, row) {
    const {y, bar, gap, cellHeight} = this.layout;
    const letters = bar < 9 ? [] : BAR_NAMES.map((name, b) => svg("text", {class: "bar-name", x: 62,
      y: y(row) + b * (bar + gap) + bar - 2, "text-anchor": "end"}, name));
    return svg("g", {}, svg("text", {class: "rank-name", x: 0, y: y(row) + cellHeight / 2 + 4},
      `rank ${rank.rank}`), letters);
  }
  cell(row, u) {
    const {x, y, cell, inset, bar, gap} = this.layout;
    const width = cell - 2 * inset, n = this.recording.ranks;
    const rank = this.recording.shown[row].rank, slice = width / n;
    const bars = BAR_NAMES.map((name, b) => {
      const box = {x: x(u) + inset, y: y(row) + b * (bar + gap), height: bar};
      const cuts = slice < 5 ? "" : Array.from({length: n - 1}, (_, i) =>
        `M${box.x + (i + 1) * slice} ${box.y}v${bar}`).join("");
      return svg("g", {class: `bar bar-${name.toLowerCase()}`, "data-state": ".",
        "data-cell": `${row} ${u} ${b}`},
      svg("rect", {class: "all", ...box, width, rx: 2}),
      svg("rect", {class: "own", ...box, x: box.x + rank * slice, width: Math.max(2, slice)}),
      n > 1 && b < 2 ? svg("path", {class: "flight", "stroke-width": bar,
        d: `M${box.x} ${box.y + bar / 2}h${width}`}) : null,
      cuts ? svg("path", {class: "cuts", d: cuts}) : null);
    });
    return {element: svg("g", {class: "cell"}, bars), bars, letters: "", flying: -1};
  }

  memoryTitle() {
    const {right, wide} = this.layout;
    return wide ? svg("text", {class: "unit-name", x: right + 18, y: 20},
      `memory, up to ${bytes(this.scale)}`) : null;
  }
  memoryBar(row) {
    const {x, y, right, wide, cellHeight, width, bar} = this.layout;
    const height = wide ? 2 * bar : 8;
    const box = wide ? {x: right + 18, y: y(row)} : {x: x(0), y: y(row) + cellHeight + 6};
    const length = wide ? width - right - 24 : Math.min(width, right) - x(0) - 74;
    const parts = this.recording.data.series.map((series) => {
      const use = series.split(" ").slice(1).join(" ");
      return ["use", "texture"].map((kind) =>
        svg("rect", {class: useClass(use, kind), y: box.y, height}));
    });
    const [left, top] = wide ? [box.x, box.y + height] : [box.x + length + 6, box.y - 5];
    const text = html("span", {class: "memory-text", style: `left:${left}px;top:${top}px`});
    const frame = svg("rect", {class: "memory-frame", ...box, width: length, height, rx: 2});
    const high = svg("path", {class: "memory-high", d: `M0 ${box.y - 2}v${height + 4}`});
    return {element: svg("g", {}, frame, parts, high), parts, text, high, box, height,
      length, shown: ""};
  }

  // Shows the state after event k.
  show(k) {
    const {recording} = this, flying = recording.inFlight(k), e = recording.event(k);
    recording.shown.forEach((_, row) => {
      this.bars[row].forEach((cell, u) => {
        this.showCell(cell, recording.letters(row, u, k),
          flying.find((call) => call.unit === u)?.bar ?? -1);
        set(cell.bars[1], "data-zero", recording.sliceIsZero(u, k));
      });
      this.showMemory(row, k);
    });
    const unit = recording.units.findIndex((u) => u.name === e.unit);
    set(this.current, "x", this.layout.x(Math.max(0, unit)));
    set(this.current, "width", unit < 0 ? 0 : this.layout.cell);
    this.names.forEach((name, u) => set(name, "data-current", u === unit));
    showArrows(this, flying);
  }
  showCell(cell, letters, flying) {
    if (cell.letters !== letters)
      cell.bars.forEach((bar, b) => set(bar, "data-state", letters[b]));
    if (cell.flying !== flying)
      cell.bars.forEach((bar, b) => set(bar, "data-flying", b === flying));
    cell.letters = letters;
    cell.flying = flying;
  }
  // Memory of the device; host memory is in the section below.
  showMemory(row, k) {
    const {recording} = this, bar = this.memory[row];
    const high = bar.box.x + (this.highs[row][k] / this.scale) * bar.length;
    set(bar.high, "transform", `translate(${high.toFixed(1)} 0)`);
    const live = recording.memory(row, k);
    const key = live.join();
    if (bar.shown === key) return;
    bar.shown = key;
    let from = 0;
    recording.data.series.forEach((series, s) => {
      const held = series.startsWith("device ") ? live[s] : 0;
      for (const part of bar.parts[s]) {
        set(part, "x", (bar.box.x + (from / this.scale) * bar.length).toFixed(1));
        set(part, "width", ((held / this.scale) * bar.length).toFixed(1));
      }
      from += held;
    });
    setText(bar.text, this.layout.wide ? bytes(from) : shortBytes(from));
  }
  // A tooltip, written when the pointer gets there.
  explain(target) {
    const bar = target.closest?.("[data-cell]");
    if (!bar) return;
    const [row, u, b] = bar.getAttribute("data-cell").split(" ").map(Number);
    const zero = bar.getAttribute("data-state") === "/" && bar.getAttribute("data-zero") === "true";
    const text = `rank ${this.recording.shown[row].rank}, ${this.recording.units[u].name}: ${
      BARS[b]}: ${STATES[bar.getAttribute("data-state")]}${zero ? ", all zero" : ""}`;
    const title = bar.querySelector("title") ?? bar.appendChild(svg("title", {}));
    setText(title, text);
  }
}

// The board of the step player: a row for each rank, a column for each unit. A cell has three bars:
// parameter, gradient, optimizer state, cut into one slice per rank. Beside it the rank's memory.

const BARS = {P: "parameter", G: "gradient", O: "optimizer state"};
const STATES = {
  "#": "full", "/": "this rank's slice", ".": "not held", "0": "full, all zero",
  "+": "full, this rank's own values, not averaged yet", "~": "full, only this rank's slice valid",
};

function boardLayout(recording, width) {
  const units = recording.units.length, rows = recording.shown.length;
  const [bar, gap, space] = rows <= 4 ? [15, 3, 30] : rows <= 8 ? [11, 3, 20] : [7, 2, 14];
  const wide = width >= 700, gutter = 66, cellHeight = 3 * bar + 2 * gap;
  const cell = Math.max(26, Math.min(190, (width - gutter - (wide ? 200 : 6)) / units));
  const pitch = cellHeight + space + (wide ? 0 : 24), right = gutter + units * cell;
  return {
    rows, bar, gap, wide, cell, cellHeight, right, inset: cell > 60 ? 8 : 3,
    width: Math.max(width, right + (wide ? 160 : 6)), height: 34 + rows * pitch + 40,
    x: (unit) => gutter + unit * cell, y: (row) => 34 + row * pitch,
  };
}

const useClass = (name) => `use use-${name.replaceAll(" ", "_")}`;

// The most that a rank has held until each event, at any instant. [B]
function highWater(recording, row) {
  const most = new Array(recording.length).fill(0);
  for (const [x, values] of recording.profile(row))
    most[Math.ceil(x)] = Math.max(most[Math.ceil(x)], sum(values));
  for (let k = 1; k < most.length; ++k) most[k] = Math.max(most[k], most[k - 1]);
  return most;
}

// A tensor: "all" of it, this rank's "own" slice, the "cuts" between slices, and stripes while it
// is in flight.
function tensorBar(name, {x, y, width, height}, own, cuts, marks) {
  return svg("g", {class: `bar bar-${name.toLowerCase()}`, "data-state": ".", ...marks},
    svg("rect", {class: "all", x, y, width, height, rx: 2}),
    svg("rect", {class: "own", x: x + own[0], y, width: own[1], height}),
    svg("path", {class: "flight", "stroke-width": height, d: `M${x} ${y + height / 2}h${width}`}),
    svg("path", {class: "cuts", d: cuts.map((at) => `M${x + at} ${y}v${height}`).join("")}));
}

class Board {
  // `scale`: [B] that fill the memory bar.
  constructor(recording, width, scale) {
    const layout = boardLayout(recording, width), {width: w, height: h, right, wide} = layout;
    Object.assign(this, {recording, layout, scale});
    this.highs = recording.shown.map((_, row) => highWater(recording, row));
    this.current = svg("rect", {class: "current-unit", rx: 6, width: 0, height: h - 36});
    this.arrows = svg("g", {});
    this.names = recording.units.map((unit, u) => this.unitName(unit, u));
    this.bars = recording.shown.map((_, row) => recording.units.map((_u, u) => this.cell(row, u)));
    this.memory = recording.shown.map((_, row) => this.memoryBar(row));
    const picture = svg("svg", {class: "board", width: w, height: h, viewBox: `0 0 ${w} ${h}`,
      role: "img", "aria-label": `What each rank holds of each unit under ${recording.stage
      }; the same is below as letters`},
    this.current, this.names, recording.shown.map((rank, row) => this.rankName(rank, row)),
    wide ? svg("text", {x: right + 18, y: 20}, `memory, up to ${bytes(scale)}`) : "",
    this.bars, this.memory.map((bar) => bar.element), this.arrows);
    // Texts that change often are not part of the picture: there each would cost a millisecond.
    this.element = html("div", {class: "with-texts"}, picture, this.memory.map((bar) => bar.text));
    this.element.addEventListener("pointerover", (event) => this.explain(event.target));
  }

  unitName({name, elements, shard}, u) {
    const {x, cell} = this.layout, most = Math.max(2, Math.floor(cell / 7));
    return svg("text", {class: "unit-name", x: x(u) + cell / 2, y: 20, "text-anchor": "middle"},
      name.length <= most ? name : `${name.slice(0, most - 1)}…`,
      svg("title", {}, `${name}: ${commas(elements)} elements, ${commas(shard)} in a slice`));
  }
  rankName({rank}, row) {
    const {y, bar, gap, cellHeight} = this.layout;
    return [svg("text", {class: "rank-name", x: 0, y: y(row) + cellHeight / 2 + 4}, `rank ${rank}`),
      bar < 9 ? [] : Object.keys(BARS).map((name, b) => svg("text", {class: "bar-name", x: 62,
        y: y(row) + b * (bar + gap) + bar - 2, "text-anchor": "end"}, name))];
  }
  cell(row, u) {
    const {x, y, cell, inset, bar, gap} = this.layout, n = this.recording.ranks;
    const width = cell - 2 * inset, slice = width / n;
    const cuts = slice < 5 ? [] : Array.from({length: n - 1}, (_, i) => (i + 1) * slice);
    return Object.keys(BARS).map((name, b) => tensorBar(name,
      {x: x(u) + inset, y: y(row) + b * (bar + gap), width, height: bar},
      [this.recording.shown[row].rank * slice, Math.max(2, slice)], cuts,
      {"data-cell": `${row} ${u} ${b}`}));
  }
  memoryBar(row) {
    const {x, y, right, wide, cellHeight, width, bar} = this.layout;
    const height = wide ? 2 * bar : 8;
    const box = wide ? {x: right + 18, y: y(row)} : {x: x(0), y: y(row) + cellHeight + 6};
    const length = wide ? width - right - 24 : Math.min(width, right) - x(0) - 80;
    const parts = this.recording.uses().map((use) =>
      svg("rect", {class: useClass(use), y: box.y, height}));
    const [left, top] = wide ? [box.x, box.y + height] : [box.x + length + 6, box.y - 5];
    const high = svg("path", {class: "memory-high", d: `M0 ${box.y - 2}v${height + 4}`});
    return {parts, high, box, length, element: svg("g", {},
      svg("rect", {class: "memory-frame", ...box, width: length, height, rx: 2}), parts, high),
    text: html("span", {class: "memory-text", style: `left:${left}px;top:${top}px`})};
  }

  // Shows the state after event k.
  show(k) {
    const {recording} = this, flying = recording.inFlight(k), e = recording.event(k);
    recording.shown.forEach((_, row) => {
      this.bars[row].forEach((bars, u) => {
        const letters = recording.letters(row, u, k);
        const moving = flying.find((call) => call.unit === u)?.bar;
        bars.forEach((bar, b) => {
          set(bar, "data-state", letters[b]);
          set(bar, "data-flying", recording.ranks > 1 && b === moving);
        });
        set(bars[1], "data-zero", recording.sliceIsZero(u, k));
      });
      this.showMemory(row, k);
    });
    const unit = recording.units.findIndex((u) => u.name === e.unit);
    set(this.current, "x", this.layout.x(Math.max(0, unit)));
    set(this.current, "width", unit < 0 ? 0 : this.layout.cell);
    this.names.forEach((name, u) => set(name, "data-current", u === unit));
    this.showArrows(flying);
  }
  // Memory of the device; host memory is in the section below.
  showMemory(row, k) {
    const {parts, high, box, length, text} = this.memory[row];
    const pixels = (value) => (value / this.scale) * length;
    set(high, "transform", `translate(${(box.x + pixels(this.highs[row][k])).toFixed(1)} 0)`);
    const live = this.recording.memory(row, k).filter((_, s) =>
      this.recording.data.series[s].startsWith("device "));
    parts.forEach((part, i) => {
      set(part, "x", (box.x + pixels(sum(live.slice(0, i)))).toFixed(1));
      set(part, "width", pixels(live[i]).toFixed(1));
    });
    setText(text, bytes(sum(live)));
  }
  // A tooltip, written when the pointer gets there.
  explain(target) {
    const bar = target.closest?.("[data-cell]");
    if (!bar) return;
    const [row, u, b] = bar.dataset.cell.split(" ").map(Number), {state, zero} = bar.dataset;
    const title = bar.querySelector("title") ?? bar.appendChild(svg("title", {}));
    setText(title, `rank ${this.recording.shown[row].rank}, ${this.recording.units[u].name}: ${
      Object.values(BARS)[b]}: ${STATES[state]}${state === "/" && zero === "true" ? ", all zero"
      : ""}`);
  }

  // Arrows of the collectives in flight: in a ring, rank r sends to rank (r + 1) mod N.
  showArrows(calls) {
    const key = calls.map((call) => call.begin).join();
    if (this.arrowsOf === key) return;
    this.arrowsOf = key;
    const {x, cell, width, height} = this.layout;
    this.arrows.replaceChildren(...calls.map((call, i) => {
      const middle = call.unit < 0 ? 48 : x(call.unit) + cell / 2;
      const text = `${call.what}: each rank sends ${bytes(call.bytes)}`, w = text.length * 7 + 20;
      const left = Math.max(0, Math.min(width - w, middle - w / 2)), top = height - 24 - 22 * i;
      return svg("g", {class: `ring ring-${"pg"[call.bar]}`},
        this.recording.ranks > 1 ? this.ring(call, middle) : [],
        svg("rect", {class: "pill", x: left, y: top, width: w, height: 20, rx: 10}),
        svg("text", {class: "pill-text", x: left + w / 2, y: top + 14, "text-anchor": "middle"},
          text));
    }));
  }
  // The ring of one call in the column around x.
  ring(call, x) {
    const {rows, y, cellHeight, cell, wide} = this.layout, below = cellHeight + (wide ? 3 : 20);
    const arrow = (path, at, to) => [svg("path", {class: "line", d: path}),
      svg("path", {class: "head", d: `M${at - 4} ${to - 6}L${at} ${to}L${at + 4} ${to - 6}z`})];
    const parts = Array.from({length: rows - 1}, (_, row) =>
      arrow(`M${x} ${y(row) + below}V${y(row + 1) - 9}`, x, y(row + 1) - 4));
    const last = y(rows - 1) + below, top = y(0) - 8;
    if (rows < this.recording.ranks)   // the other ranks are not shown
      return [parts, arrow(`M${x} ${last}v9`, x, last + 14)];
    const side = call.unit < 0 ? x + 9 : x + cell / 2 - 1;
    return [parts, rows < 2 ? [] : arrow(`M${x} ${last}q0 8 6 8H${side - 6}q6 0 6 -6V${
      top + 6}q0 -6 -6 -6H${x + 4}q-4 0 -4 2`, x, top + 7)];
  }
}

function boardLegend() {
  const entry = (bar, state, text, marks = {}) => html("li", {},
    svg("svg", {width: 44, height: 12, "aria-hidden": "true"}, tensorBar(bar,
      {x: 1, y: 1, width: 42, height: 10}, [10.5, 10.5], [10.5, 21, 31.5],
      {"data-state": state, ...marks})), text);
  return html("ul", {class: "legend", "aria-label": "Legend"},
    entry("P", "#", "P parameters, full"), entry("P", "/", "this rank's slice only"),
    entry("P", ".", "not held"), entry("P", "~", "full, other slices not valid"),
    entry("P", "~", "in flight", {"data-flying": "true"}),
    entry("G", "0", "G gradient, all zero"),
    entry("G", "/", "this rank's slice, still zero", {"data-zero": "true"}),
    entry("G", "+", "not averaged yet"), entry("G", "#", "averaged"),
    entry("O", "#", "O optimizer state"),
    html("li", {}, svg("svg", {width: 10, height: 16, "aria-hidden": "true"},
      svg("path", {class: "memory-high", d: "M5 1v14"})), "most memory so far"));
}

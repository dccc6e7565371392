// The pictures of memory, time and training.

// Bands of the phases of a step behind a picture; `at`: from an event to pixels.
function phaseBands(recording, at, width, height) {
  return recording.phases().map(({name, begin, end}, i) => {
    const x = at(begin), wide = Math.max(0, (end === recording.length ? width : at(end)) - x);
    return svg("g", {}, svg("rect", {class: `phase-${i % 2}`, x, y: 0, width: wide, height},
      svg("title", {}, name)), wide > 8 * name.length + 8
      ? svg("text", {class: "phase-name", x: x + 5, y: 14}, name) : "");
  });
}

// ---- memory -------------------------------------------------------------------------------------

// Outlines of the layers of a stack, the lowest first. `points`: [x, [value of each layer]]; a
// value holds until the next point, the last one until `end`. `x` and `y` map to pixels.
function layerPaths(points, {x, y, end}) {
  const edges = Array.from({length: points[0][1].length + 1}, () => []);
  points.forEach(([at, values], i) => {
    const span = [x(at), x(points[i + 1]?.[0] ?? end)];
    edges.forEach((edge, layer) => span.forEach((pixel) =>
      edge.push(`${pixel.toFixed(1)} ${y(sum(values.slice(0, layer))).toFixed(1)}`)));
  });
  return edges.slice(1).map((edge, layer) =>
    `M${edge.join("L")}L${[...edges[layer]].reverse().join("L")}z`);
}

// The instant at which a rank holds most: {x, values, total}.
const peakOf = (points) => points.map(([x, values]) => ({x, values, total: sum(values)}))
  .reduce((best, point) => point.total > best.total ? point : best);

// Memory of a rank along a step, stacked by use. `most`: [B] at the top; `at`: from an event to
// pixels. With `left`, there is an axis, the peak is marked, and `predicted` [B] is a line.
function memoryPicture(recording, {rank = 0, pool = "device", width, height, most, at, left = 0,
  predicted = null}) {
  const points = recording.profile(rank, pool), peak = peakOf(points), uses = recording.uses(pool);
  const y = (value) => height - 4 - ((height - 28) * value) / most;
  const paths = layerPaths(points, {x: at, y, end: recording.length});
  const tick = 2 ** Math.floor(Math.log2(most / 2));
  const line = (kind, value) => svg("path", {class: kind, d: `M${left} ${y(value)}H${width}`});
  return svg("svg", {class: left ? "chart" : "mountain", width, height, role: "img",
    viewBox: `0 0 ${width} ${height}`, "aria-label": `Memory of rank ${recording.shown[rank].rank
    } in one step of ${recording.stage}: at most ${bytes(peak.total)}`},
  phaseBands(recording, at, width, height), [0, 1, 2, 3].map((i) => i * tick)
    .filter((value) => left && value <= most).map((value) => [line("grid", value),
      svg("text", {class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end"},
        bytes(value))]),
  uses.map((use, layer) => svg("path", {class: useClass(use), d: paths[layer]},
    svg("title", {}, use))),
  predicted && left ? [line("predicted", predicted), svg("text", {class: "tick", x: width,
    y: y(predicted) - 5, "text-anchor": "end"}, "predicted peak")] : "",
  left ? svg("circle", {class: "peak", cx: at(peak.x) + 2, cy: y(peak.total), r: 4}) : "");
}

function peakText(recording, rank, pool) {
  const peak = peakOf(recording.profile(rank, pool));
  const after = Math.min(Math.ceil(peak.x), recording.length - 1);
  const held = recording.uses(pool).map((name, i) => [peak.values[i], `${name} ${
    bytes(peak.values[i])}`]).filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]);
  const when = peak.x < after
    ? `between event ${after} (${recording.text(after - 1)}) and event ${after + 1}`
    : `at event ${after + 1} (${recording.text(after)})`;
  return ` Peak ${bytes(peak.total)} ${when}: ${listed(held.map(([, text]) => text))}.`;
}

// ---- time ---------------------------------------------------------------------------------------

// The spans of a list without overlaps, in order.
function union(list) {
  const merged = [];
  for (const [from, to] of [...list].sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (to <= from) continue;
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

// One rank's times [ns] as spans: waiting for other ranks, waiting for the data of a call to move
// (exposed), and calls in flight. Else it computes.
function spans(recording, i) {
  const {ns, calls} = recording.shown[i], start = ns[0], end = ns.at(-1);
  const wait = [], exposed = [], flight = [];
  for (const [first, last, waits, met, moved] of calls) {   // -1: before or after this step
    const begin = first < 0 ? start : ns[first], to = last < 0 ? end : ns[last];
    const within = (at, from) => Math.max(from, Math.min(at, to));
    if (last >= 0) {
      const from = within(waits || to, begin), joined = within(met, from);
      wait.push([from, joined]);
      exposed.push([joined, to]);
    }
    flight.push([begin, moved ? within(moved, begin) : to, first < 0 ? last : first]);
  }
  const length = (list) => sum(union(list).map(([a, b]) => b - a));
  const stopped = length([...wait, ...exposed]), waiting = length(wait);
  return {wait, exposed, flight, start, end,
    times: [end - start, end - start - stopped, waiting, stopped - waiting, length(flight)]};
}

function timeline(recording, width) {
  const all = recording.shown.map((_, i) => spans(recording, i)), left = 56, top = 24;
  const start = Math.min(...all.map((rank) => rank.start));
  const end = Math.max(...all.map((rank) => rank.end)), height = top + 34 * all.length + 24;
  const x = (ns) => left + ((ns - start) / Math.max(1, end - start)) * (width - left - 8);
  const {ns} = recording.shown[0], parts = width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
  const boxes = (list, kind, y, h, text) => list.filter(([a, b]) => b > a).map(([a, b, call]) =>
    svg("rect", {class: kind, x: x(a), y, width: Math.max(0.4, x(b) - x(a)), height: h},
      svg("title", {}, `${text ?? recording.text(call)}: ${time(b - a)}`)));
  return svg("svg", {class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`,
    role: "img", "aria-label": `Timeline of one step of ${recording.stage}; its sums are below`},
  phaseBands(recording, (k) => x(ns[Math.min(k, recording.length - 1)]), width, height - 22),
  parts.map((part) => svg("text", {class: "tick", y: height - 6, x: x(start + part * (end - start)),
    "text-anchor": ["start", "end"][part] ?? "middle"}, time(part * (end - start)))),
  all.map((rank, i) => {
    const y = top + i * 34;
    return [svg("text", {class: "tick", x: 0, y: y + 13}, `rank ${recording.shown[i].rank}`),
      boxes([[rank.start, rank.end]], "computing", y, 16, "computes"),
      boxes(rank.wait, "waiting", y, 16, "waits for other ranks"),
      boxes(rank.exposed, "exposed", y, 16, "waits for data"),
      boxes(rank.flight, "flight-lane", y + 18, 6)];
  }));
}

// ---- training -----------------------------------------------------------------------------------

// A line chart over steps. `series`: [{name, points: [[step, value or null]]}]. A null leaves a
// gap. Equal lines cover each other: then the first is the widest, so that all can be seen.
function lineChart(title, series, width, show) {
  const height = 210, left = 70, right = 14, top = 12, bottom = 28;
  const points = series.flatMap((line) => line.points);
  const values = points.map((point) => point[1]).filter(isNumber);
  if (!values.length) return note(`${title}: no finite number.`);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - Math.abs(low) / 10, high + (Math.abs(high) / 10 || 1)];
  const first = Math.min(...points.map((point) => point[0]));
  const last = Math.max(...points.map((point) => point[0]));
  const x = (step) => first === last ? (left + width - right) / 2
    : left + ((step - first) / (last - first)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const ends = first === last ? [[first, "middle"]] : [[first, "start"], [last, "end"]];
  const texts = series.map((line) => JSON.stringify(line.points));
  return svg("svg", {class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title} by step, from ${show(low)} to ${show(high)}`},
  [low, (low + high) / 2, high].map((value) => [
    svg("path", {class: "grid", d: `M${left} ${y(value)}H${width - right}`}),
    svg("text", {class: "tick", x: left - 10, y: y(value) + 4, "text-anchor": "end"},
      show(value))]),
  ends.map(([step, anchor]) => svg("text", {class: "tick", x: x(step), y: height - 8,
    "text-anchor": anchor}, `step ${step}`)),
  series.map((line, i) => svg("path", {class: `curve stage-${line.name}`,
    d: curve(line.points, x, y), "stroke-width": (line.points.length > 1 ? 2.5 : 8) +
      3 * texts.slice(i + 1).filter((text) => text === texts[i]).length},
  svg("title", {}, line.name))));
}

// A single number between two gaps is a dot.
function curve(points, x, y) {
  const text = points.map(([step, value]) =>
    isNumber(value) ? `${x(step).toFixed(1)} ${y(value).toFixed(1)}` : "").join("L");
  return text.split(/L{2,}|^L|L$/).filter(Boolean)
    .map((run) => `M${run}${run.includes("L") ? "" : "h.01"}`).join("");
}

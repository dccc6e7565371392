// The timeline of the recorded step: what each rank computed, when it waited, and what was in
// flight meanwhile.

// One rank's times [ns] as spans: computing, waiting for other ranks, waiting for the data of a
// call to move (exposed), and in flight while the rank computes.
function spans(recording, i) {
  const rank = recording.shown[i], {ns, calls} = rank;
  const start = ns[0], end = ns[ns.length - 1], found = {wait: [], exposed: [], flight: []};
  for (const [first, last, wait, met, moved] of calls) {   // -1: before or after this step
    const begin = first < 0 ? start : ns[first], to = last < 0 ? end : ns[last];
    if (last >= 0) {
      const from = Math.max(begin, Math.min(wait || to, to));
      const joined = Math.max(from, Math.min(met, to));
      found.wait.push([from, joined]);
      found.exposed.push([joined, to]);
    }
    const landed = moved ? Math.max(begin, Math.min(moved, to)) : to;
    found.flight.push([begin, landed, first < 0 ? last : first]);
  }
  const length = (list) => sum(union(list).map(([a, b]) => b - a));
  const stopped = union([...found.wait, ...found.exposed]);
  return {...found, start, end, total: end - start, waiting: length(found.wait),
    exposing: length(stopped) - length(found.wait), computing: end - start - length(stopped),
    flying: length(found.flight)};
}

function union(list) {
  const merged = [];
  for (const [from, to] of [...list].sort((a, b) => a[0] - b[0])) {
    const last = merged[merged.length - 1];
    if (to <= from) continue;
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

const callName = (recording, k) => `${recording.event(k).what} ${recording.event(k).detail}`;

function timeline(recording, width) {
  const all = recording.shown.map((_, i) => spans(recording, i));
  const start = Math.min(...all.map((rank) => rank.start));
  const end = Math.max(...all.map((rank) => rank.end));
  const left = 56, pitch = 34, top = 22, height = top + pitch * all.length + 24;
  const x = (ns) => left + ((ns - start) / Math.max(1, end - start)) * (width - left - 8);
  const boxes = (list, kind, y, h, text) => list.filter(([a, b]) => b > a).map(([a, b, first]) =>
    svg("rect", {class: kind, x: x(a), y, width: Math.max(0.4, x(b) - x(a)), height: h},
      svg("title", {}, `${text ?? callName(recording, first)}: ${time(b - a)}`)));
  const phases = recording.phases().map(({name, begin, end: last}) => {
    const ns = recording.shown[0].ns, from = x(ns[begin]);
    const to = x(ns[Math.min(last, recording.length - 1)]);
    return svg("g", {}, svg("path", {class: "grid", d: `M${from} 8V${height - 22}`}),
      to - from > 7 * name.length ? svg("text", {class: "tick", x: from + 3, y: 14}, name) : null);
  });
  const axis = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("text", {class: "tick", y: height - 6,
    x: left + part * (width - left - 8), "text-anchor": part === 1 ? "end" : part ? "middle"
      : "start"}, time(part * (end - start))));
  return svg("svg", {class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`,
    role: "img", "aria-label": `Timeline of one step of ${recording.stage}`}, phases, axis,
  all.map((rank, i) => {
    const y = top + i * pitch;
    return svg("g", {}, svg("text", {class: "tick", x: 0, y: y + 13}, `rank ${
      recording.shown[i].rank}`),
    svg("rect", {class: "computing", x: x(rank.start), y, height: 16,
      width: Math.max(0, x(rank.end) - x(rank.start))}),
    boxes(rank.wait, "waiting", y, 16, "waits for other ranks"),
    boxes(rank.exposed, "exposed", y, 16, "waits for data"),
    boxes(rank.flight, "flight-lane", y + 18, 6));
  }));
}

function timeTable() {
  const headings = ["stage", "rank", "step [ms]", "computing [ms]", "waiting for ranks [ms]",
    "exposed [ms]", "in flight [ms]"];
  const ms = (ns) => Number((ns / 1e6).toFixed(3));
  const rows = recordings.filter((recording) => recording.data.timed).flatMap((recording) =>
    recording.shown.map((rank, i) => {
      const s = spans(recording, i);
      return [recording.stage, rank.rank, ms(s.total), ms(s.computing), ms(s.waiting),
        ms(s.exposing), ms(s.flying)];
    }));
  return numberTable("Times by rank", headings, rows, "time.csv");
}

const TIME_LEGEND = [["computing", "computes"], ["waiting", "waits for other ranks"],
  ["exposed", "waits for data to arrive (exposed)"],
  ["flight-lane", "a collective is in flight"]];

function predictedTimes() {
  const rows = results.filter((result) => isNumber(result.data.compute_seconds)).map((result) => {
    const at = (key) => new Quantity(result.data[key], `${result.path}.${key}`,
      (value) => digits(value, 4));
    return [result.stage, ...["seconds_per_step", "compute_seconds", "communication_seconds",
      "exposed_communication_seconds"].map(at)];
  });
  return rows.length ? numberTable("Predicted by the clock", ["stage", "step [s]", "computing [s]",
    "communication [s]", "exposed [s]"], rows, "clock.csv", true) : null;
}

function timeSection(section) {
  const timed = recordings.filter((recording) => recording.data.timed);
  const predicted = predictedTimes();
  if (predicted) section.append(predicted);
  if (!timed.length) return section.append(note(planned
    ? "A dry run computes nothing and has no times. Its events are in their real order."
    : "No step was recorded with times."));
  const holder = html("div", {}), legend = html("ul", {class: "legend"}, TIME_LEGEND.map(
    ([kind, text]) => html("li", {}, svg("svg", {class: "swatch", width: 16, height: 12,
      "aria-hidden": "true"}, svg("rect", {class: kind, width: 16, height: 12})), text)));
  let stage = timed[timed.length - 1].stage, width = 0;
  const show = () => {
    width = section.clientWidth;
    holder.replaceChildren(timeline(recordingOf(stage), Math.max(280, width)));
  };
  section.append(timed.length > 1 ? buttonGroup("stage", timed.map((recording) =>
    ({value: recording.stage, text: recording.stage})), stage,
  (value) => { stage = value; show(); }) : "", legend, holder, timeTable());
  const {cores} = report.about, {ranks} = timed[0];
  if (cores && ranks > cores) section.append(note(`${plural(ranks, "rank")} share ${
    plural(cores, "core")}: waiting here shows the sharing, not the network.`));
  show();
  new ResizeObserver(() => { if (section.clientWidth !== width) show(); }).observe(section);
}

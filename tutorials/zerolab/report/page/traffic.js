// What each rank sends in one step: by collective, by unit, and between pairs of ranks.

function collectiveTable() {
  const headings = ["stage", "collective", "of", "calls", "elements", "sent by each rank [B]",
    "predicted [B]"];
  const rows = ranStages.flatMap((result) => result.traffic.map((row, i) => {
    const at = (key) => isNumber(row[key])
      ? new Quantity(row[key], `${result.path}.communication[${i}].${key}`) : "";
    return [result.stage, row.collective, row.purpose, at("calls"), at("elements"),
      at("sent_bytes_per_rank"), at("predicted_sent_bytes_per_rank")];
  }));
  return rows.length ? numberTable("By collective, of rank 0", headings, rows, "traffic.csv", true)
    : null;
}

// Bytes and calls of a stage by name of the unit; what belongs to no unit has its own name.
function byUnit(recording) {
  const found = new Map(recording.units.map((unit) => [unit.name, {calls: 0, bytes: 0}]));
  for (const call of recording.counted) {
    const name = call.unit < 0 ? call.detail : recording.units[call.unit].name;
    const entry = found.get(name) ?? {calls: 0, bytes: 0};
    found.set(name, {calls: entry.calls + 1, bytes: entry.bytes + call.bytes});
  }
  return found;
}

function unitTable() {
  const all = recordings.map(byUnit);
  const names = [...new Set(all.flatMap((found) => [...found.keys()]))];
  const headings = ["unit or name", ...recordings.flatMap((recording) =>
    [`${recording.stage} calls`, `${recording.stage} sent [B]`])];
  const rows = names.map((name) => [name, ...all.flatMap((found) =>
    [found.get(name)?.calls ?? 0, found.get(name)?.bytes ?? 0])]);
  return numberTable("By unit, of rank 0, in the recorded step", headings, rows,
    "traffic_units.csv");
}

// Bars by purpose, one for each stage.
function trafficBars() {
  const most = Math.max(1, ...ranStages.map((result) => result.sent()?.value ?? 0));
  return html("div", {class: "traffic-bars"}, ranStages.map((result, i) => {
    const parts = result.traffic.map((row) => ({text: `${row.collective} of ${row.purpose}`,
      purpose: row.purpose, value: row[result.key(row, "sent_bytes_per_rank")]}));
    return html("div", {class: "traffic-row"}, html("b", {}, result.stage),
      html("div", {class: "track"}, parts.filter((part) => part.value > 0).map((part) =>
        html("span", {class: `part part-${part.purpose}`,
          title: `${part.text}: ${bytes(part.value)}`,
          style: `width:${(100 * part.value) / most}%`},
        part.value > 0.16 * most ? html("span", {}, part.text) : null))),
      result.sent()?.element({class: "number"}));
  }));
}

// Who sends to whom. Rank r sends to the next one in the ring.
function matrix(recording) {
  const total = sum(recording.counted.map((call) => call.bytes)), shown = recording.shown;
  const cell = (from, to) => (from + 1) % recording.ranks === to && recording.ranks > 1 ? total : 0;
  return html("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Matrix of ranks"},
    html("table", {class: "matrix"},
      html("caption", {}, `${recording.stage}, the recorded events: rows send, columns receive`),
      html("tr", {}, html("th", {scope: "col"}, "from \\ to"), shown.map((rank) =>
        html("th", {scope: "col"}, rank.rank))),
      shown.map((from) => html("tr", {}, html("th", {scope: "row"}, from.rank), shown.map((to) => {
        const value = cell(from.rank, to.rank);
        return html("td", {class: value ? "filled" : "empty",
          title: `${from.rank} to ${to.rank}: ${commas(value)} B`},
        value ? shortBytes(value) : "·");
      })))));
}

function traffic(section) {
  if (ranStages.some((result) => result.traffic.length)) section.append(trafficBars());
  else section.append(note(report.document ? "There are no totals by collective."
    : "The run did not end, so there are no totals of traffic."));
  const table = collectiveTable();
  if (table) section.append(table);
  if (!recordings.length) return section.append(note("No step was recorded, so nothing is known " +
    "about units and pairs of ranks."));
  section.append(unitTable());
  if (recordings[0].ranks === 1)
    return section.append(note("There is one rank: it sends nothing."));
  const holder = html("div", {});
  const show = (stage) => holder.replaceChildren(matrix(recordingOf(stage)));
  const last = recordings[recordings.length - 1].stage;
  section.append(html("h3", {}, "Between ranks"), note("By the ring formula each rank sends to " +
    "the next. What carries the bytes may take another way; their number is the same."),
  recordings.length > 1 ? buttonGroup("stage", recordings.map(({stage}) =>
    ({value: stage, text: stage})), last, show) : "", holder);
  show(last);
}

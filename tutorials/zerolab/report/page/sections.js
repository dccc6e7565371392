// The sections of the page, and what puts them there.

// ---- summary: four big numbers, each with the formula beside it, and one row per stage ----------

// `rows`: [{stage, quantity or text, formula}]; bars show quantities beside each other.
function card(title, big, caption, rows, foot = "") {
  const most = Math.max(1, ...rows.map((row) => row.quantity?.value ?? 0));
  const bar = ({stage, quantity}) => quantity && rows.length > 1 ? html("span", {
    "aria-hidden": "true", class: `bar-of stage-${stage}`,
    style: `--part:${quantity.value / most}`}) : "";
  return html("article", {class: "card"}, html("h3", {}, title), html("p", {class: "big"}, big),
    html("p", {class: "note"}, caption), html("ul", {class: "bars"}, rows.map((row) =>
      html("li", {}, html("b", {}, row.stage), bar(row), row.quantity?.element() ?? row.text,
        row.formula ? html("code", {}, row.formula) : ""))),
    foot ? html("p", {class: "note"}, foot) : "");
}

// The same for quantities of the stages that ran. The big number is the factor between the first
// and the last: "4× less".
function bytesCard(title, rows, foot) {
  const known = rows.filter((row) => row.quantity), [first, last] = [known[0], known.at(-1)];
  const [a, b] = [first?.quantity.value, last?.quantity.value];
  const times = (value) => `${Number(value.toFixed(2))}×`;
  const big = known.length < 2 || !a || !b ? first?.quantity.element() ?? "unknown"
    : a === b ? "equal" : a > b ? `${times(a / b)} less` : `${times(b / a)} more`;
  return card(title, big, known.length > 1 ? `${last.stage} against ${first.stage}, rank 0`
    : "on rank 0", rows.length > 1 ? rows : rows.filter((row) => row.formula)
    .map(({stage, formula}) => ({stage, text: formula})), foot);
}

const KEPT = {ddp: "P + G + O", zero1: "P + G + O/N", zero2: "P + (G + O)/N",
  zero3: "(P + G + O)/N"};

function keptCard() {
  const {ranks} = report.document, of = (use) => ranStages[0].kept({use})?.value ?? 0;
  const [P, G, O] = [["parameter"], ["gradient"], ["optimizer_state", "optimizer",
    "master_weights"]].map((uses) => bytes(sum(uses.map(of))));
  const whole = ranStages[0].stage === "ddp";
  return bytesCard("Kept by each rank between steps", ranStages.map((result) => ({
    stage: result.stage, quantity: result.kept(), formula: result.kept({pool: "host"})?.value
      ? "on the device; the rest is on the host" : ranks > 1 ? KEPT[result.stage] : KEPT.ddp})),
  `P ${whole ? `= ${P} ` : ""}parameters, G ${whole ? `= ${G} ` : ""}gradients, O ${
    whole ? `= ${O} ` : ""}optimizer state${
    of("master_weights") ? " with master weights" : ""}; N = ${plural(ranks, "rank")}`);
}

function peakCard() {
  const rows = ranStages.map((result) => {
    const quantity = result.peak(), kept = result.kept();
    return {stage: result.stage, quantity, equal: quantity?.value === result.peak(0, true)?.value,
      formula: quantity && kept ? `kept + ${bytes(quantity.value - kept.value)} in the step` : ""};
  });
  const equal = rows.filter((row) => row.equal).length;
  return bytesCard("Highest memory of a rank in a step", rows,
    report.kind === "train" ? "Measured by the memory ledger."
      : `${equal === rows.length ? "Every" : `Only ${equal} of ${rows.length}`
      } peak equals its prediction to the byte.`);
}

// The formula of a stage's traffic, where it gives the bytes that were sent: norms and losses add a
// few, and settings such as reuse change it.
function sentFormula(stage, sent) {
  const recording = recordingOf(stage), {ranks, settings} = report.document;
  const full = resultOf("ddp")?.kept({use: "parameter"})?.value, A = settings?.accumulation ?? 1;
  if (!recording || !full || !sent) return "";
  const root = recording.units[0].elements / sum(recording.units.map((unit) => unit.elements));
  const once = "(N−1)/N · P", [times, text] = {
    zero2: [A + 1, `${A + 1} ${once}`],
    zero3: [3 * A - A * root, `${3 * A} ${once}, minus one gather of root`],
  }[stage] ?? [2, `2 ${once}`];
  const expected = ((ranks - 1) / ranks) * full * times;
  return Math.abs(expected - sent.value) <= 0.02 * sent.value + 1024 ? text : "";
}

function sentCard() {
  return bytesCard("Sent by each rank in a step", ranStages.map((result) => ({
    stage: result.stage, quantity: result.sent(),
    formula: sentFormula(result.stage, result.sent())})),
  report.document.ranks === 1 ? "One rank has no other to send to."
    : "A reduce-scatter or an all-gather sends (N−1)/N of the bytes, an all-reduce twice that. " +
      "Norms and losses add a few bytes.");
}

function resultCard() {
  const doc = report.document;
  if (report.kind === "train")
    return card("Loss", digits(doc.final_loss, 4), `after ${plural(doc.steps, "step")} of ${
      doc.stage}`, [], doc.model ? "Guessing every token with equal probability gives a loss of " +
        `ln V = ${digits(Math.log(doc.model.vocab_size), 4)}.` : "");
  if (!doc.bits_promised) return card("Equality", doc.ok ? "all checks passed" : "checks failed",
    "NCCL adds in an order of its choice: bits are not compared", []);
  const equal = ranStages.filter((result) => result.data.bitwise_equal);
  if (ranStages.every(({stage, data}) => stage === data.promised_equal_to))
    return card("Equal bits", "nothing to compare with", "no two stages that ran promise the same",
      [], doc.ok ? "" : "A check of this run failed.");
  return card("Equal bits", `${equal.length} of ${ranStages.length}`,
    "stages end with the losses, gradient norms and weights of their reference, bit for bit",
    ranStages.map(({stage, data}) => ({stage, formula: `weights ${data.weights_hash}`,
      text: !data.bitwise_equal ? `differs from ${data.promised_equal_to}`
        : stage === data.promised_equal_to ? "the reference" : `= ${data.promised_equal_to}`})),
    doc.ok ? "All checks of the run passed." : "A check of this run failed.");
}

function headline(section) {
  const {failure} = report;
  if (failure) section.append(html("div", {class: "failure", role: "alert"},
    html("h3", {}, failure.running ? "This run has not ended"
      : failure.interrupted ? "This run was interrupted" : "This run failed"),
    html("p", {}, `It made ${failure.after_step} of ${plural(report.steps_asked, "step")}. ` +
      "The page shows what was recorded until then."),
    html("pre", {}, printable(failure.message))));
  for (const {stage, failed: error} of results.filter((result) => result.failed))
    section.append(note(`${stage} did not fit: rank ${error.rank} asked for ${bytes(error.asked)
    } of ${error.pool} memory in ${error.phase}${error.unit ? `, unit ${error.unit}` : ""}.`));
  const made = (stage) => report.steps_made?.[stage] ?? report.metrics[stage]?.length ?? 0;
  const done = shownStages.filter(made).map((stage) => ({stage,
    text: `${plural(made(stage), "step")} of ${commas(report.steps_asked)}`}));
  section.append(html("div", {class: "cards"}, ranStages.length
    ? [resultCard(), keptCard(), peakCard(), sentCard()]
    : card("Steps done", done.length ? commas(made(done.at(-1).stage)) : "0",
      `of ${plural(report.steps_asked, "step")}`, done)), ...report.sampled.map(note));
}

// ---- memory and traffic -------------------------------------------------------------------------

function memory(section) {
  let rank = 0, pool = "device";
  const build = (width) => {
    const two = width > 760 && recordings.length > 1, wide = two ? (width - 24) / 2 : width;
    const predicted = recordings.map((recording) =>
      resultOf(recording.stage)?.peak(rank, true, pool)?.value);
    const most = 1.06 * Math.max(...recordings.map((recording) => recording.highest(pool)),
      ...predicted.filter(isNumber));
    return html("div", {class: `boards${two ? " columns" : ""}`}, recordings.map((recording, i) => {
      const shown = Math.min(rank, recording.shown.length - 1);
      const at = (k) => 74 + (k / recording.length) * (wide - 74);
      return html("figure", {}, html("figcaption", {}, html("b", {}, recording.stage),
        peakText(recording, shown, pool)), memoryPicture(recording, {rank: shown, pool,
        width: wide, height: 230, most, at, left: 74, predicted: predicted[i]}));
    }), legend(recordings[0].uses(pool).map((use) => [useClass(use), use])));
  };
  const pools = ["device", "host"].filter((one) => recordings.some((r) => r.uses(one).length));
  const choose = (value) => {
    [rank, pool] = value.split(" ");
    rank = Number(rank);
    draw();
  };
  section.append(recordings.length ? selectBox("memory of", pools.flatMap((one) =>
    recordings[0].shown.map((r, i) => [`${i} ${one}`, `rank ${r.rank}, ${one}`])), "0 device",
  choose) : note("No step was recorded, so there is no chart of memory."));
  const draw = recordings.length ? drawn(section, build) : null;
  const disk = ranStages[0]?.data.checkpoint?.disk_bytes ??
    report.document?.checkpoints?.at(-1)?.bytes;
  if (disk) section.append(note(`A checkpoint takes ${bytes(disk)} on disk.`));
  const keys = ["rest_bytes", "predicted_rest_bytes", "peak_bytes", "predicted_peak_bytes"];
  const rows = ranStages.flatMap((result) => result.rows("memory", keys).map((row, i) => {
    const {rank, pool, use} = result.memory[i];
    return [result.stage, rank, pool, spaced(use), ...row];
  }));
  if (rows.length) section.append(numberTable("All bytes of memory", ["stage", "rank", "pool",
    "use", "steady state", "predicted", "peak of this use", "predicted peak"], rows));
}

// What each rank sends in one step.
function traffic(section) {
  const stages = ranStages.filter((result) => result.traffic.length);
  if (!stages.length) return section.append(note(report.document
    ? "There are no totals by collective."
    : "The run did not end, so there are no totals of traffic."));
  const most = Math.max(1, ...stages.map((result) => result.sent().value));
  const part = (result, row) => html("span", {class: `part part-${row.purpose}`,
    style: `width:${(100 * row.sent_bytes_per_rank) / most}%`,
    title: `${row.collective} of ${row.purpose}`});
  if (stages.length > 1) section.append(html("ul", {class: "bars"}, stages.map((result) =>
    html("li", {}, html("b", {}, result.stage), html("span", {class: "track"},
      result.traffic.map((row) => part(result, row))), result.sent().element()))),
  legend([["part-parameter", "parameters"], ["part-gradient", "gradients"],
    ["part-norm", "norms and losses"]]));
  const keys = ["calls", "elements", "sent_bytes_per_rank", "predicted_sent_bytes_per_rank"];
  section.append(numberTable("By collective, of rank 0", ["stage", "collective", "of", "calls",
    "elements", "sent by each rank", "predicted"], stages.flatMap((result) =>
    result.rows("traffic", keys).map((row, i) => [result.stage, result.traffic[i].collective,
      result.traffic[i].purpose, ...row])), true));
}

// ---- time and training --------------------------------------------------------------------------

function timeSection(section) {
  if (!recordings.length) return section.append(note("No step was recorded with times."));
  let stage = recordings.at(-1).stage;
  section.append(selectBox("stage", recordings.map((recording) => recording.stage), stage,
    (value) => { stage = value; draw(); }),
  legend([["computing", "computes"], ["waiting", "waits for other ranks"],
    ["exposed", "waits for data to arrive (exposed)"],
    ["flight-lane", "a collective is in flight"]]));
  const draw = drawn(section, (width) => timeline(recordingOf(stage), Math.max(280, width)));
  section.append(numberTable("Times by rank", ["stage", "rank", "step [ms]", "computing [ms]",
    "waiting for ranks [ms]", "exposed [ms]", "in flight [ms]"], recordings.flatMap((recording) =>
    recording.shown.map(({rank}, i) => [recording.stage, rank, ...spans(recording, i).times
      .map((ns) => Number((ns / 1e6).toFixed(3)))]))));
  const {cores} = report.about, {ranks} = recordings[0];
  if (cores && ranks > cores) section.append(note(`${plural(ranks, "rank")} share ${
    plural(cores, "core")}: waiting here shows the sharing, not the network.`));
}

// [title, value of a step, significant digits, whether most runs have none].
const CURVES = [["Loss", (m) => m.loss, 4], ["Gradient norm", (m) => m.grad_norm, 3],
  ["Learning rate", (m) => m.lr, 3],
  ["Tokens per second", (m) => m.seconds > 0 ? m.tokens / m.seconds : null, 3],
  ["Held-out loss", (m) => m.eval_loss, 4, true], ["Loss scale", (m) => m.loss_scale, 4, true]];

function training(section) {
  const {metrics} = report, stages = shownStages.filter((stage) => metrics[stage]?.length);
  if (!stages.length) return section.append(note("No training step was completed."));
  const all = stages.flatMap((stage) => metrics[stage]);
  section.append(legend(stages.map((stage) => [`swatch stage-${stage}`, stage])));
  const losses = (stage) => JSON.stringify(metrics[stage].map((m) => [m.loss, m.grad_norm]));
  const equal = stages.filter((stage) => losses(stage) === losses(stages[0]));
  if (equal.length > 1) section.append(note(`${listed(equal)} have the same losses and gradient ` +
    "norms in every step, so their lines cover each other: the first is the widest."));
  for (const stage of stages) if (report.steps_made?.[stage] > metrics[stage].length)
    section.append(note(`Of ${commas(report.steps_made[stage])} steps of ${stage} ${
      metrics[stage].length} are drawn. From each of 100 equal parts: the first and last step, ` +
      "and those with the lowest and highest loss, norm and held-out loss."));
  const gaps = sum(Object.values(report.nonfinite_losses ?? {}));
  if (gaps) section.append(note(`${commas(gaps)} ${gaps === 1 ? "loss is" : "losses are"
  } not finite: the line has a gap there.`));
  drawn(section, (width) => {
    const two = width > 760;
    return html("div", {class: `boards${two ? " columns" : ""}`},
      CURVES.map(([title, value, count, optional]) => {
        const series = stages.map((name) => ({name, points: metrics[name]
          .map((m) => [m.step, value(m) ?? null]).filter((p) => !optional || p[1] !== null)}));
        const empty = series.every((line) => !line.points.some((p) => p[1] !== null));
        return empty && (optional || !all.some((m) => value(m) === null)) ? ""
          : html("figure", {}, html("figcaption", {}, html("b", {}, title)), lineChart(title,
            series, two ? (width - 24) / 2 : width, (v) => digits(v, count)));
      }));
  });
  const keys = ["loss", "grad_norm", "lr", "tokens", "seconds", "skipped", "loss_scale",
    "eval_loss"].filter((key) => all.some((m) => m[key] !== undefined));
  const shown = (value) => value === null ? "not finite" : typeof value === "boolean"
    ? (value ? "yes" : "no") : value ?? "";
  section.append(numberTable(stages.some((stage) => report.steps_made?.[stage] >
    metrics[stage].length) ? "The drawn steps" : "Every step", ["stage", "step",
    ...keys.map(spaced)], stages.flatMap((stage) => metrics[stage].map((m) =>
    [stage, m.step, ...keys.map((key) => shown(m[key]))]))));
}

// ---- the page -----------------------------------------------------------------------------------

function stepPlayer(section) {
  if (!recordings.length)
    return section.append(note("No step was recorded, so there is nothing to play."));
  section.append(note(`The events of step ${recordings[0].data.step} of this run.` +
    " Press space to play, or ? for all keys."),
  note("Columns are units, which are gathered and reduced as a whole: h.0, h.1 … are the blocks " +
    "of the model, root is the rest. In zero3 root stays complete until its backward pass has " +
    "ended."));
  listenToKeys(new Player(section));
}

function about(section) {
  const {about: a, document: doc} = report, ranks = doc?.ranks ?? recordings[0]?.ranks;
  const kind = report.kind === "train" ? "Training with " : "";
  const on = ranks ? ` on ${plural(ranks, "rank")}` : "";
  const title = `${kind}${listed(shownStages) || "A run"}${on}`;
  document.title = `${title} · zerolab`;
  setText(document.getElementById("title"), title);
  setText(document.getElementById("command"), printable(a.command));
  const facts = {command: a.command, date: a.date, zerolab: a.version, compiler: a.compiler,
    device: a.device, cores: a.cores, data: doc?.data?.name, precision: doc?.precision,
    model: doc?.model && `${doc.model.name}: ${plural(doc.parameters, "parameter")}`};
  section.append(html("dl", {class: "facts"}, Object.entries(facts).filter((fact) => fact[1])
    .map(([name, value]) => [html("dt", {}, name), html("dd", {}, printable(value))])),
  a.settings ? html("pre", {class: "settings"}, printable(a.settings)) : "");
}

for (const [id, build] of Object.entries({headline, player: stepPlayer, memory, traffic,
  time: timeSection, training, about}))
  try {
    build(document.querySelector(`#${id} > .body`));
  } catch (error) {
    reportError(error);
  }
document.documentElement.dataset.ready = "yes";

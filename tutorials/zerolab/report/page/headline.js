// Four big numbers, each with the formula beside it, and one row per stage.

// One card. `rows`: [{stage, quantity, formula}]; a bar shows each quantity beside the others.
function card(title, big, caption, rows, foot) {
  const most = Math.max(1, ...rows.map((row) => row.quantity?.value ?? 0));
  return html("article", {class: "card"}, html("h3", {}, title), html("p", {class: "big"}, big),
    html("p", {class: "caption"}, caption),
    html("ul", {class: "bars"}, rows.map((row) => html("li", {},
      html("span", {class: "stage-name"}, row.stage),
      row.quantity ? html("meter-bar", {"aria-hidden": "true", class: `stage-${row.stage}`,
        style: `--part:${row.quantity.value / most}`}) : null,
      row.quantity ? row.quantity.element({class: "number"}) : html("span", {}, row.text),
      row.formula ? html("span", {class: "formula"}, row.formula) : null))),
    foot ? html("p", {class: "foot"}, foot) : null);
}

// Micro-batches of a step. Where the document does not say, zero2 does: it reduces in each.
function accumulation(elements) {
  const reduced = ["zero2", "zero3"].flatMap((stage) => resultOf(stage)?.traffic ?? [])
    .find((row) => row.purpose === "gradient")?.elements;
  return report.document.settings?.accumulation ?? Math.max(1, Math.round(reduced / elements || 1));
}

// The factor between the first and the last stage that ran: "4.0× less".
function factor(quantities, fallback) {
  const known = quantities.filter(Boolean);
  if (known.length < 2) return known.length ? known[0].element() : fallback;
  const [first, last] = [known[0].value, known[known.length - 1].value];
  if (!first || !last || first === last) return "equal";
  return first > last ? `${(first / last).toFixed(2)}× less` : `${(last / first).toFixed(2)}× more`;
}

// "zero3 against ddp", of those that have a number; "" if there are not two.
function against(rows, of) {
  const known = rows.filter((row) => row.quantity);
  return known.length > 1 ? `${known[known.length - 1].stage} against ${known[0].stage}${of}` : "";
}

const KEPT = {ddp: "P + G + O", zero1: "P + G + O/N", zero2: "P + (G + O)/N",
  zero3: "(P + G + O)/N"};

function keptCard() {
  const formula = (result) => result.held("rest_bytes", {pool: "host"})?.value
    ? "on the device; the rest is on the host"
    : report.document.ranks > 1 ? KEPT[result.stage] : "P + G + O";
  const rows = ranStages.map((result) => ({stage: result.stage,
    quantity: result.held("rest_bytes"), formula: formula(result)}));
  const kept = (use) => ranStages[0].held("rest_bytes", {use})?.value ?? 0;
  const optimizer = ["optimizer_state", "optimizer", "master_weights"];
  const parts = ranStages[0]?.stage === "ddp"
    ? [kept("parameter"), kept("gradient"), sum(optimizer.map(kept))] : [];
  return card("Kept by each rank between steps", factor(rows.map((row) => row.quantity), "unknown"),
    against(rows, ", of rank 0") || "bytes on rank 0", rows, parts.length && parts[0]
      ? `P = ${bytes(parts[0])} parameters, G = ${bytes(parts[1])} gradients, ` +
        `O = ${bytes(parts[2])} optimizer state with master weights; N = ${
          plural(report.document.ranks, "rank")}`
      : "P parameters, G gradients, O optimizer state, in full; N ranks");
}

function peakCard() {
  const rows = ranStages.map((result) => {
    const peak = result.peak(), kept = result.held("rest_bytes");
    return {stage: result.stage, quantity: peak, formula: peak && kept
      ? `kept + ${bytes(peak.value - kept.value)} during the step` : ""};
  });
  const pairs = ranStages.flatMap((result) => {
    const [peak, predicted] = [result.peak(), result.peak(0, true)];
    return peak && predicted && !planned ? [peak.value === predicted.value] : [];
  });
  const equal = pairs.filter(Boolean).length;
  return card("Highest memory of a rank in a step", factor(rows.map((row) => row.quantity),
    "unknown"), against(rows, ", of rank 0") || "bytes on rank 0",
  rows, pairs.length ? `${equal === pairs.length ? "Every" : `Only ${equal} of ${pairs.length}`
  } peak equals its prediction to the byte.` : planned ? rows.some((row) => row.quantity)
    ? "Predicted by a dry run of the real code." : "Only model states were planned."
    : "Measured by the memory ledger.");
}

// The formula of a stage's traffic with what it gives [B]; null if the sizes are unknown.
function sentFormula(stage, ranks) {
  const recording = recordingOf(stage) ?? recordings[0];
  const full = resultOf("ddp")?.held("rest_bytes", {use: "parameter"})?.value;
  if (!recording || !full) return null;
  const elements = sum(recording.units.map((unit) => unit.elements)), A = accumulation(elements);
  const root = recording.units[0].elements / elements, ring = ((ranks - 1) / ranks) * full;
  const once = "(N−1)/N · P";
  return {
    ddp: [`2 ${once}`, 2 * ring], zero1: [`2 ${once}`, 2 * ring],
    zero2: [`${A + 1} ${once}`, (A + 1) * ring],
    zero3: [`${3 * A} ${once}, minus one gather of root`, (3 * A - A * root) * ring],
  }[stage];
}

function sentCard() {
  const {ranks} = report.document;
  const rows = ranStages.map((result) => {
    const quantity = result.sent(), formula = sentFormula(result.stage, ranks);
    const near = formula && quantity && Math.abs(formula[1] - quantity.value) <=
      0.02 * quantity.value + 1024;
    return {stage: result.stage, quantity, formula: near ? formula[0] : ""};
  });
  return card("Sent by each rank in a step", factor(rows.map((row) => row.quantity), "unknown"),
    against(rows, "") || "bytes by the ring formula", rows,
    ranks === 1 ? "One rank has no other to send to."
      : "A reduce-scatter or an all-gather sends (N−1)/N of the bytes, an all-reduce twice that. " +
        "Norms and losses add a few bytes.");
}

function equalityCard() {
  const doc = report.document;
  if (report.kind === "train") {
    return card("Loss", isNumber(doc.final_loss) ? digits(doc.final_loss, 4) : "not a number",
      `after ${plural(doc.steps, "step")} of ${doc.stage}`, [],
      doc.model?.vocab_size ? `Guessing every token with equal probability gives a loss of ln V = ${
        digits(Math.log(doc.model.vocab_size), 4)}.` : "");
  }
  if (planned) {
    return card("Parameters", new Quantity(doc.parameters, "document.parameters",
      (value) => commas(value)).element(), `Ψ of the model, on ${plural(doc.ranks, "rank")}`, [],
    "A plan is a dry run of the real code. It has no losses and no times.");
  }
  if (!doc.bits_promised) return card("Equality", doc.ok ? "all checks passed" : "checks failed",
    "NCCL adds in an order of its choice: bits are not compared", []);
  const equal = ranStages.filter((result) => result.data.bitwise_equal);
  return card("Equal bits", `${equal.length} of ${ranStages.length}`,
    "stages end with the losses, gradient norms and weights of their reference, bit for bit",
    ranStages.map(({stage, data}) => ({stage, text: data.bitwise_equal
      ? stage === data.promised_equal_to ? "the reference" : `= ${data.promised_equal_to}`
      : `differs from ${data.promised_equal_to}`, formula: `weights ${data.weights_hash}`})),
    doc.ok ? "All checks of the run passed." : "A check of this run failed.");
}

// How far a run came that did not end.
function stepsCard() {
  const made = (stage) => report.steps_made?.[stage] ?? report.metrics?.[stage]?.length ?? 0;
  const done = shownStages.filter(made).map((stage) => ({
    stage, text: `${plural(made(stage), "step")} of ${commas(report.steps_asked)}`}));
  return card("Steps done", done.length ? commas(made(done[done.length - 1].stage)) : "0",
    `of ${plural(report.steps_asked, "step")}${
      done.length ? ` under ${done[done.length - 1].stage}` : ""}`, done);
}

// The same numbers from the recordings, where the document is missing.
function recordedCards() {
  const of = (name, value) => recordings.map((recording) =>
    ({stage: recording.stage, quantity: new Quantity(value(recording), "recorded")}));
  const kept = of("kept", (r) => sum(r.memory(0, 0).filter((_, s) => r.pool("device").wanted[s])));
  const peak = of("peak", (r) => highest(r));
  const sent = of("sent", (r) => sum(r.counted.map((call) => call.bytes)));
  return [["Held by rank 0 when the recorded step began", kept],
    ["Highest memory of a rank in the recorded step", peak],
    ["Sent by each rank in the recorded step", sent]].map(([title, rows]) =>
    card(title, factor(rows.map((row) => row.quantity), "unknown"), "of the recorded step", rows));
}

function failureBanner({message, after_step: step, interrupted, running}) {
  return html("div", {class: "failure", role: "alert"},
    html("h3", {}, running ? "This run has not ended" : interrupted ? "This run was interrupted"
      : "This run failed"),
    html("p", {}, step > 0 ? `It made ${step} of ${plural(report.steps_asked, "step")}. ` +
      "The page shows what was recorded until then." : "It made no step."),
    html("pre", {}, printable(message)));
}

// What controls a terminal or the direction of writing, as its code.
const UNPRINTABLE = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f" +
  "\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]", "g");

function printable(text) {
  return String(text).replace(UNPRINTABLE, (c) =>
    `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function headline(section) {
  if (report.failure) section.append(failureBanner(report.failure));
  const failed = results.filter((result) => result.failed);
  for (const {stage, failed: error} of failed)
    section.append(note(`${stage} did not fit: rank ${error.rank} asked for ${bytes(error.asked)
    } of ${error.pool} memory in ${error.phase}${error.unit ? `, unit ${error.unit}` : ""}.`));
  const cards = ranStages.length ? [equalityCard(), keptCard(), peakCard(), sentCard()]
    : [stepsCard(), ...(recordings.length ? recordedCards() : [])];
  section.append(html("div", {class: "cards"}, cards));
  for (const text of report.sampled ?? []) section.append(note(text));
}

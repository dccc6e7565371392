// What happens at an event, in one plain sentence.

const PHASES = {
  data: "A micro-batch begins. Every rank reads its own sequences.",
  forward: "The forward pass begins. Every rank computes with its own sequences.",
  backward: "The backward pass begins. It visits the units in reverse order.",
  step: "The optimizer step begins.",
  evaluate: "An evaluation begins.",
};
const ALLOCATES = " Next, every rank allocates a full gradient of zeros.";
const FREES = " Next, every rank frees all parameters but its own slice.";

// `sharded`: the optimizer of a rank updates its own slice only. `coming`: the parameters of the
// unit are in flight.
function unitSentence({what, unit, method}, sharded, coming) {
  const needs = method === "unshard" ? " It needs its full parameters." : "";
  switch (what) {
    case "before_forward":
      return `Unit ${unit} is about to run forward.${needs || (coming
        ? " Its parameters are in flight: every rank waits for them first."
        : " Its parameters are complete.")}`;
    case "before_backward":
      return `Unit ${unit} is about to run backward.${
        method === "before_backward" ? ALLOCATES : needs}`;
    case "after_forward": case "after_backward":
      return `Unit ${unit} has run ${what.slice(6)}.${method === "reshard" ? FREES : ""}`;
    case "reduce":
      return `The gradient of ${unit} is complete. The ranks are about to average it.`;
    case "prefetch":
      return `Unit ${unit} is needed soon. Its parameters are requested in advance.`;
    case "update":
      return !method ? `The update of ${unit} is skipped: the gradient is not finite.`
        : sharded ? `Every rank updates its own slice of ${unit}.`
          : `Every rank updates all of ${unit}, and all get the same values.`;
    default:
      return `Unit ${unit}: ${spaced(what)}.`;
  }
}

function beginSentence({what, detail}, call, unit, ranks) {
  if (ranks === 1 && call.bar === 1)
    return `With one rank the gradient of ${unit} is already the mean.`;
  const [all, s] = ranks === 1 ? ["The only rank", "s"] : ["All ranks", ""];
  const key = `${what} ${["parameter", "gradient"][call.bar] ?? detail}`;
  const does = {
    "all_gather parameter": `gather${s} the parameters of ${unit}`,
    "reduce_scatter gradient":
      `average${s} the gradient of ${unit}; each keeps the mean of its slice`,
    "all_reduce gradient": `average${s} the gradient of ${unit}; each keeps all of the mean`,
    "all_gather gradient norm": `exchange${s} the squared norms of the gradient slices`,
    "all_gather loss": `exchange${s} the losses`,
  }[key] ?? `call${s} ${what} for ${detail}`;
  return `${all} ${does}.${call.bytes > 0 ? ` Each rank sends ${bytes(call.bytes)}.` : ""}`;
}

function endSentence({what, detail, method}, call, unit) {
  if (call.bar === 0) return `The parameters of ${unit} are complete on every rank.${
    method === "before_backward" ? ALLOCATES : ""}`;
  if (call.bar < 0) return `${what} of ${detail} has ended.`;
  if (what === "all_reduce") return `Every rank has the averaged gradient of ${unit}.`;
  if (method === "after_reduce")
    return `The gradient of ${unit} is averaged. Next, every rank adds its slice of it to the ` +
      "slice that it keeps, and frees the full gradient.";
  return `Every rank has its slice of the averaged gradient of ${unit}.`;
}

function sentence(recording, k) {
  const e = recording.event(k), {units} = recording;
  if (e.kind === KIND.phase) return PHASES[e.what] ?? `The phase ${e.what} begins.`;
  if (e.kind === KIND.unit) {
    const unit = units.findIndex((u) => u.name === e.unit);
    return unitSentence(e, unit >= 0 && recording.letters(0, unit, k)[2] === "/",
      recording.inFlight(k).some((call) => call.unit === unit && call.bar === 0));
  }
  const call = recording.calls.find(({begin, end}) => begin === k || end === k);
  const unit = units[call.unit]?.name ?? e.detail;
  return e.kind === KIND.begin ? beginSentence(e, call, unit, recording.ranks)
    : endSentence(e, call, unit);
}

// What happens at an event, in one plain sentence.

const PHASES = {
  data: "A micro-batch begins. Every rank reads its own sequences.",
  forward: "The forward pass begins. Every rank computes with its own sequences.",
  backward: "The backward pass begins. It visits the units in reverse order.",
  step: "The optimizer step begins.",
  evaluate: "An evaluation begins.",
};

const ALLOCATES = "Next, every rank allocates a full gradient of zeros.";

// `sharded`: the optimizer of a rank updates its own slice only. `coming`: the parameters of the
// unit are in flight.
function unitSentence(e, {sharded, coming}) {
  const {unit, method} = e;
  switch (e.what) {
    case "before_forward":
      return method === "unshard"
        ? `Unit ${unit} is about to run forward. It needs its full parameters.`
        : `Unit ${unit} is about to run forward. ${coming
          ? "Its parameters are in flight: every rank waits for them first."
          : "Its parameters are complete."}`;
    case "after_forward":
      return method === "reshard"
        ? `Unit ${unit} has run forward. Next, every rank frees all parameters but its own slice.`
        : `Unit ${unit} has run forward.`;
    case "before_backward":
      return method === "before_backward"
        ? `Unit ${unit} is about to run backward. ${ALLOCATES}`
        : `Unit ${unit} is about to run backward.` +
          (method === "unshard" ? " It needs its full parameters." : "");
    case "reduce":
      return `The gradient of ${unit} is complete. The ranks are about to average it.`;
    case "after_backward":
      return method === "reshard"
        ? `Unit ${unit} has run backward. Next, every rank frees all parameters but its own slice.`
        : `Unit ${unit} has run backward.`;
    case "prefetch":
      return `Unit ${unit} is needed soon. Its parameters are requested in advance.`;
    case "update":
      if (!method) return `The update of ${unit} is skipped: the gradient is not finite.`;
      return sharded ? `Every rank updates its own slice of ${unit}.`
        : `Every rank updates all of ${unit}, and all get the same values.`;
    default:
      return `Unit ${unit}: ${spaced(e.what)}.`;
  }
}

function callSentence(e, call, ranks) {
  const unit = e.detail.replace(/ (parameter|gradient)$/, "");
  const sent = call.bytes > 0 ? ` Each rank sends ${commas(call.bytes)} B.` : "";
  const all = ranks === 1 ? "The only rank" : "All ranks";
  const s = ranks === 1 ? "s" : "";
  const key = `${e.what} ${call.bar === 0 ? "parameter" : call.bar === 1 ? "gradient" : e.detail}`;
  if (ranks === 1 && call.bar === 1)
    return `With one rank the gradient of ${unit} is already the mean.`;
  switch (key) {
    case "all_gather parameter":
      return `${all} gather${s} the parameters of ${unit}.${sent}`;
    case "reduce_scatter gradient":
      return `${all} average${s} the gradient of ${unit}; each keeps the mean of its slice.${sent}`;
    case "all_reduce gradient":
      return `${all} average${s} the gradient of ${unit}; each keeps all of the mean.${sent}`;
    case "all_gather gradient norm":
      return `${all} exchange${s} the squared norms of the gradient slices.${sent}`;
    case "all_gather loss":
      return `${all} exchange${s} the losses.${sent}`;
    default:
      return `${all} call${s} ${e.what} for ${e.detail}.${sent}`;
  }
}

function endSentence(e, call) {
  const unit = e.detail.replace(/ (parameter|gradient)$/, "");
  const next = e.method === "before_backward" ? ` ${ALLOCATES}` : "";
  if (call.bar === 0) return `The parameters of ${unit} are complete on every rank.${next}`;
  if (call.bar === 1 && e.what === "all_reduce")
    return `Every rank has the averaged gradient of ${unit}.`;
  if (call.bar === 1 && e.method === "after_reduce")
    return `The gradient of ${unit} is averaged. Next, every rank adds its slice of it to the ` +
      "slice that it keeps, and frees the full gradient.";
  if (call.bar === 1) return `Every rank has its slice of the averaged gradient of ${unit}.`;
  return `${e.what} of ${e.detail} has ended.`;
}

function sentence(recording, k) {
  const e = recording.event(k), call = recording.callAt(k);
  if (e.kind === KIND.phase) return PHASES[e.what] ?? `The phase ${e.what} begins.`;
  if (e.kind === KIND.unit) {
    const unit = recording.units.findIndex((u) => u.name === e.unit);
    return unitSentence(e, {sharded: unit >= 0 && recording.letters(0, unit, k)[2] === "/",
      coming: recording.inFlight(k).some((call) => call.unit === unit && call.bar === 0)});
  }
  if (!call) return `${e.what} ${e.detail}.`;
  return e.kind === KIND.begin ? callSentence(e, call, recording.ranks) : endSentence(e, call);
}

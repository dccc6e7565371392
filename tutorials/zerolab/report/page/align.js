// Two stages at the same event. All stages share the phases and most events of units; these are
// anchors. Between two anchors each stage has further events, such as its collectives.

const ANCHORS = ["before_forward", "after_forward", "before_backward", "after_backward", "update"];

// The events at which a recording has an anchor: [{name, event}]. The name counts repetitions.
function anchors(recording) {
  const seen = new Map(), found = [];
  for (let k = 0; k < recording.length; ++k) {
    const e = recording.event(k);
    if (e.kind !== KIND.phase && !(e.kind === KIND.unit && ANCHORS.includes(e.what))) continue;
    const name = `${e.phase} ${e.unit} ${e.what}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    found.push({name: `${name} ${seen.get(name)}`, event: k});
  }
  return found;
}

// The positions through which both recordings step together: [[event, event], …]. From one shared
// anchor to the next, the one with fewer events waits at its last.
function together(a, b) {
  const inB = new Map(anchors(b).map((anchor) => [anchor.name, anchor.event]));
  const shared = [{a: 0, b: 0}];
  for (const {name, event} of anchors(a)) {
    const last = shared[shared.length - 1], other = inB.get(name);
    if (other > last.b && event > last.a) shared.push({a: event, b: other});
  }
  shared.push({a: a.length, b: b.length});
  const positions = [];
  for (let i = 0; i + 1 < shared.length; ++i) {
    const from = shared[i], to = shared[i + 1];
    for (let j = 0; j < Math.max(to.a - from.a, to.b - from.b); ++j)
      positions.push([Math.min(from.a + j, to.a - 1), Math.min(from.b + j, to.b - 1)]);
  }
  return positions;
}

// The positions of the stages that are shown: one event each.
function positionsOf(shown) {
  if (shown.length === 2) return together(shown[0], shown[1]);
  return Array.from({length: shown[0].length}, (_, k) => [k]);
}

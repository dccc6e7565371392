// One recorded step: its events, what each shown rank held after each of them, and the events at
// which two stages are at the same point of a step.

const KIND = {phase: 0, unit: 1, begin: 2, end: 3};

// The last entry of `changes` ([event, …] in order) that is not after `event`.
function lastChange(changes, event) {
  let low = 0, high = changes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (changes[middle][0] <= event) low = middle + 1;
    else high = middle;
  }
  return changes[low - 1];
}

// Changes as [event, index, value] -> for each index its own list of [event, value].
function byIndex(changes, count) {
  const lists = Array.from({length: count}, () => []);
  for (const [event, index, value] of changes) lists[index].push([event, value]);
  return lists;
}

class Recording {
  constructor(data) {
    const {stage, units, ranks, rank: shown, events} = data;
    Object.assign(this, {data, stage, units, ranks, shown, length: events.length});
    this.cells = shown.map((rank) => byIndex(rank.cells, units.length));
    this.live = shown.map((rank) => byIndex(rank.memory, data.series.length));
    this.calls = this.namedCalls();
    this.zeroSlices = units.map((unit, u) => this.whenZero(unit.name, u));
  }

  event(k) {
    const [kind, phase, unit, what, detail, method, bytes, elements] = this.data.events[k];
    const text = (i) => this.data.texts[i];
    return {kind, phase: text(phase), unit: text(unit), what: text(what), detail: text(detail),
      method: text(method), bytes, elements};
  }

  // Each collective of rank 0: its two events, what it moves, of which unit (-1: of none) and of
  // which of its bars (0: parameter, 1: gradient). One may begin before this step, or end after it.
  // `bytes` are sent by each rank: a begin has the full buffer.
  namedCalls() {
    const n = this.ranks;
    return this.shown[0].calls.map(([begin, end]) => {
      const {what, detail, bytes} = this.event(begin < 0 ? end : begin);
      const [, unit, of] = detail.match(/^(.*) (parameter|gradient)$/s) ?? [];
      const found = this.units.findIndex((u) => u.name === unit);
      return {begin, end: end < 0 ? this.length : end, what, detail, unit: found,
        bar: found < 0 ? -1 : of === "parameter" ? 0 : 1,
        bytes: end >= 0 ? this.event(end).bytes
          : Math.floor(((what === "all_reduce" ? 2 : 1) * (n - 1) * bytes) / n)};
    }).sort((a, b) => a.begin - b.begin);
  }

  // Events from which the kept gradient of a unit is zero or not: [[event, whether], …]. It is zero
  // until its first reduction of the step has ended, and again after the update.
  whenZero(name, unit) {
    const ends = this.calls.filter((call) => call.unit === unit && call.bar === 1)
      .map((call) => [call.end, false]);
    const updates = this.data.events.flatMap((_, k) => {
      const e = this.event(k);
      return e.unit === name && e.what === "update" ? [[k + 1, true]] : [];
    });
    return [[0, true], ...ends, ...updates].sort((a, b) => a[0] - b[0]);
  }
  sliceIsZero(unit, k) { return lastChange(this.zeroSlices[unit], k)[1]; }
  inFlight(k) { return this.calls.filter((call) => call.begin <= k && k < call.end); }

  // Three letters: parameter, gradient, optimizer state of a unit on the i-th shown rank.
  letters(i, unit, k) { return lastChange(this.cells[i][unit], k)?.[1] ?? "..."; }
  // [B] by series after event k.
  memory(i, k) { return this.live[i].map((changes) => lastChange(changes, k)?.[1] ?? 0); }

  // The memory of a rank in a pool along the step as [x, [bytes by use]]: after each event, and
  // between two events where it was higher than at both.
  profile(i, pool = "device") {
    const pick = (all) => all.filter((_, s) => this.data.series[s].startsWith(`${pool} `));
    const points = [], peaks = [...this.data.rank[i].peaks];
    for (let k = 0; k < this.length; ++k) {
      while (peaks.length && peaks[0][0] <= k)
        points.push([Math.max(0, k - 0.5), pick(peaks.shift()[1])]);
      points.push([k, pick(this.memory(i, k))]);
    }
    return points;
  }
  uses(pool = "device") {
    return this.data.series.filter((series) => series.startsWith(`${pool} `))
      .map((series) => spaced(series.slice(pool.length + 1)));
  }
  // The highest total of any shown rank at any instant. [B]
  highest(pool = "device") {
    return Math.max(1, ...this.shown.flatMap((_, i) =>
      this.profile(i, pool).map((point) => sum(point[1]))));
  }
  // Phases as [{name, begin, end}] in events; `end` is the event after the last.
  phases() {
    const all = [];
    for (let k = 0; k < this.length; ++k) {
      const {phase} = this.event(k);
      if (all.at(-1)?.name === phase) all.at(-1).end = k + 1;
      else all.push({name: phase, begin: k, end: k + 1});
    }
    return all;
  }
  text(k) {
    const e = this.event(k);
    if (e.kind === KIND.phase) return `${e.what} begins`;
    if (e.kind === KIND.unit) return `${e.unit}: ${e.what}`;
    return `${e.what} ${e.detail} ${e.kind === KIND.begin ? "begins" : "ends"}`;
  }

  // All stages share the phases and most events of units: [{name, event}]. The name counts
  // repetitions. Between two of these anchors each stage has further events.
  anchors() {
    const seen = new Map(), found = [];
    for (let k = 0; k < this.length; ++k) {
      const e = this.event(k);
      if (e.kind > KIND.unit || !/^$|^(before|after)_|update/.test(e.kind ? e.what : "")) continue;
      const name = `${e.phase} ${e.unit} ${e.what}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      found.push({name: `${name} ${seen.get(name)}`, event: k});
    }
    return found;
  }
}

const recordings = STAGES.flatMap((stage) =>
  report.recordings.filter((data) => data.stage === stage && data.events.length && data.rank.length)
    .map((data) => new Recording(data)));
const recordingOf = (stage) => recordings.find((recording) => recording.stage === stage);

// Every stage that has anything to show, in their order.
const shownStages = STAGES.filter((stage) =>
  resultOf(stage) || report.metrics[stage] || recordingOf(stage));

// The positions through which one or two recordings step together: [[event, …], …]. From one shared
// anchor to the next, the one with fewer events waits at its last.
function positionsOf([a, b]) {
  if (!b) return Array.from({length: a.length}, (_, k) => [k]);
  const inB = new Map(b.anchors().map((anchor) => [anchor.name, anchor.event]));
  const shared = [[0, 0]];
  for (const {name, event} of a.anchors()) {
    const other = inB.get(name);
    if (other > shared.at(-1)[1] && event > shared.at(-1)[0]) shared.push([event, other]);
  }
  shared.push([a.length, b.length]);
  return shared.slice(1).flatMap((to, i) => {
    const from = shared[i], steps = Math.max(to[0] - from[0], to[1] - from[1]);
    return Array.from({length: steps}, (_, j) =>
      from.map((first, side) => Math.min(first + j, to[side] - 1)));
  });
}

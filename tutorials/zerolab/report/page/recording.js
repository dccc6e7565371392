// One recorded step: its events, and what each shown rank held after each of them.

const KIND = {phase: 0, unit: 1, begin: 2, end: 3};
const BARS = ["parameter", "gradient", "optimizer state"];

// The last entry of `changes` ([event, …] in order) that is not after `event`.
function lastChange(changes, event) {
  let low = 0, high = changes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (changes[middle][0] <= event) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? changes[low - 1] : null;
}

// Changes as [event, index, value] -> for each index its own list of [event, value].
function byIndex(changes, count) {
  const lists = Array.from({length: count}, () => []);
  for (const [event, index, value] of changes) lists[index].push([event, value]);
  return lists;
}

// [B] that each rank sends, from the event at which a collective begins: its bytes are the full
// buffer.
function ringBytes({what, bytes: full}, ranks) {
  return Math.floor(((what === "all_reduce" ? 2 : 1) * (ranks - 1) * full) / ranks);
}

class Recording {
  constructor(data) {
    this.data = data;
    this.stage = data.stage;
    this.units = data.units;
    this.ranks = data.ranks;
    this.length = data.events.length;
    this.shown = data.rank;
    this.cells = data.rank.map((rank) => byIndex(rank.cells, data.units.length));
    this.live = data.rank.map((rank) => byIndex(rank.memory, data.series.length));
    this.calls = this.pairedCalls();
    this.zeroSlices = this.units.map((unit, u) => this.whenZero(unit.name, u));
  }

  event(k) {
    const [kind, phase, unit, what, detail, method, bytes, elements] = this.data.events[k];
    const text = (i) => this.data.texts[i];
    return {kind, phase: text(phase), unit: text(unit), what: text(what), detail: text(detail),
      method: text(method), bytes, elements};
  }

  // Each collective: its two events, what it moves and of which unit (-1: of none). Calls of one
  // name end in the order in which they began. `bytes` are sent by each rank.
  pairedCalls() {
    const open = new Map(), calls = [];
    for (let k = 0; k < this.length; ++k) {
      const e = this.event(k), name = `${e.what} ${e.detail}`;
      if (e.kind === KIND.begin) {
        const call = {begin: k, end: this.length, what: e.what, detail: e.detail,
          bytes: ringBytes(e, this.ranks), elements: e.elements, ...this.moved(e.detail)};
        calls.push(call);
        open.set(name, [...(open.get(name) ?? []), call]);
      } else if (e.kind === KIND.end) {
        const call = open.get(name)?.shift() ?? {begin: -1, what: e.what, detail: e.detail,
          elements: e.elements, ...this.moved(e.detail)};   // it began before this step
        if (call.begin < 0) calls.push(call);
        call.end = k;
        call.bytes = e.bytes;
      }
    }
    return calls;
  }
  // "h.0 parameter" -> the unit's index, and which of its three bars: 0 or 1.
  moved(detail) {
    for (const [bar, suffix] of [[0, " parameter"], [1, " gradient"]]) {
      const unit = detail.endsWith(suffix)
        ? this.units.findIndex((u) => u.name === detail.slice(0, -suffix.length)) : -1;
      if (unit >= 0) return {unit, bar};
    }
    return {unit: -1, bar: -1};
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
  // Each call counts in the step in which it ends, as in the communication log.
  get counted() { return this.calls.filter((call) => call.end < this.length); }
  inFlight(k) { return this.calls.filter((call) => call.begin <= k && k < call.end); }
  callAt(k) { return this.calls.find((call) => call.begin === k || call.end === k); }

  // Three letters: parameter, gradient, optimizer state of a unit on the i-th shown rank.
  letters(i, unit, k) { return lastChange(this.cells[i][unit], k)?.[1] ?? "..."; }
  // [B] by series after event k.
  memory(i, k) { return this.live[i].map((changes) => lastChange(changes, k)?.[1] ?? 0); }

  // The memory of a rank along the step as [x, [bytes by series]]: after each event, and between
  // two events where it was higher than at both. `wanted`: which series count.
  profile(i, wanted) {
    const pick = (all) => all.filter((_, s) => wanted[s]);
    const points = [];
    let next = 0;
    const {peaks} = this.data.rank[i];
    for (let k = 0; k < this.length; ++k) {
      for (; next < peaks.length && peaks[next][0] <= k; ++next)
        points.push([Math.max(0, k - 0.5), pick(peaks[next][1])]);
      points.push([k, pick(this.memory(i, k))]);
    }
    return points;
  }
  // The series of a pool: [{name: "gradient", index}], and which of all series they are.
  pool(name) {
    const wanted = this.data.series.map((series) => series.startsWith(`${name} `));
    const names = this.data.series.filter((_, s) => wanted[s])
      .map((series) => spaced(series.slice(name.length + 1)));
    return {wanted, names};
  }
  // Phases as [{name, begin, end}] in events; `end` is the event after the last.
  phases() {
    const all = [];
    for (let k = 0; k < this.length; ++k) {
      const {phase} = this.event(k);
      if (all.length && all[all.length - 1].name === phase) all[all.length - 1].end = k + 1;
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
}

const recordings = STAGES.flatMap((stage) =>
  report.recordings.filter((data) => data.stage === stage && data.events.length && data.rank.length)
    .map((data) => new Recording(data)));
const recordingOf = (stage) => recordings.find((recording) => recording.stage === stage);

// The highest total of any shown rank at any instant of a recording.
function highest(recording, pool = "device") {
  const {wanted} = recording.pool(pool);
  return Math.max(1, ...recording.shown.map((_, i) =>
    Math.max(...recording.profile(i, wanted).map((point) => sum(point[1])))));
}

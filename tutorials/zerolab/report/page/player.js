// The step player: one recorded step, event by event, of one stage or of two side by side.

const SPEEDS = [["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"], ["16", "16×"],
  ["1000", "max"]];

class Player {
  constructor(section) {
    this.section = section;
    this.stages = recordings.map((recording) => recording.stage);
    this.stage = this.stages[this.stages.length - 1];
    this.beside = "";
    this.position = 0;
    this.playing = false;
    this.speed = 1;
    this.controls = playerControls(this);
    this.stripBox = html("div", {class: "strips"});
    this.boards = html("div", {class: "boards"});
    this.sources = html("div", {class: "boards"});
    section.append(this.controls.element, this.stripBox, this.controls.scrub, this.boards,
      boardLegend(), this.sources, letterTable(this));
    this.build();
    new ResizeObserver(() => { if (this.section.clientWidth !== this.width) this.build(); })
      .observe(section);
  }

  // Builds what depends on the stages and on the width.
  build() {
    this.width = this.section.clientWidth;
    const stages = [this.stage, this.beside].filter(Boolean);
    const shown = stages.map(recordingOf), units = Math.max(...shown.map((r) => r.units.length));
    const columns = shown.length === 2 && this.width / 2 > 66 + 140 + units * 40;
    const width = Math.max(280, columns ? this.width / 2 - 12 : this.width);
    const scale = Math.max(...shown.map((recording) => highest(recording)));
    this.positions = positionsOf(shown);
    this.position = Math.min(this.position, this.positions.length - 1);
    this.views = shown.map((recording) => new StageView(recording, width, scale));
    this.boards.classList.toggle("columns", columns);
    this.boards.replaceChildren(...this.views.map((view) => view.element));
    this.sources.classList.toggle("columns", shown.length === 2 && this.width > 800);
    this.sources.replaceChildren(...this.views.map((view) => view.source.element));
    this.strips = shown.map((recording, i) => new Strip(recording, {scale, width: this.width,
      length: this.positions.length, eventAt: (position) => this.positions[position][i],
      named: shown.length > 1, moved: (position) => { this.pause(); this.show(position); }}));
    this.stripBox.replaceChildren(...this.strips.map((strip) => strip.element));
    this.controls.built(this);
    this.show(this.position);
  }
  choose(stage) {
    if (!this.stages.includes(stage)) return;
    const anchor = this.eventName(), previous = this.stage;
    this.stage = stage;
    if (this.beside === stage) this.beside = previous;   // they change places
    this.rebuiltAt(anchor);
  }
  compare(stage) {
    const anchor = this.eventName();
    this.beside = stage === this.stage ? "" : stage;
    this.rebuiltAt(anchor);
  }
  // Another stage begins at the same event if it has it.
  eventName() {
    const recording = recordingOf(this.stage), k = this.positions[this.position][0];
    return anchors(recording).filter((anchor) => anchor.event <= k).pop()?.name;
  }
  rebuiltAt(name) {
    this.build();
    const event = anchors(recordingOf(this.stage)).find((anchor) => anchor.name === name)?.event;
    const position = this.positions.findIndex((events) => events[0] === event);
    this.show(Math.max(0, position));
  }

  show(position) {
    this.position = Math.max(0, Math.min(this.positions.length - 1, position));
    const events = this.positions[this.position];
    this.views.forEach((view, i) => view.show(events[i]));
    moveCursor(this.views.map((view, i) => [view.recording.stage, events[i]]));
    for (const strip of this.strips) strip.show(this.position);
    this.controls.showPosition(this);
    this.section.dispatchEvent(new CustomEvent("shown"));
  }
  step(by) {
    this.pause();
    this.show(this.position + by);
  }
  // Screen readers read the sentence while one steps, but not while it plays.
  live(value) {
    for (const view of this.views) view.sentence.setAttribute("aria-live", value);
  }
  pause() {
    if (this.playing) {
      this.playing = false;
      this.controls.showPlaying(false);
    }
    this.live("polite");
  }
  play() {
    if (this.playing) return;
    if (this.position === this.positions.length - 1) this.show(0);
    this.playing = true;
    this.live("off");
    this.controls.showPlaying(true);
    let due = null;
    const frame = (now) => {
      if (!this.playing) return;
      const each = 600 / this.speed;
      due ??= now + each;
      if (now >= due) {
        due = Math.max(due + each, now);
        if (this.position === this.positions.length - 1) return this.pause();
        this.show(this.position + 1);
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }
}

// One stage: what happens, its board, and its source.
class StageView {
  constructor(recording, width, scale) {
    this.recording = recording;
    this.sentence = html("p", {class: "sentence", "aria-live": "polite"});
    this.name = html("p", {class: "event-name"});
    this.board = new Board(recording, width, scale);
    this.source = new SourceView(recording.stage);
    this.element = html("article", {class: "stage-view"},
      html("h3", {}, recording.stage), this.sentence, this.name,
      html("div", {class: "scroll", tabindex: 0, role: "group",
        "aria-label": `Board of ${recording.stage}`}, this.board.element));
  }
  show(k) {
    const {recording} = this, e = recording.event(k);
    setText(this.sentence, sentence(recording, k));
    setText(this.name, `event ${k + 1} of ${recording.length} · ${e.phase || "step"} · ${
      recording.text(k)}`);
    this.board.show(k);
    this.source.show(e.method);
  }
}

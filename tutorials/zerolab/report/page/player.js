// The step player: one recorded step, event by event, of one stage or of two side by side.

// ---- the source of a stage file, with the function highlighted that runs because of an event ----

// The lines of the function `name` as [first, last], counted from 0; null if the file has none. It
// begins where the name is declared and ends with its closing brace.
function methodLines(lines, name) {
  const first = name ? lines.findIndex((line) =>
    new RegExp(`^\\s+\\w+ ${name}\\(.*\\).*\\{`).test(line)) : -1;
  let depth = 0;
  for (let i = first; first >= 0 && i < lines.length; ++i) {
    depth += lines[i].split("{").length - lines[i].split("}").length;
    if (depth === 0) return [first, i];
  }
  return null;
}

const CODE = {line: 20, height: 280};   // [pixels], as in page.css

class SourceView {
  constructor(stage) {
    this.lines = (sources[stage] ?? "").replace(/\n$/, "").split("\n");
    this.rows = this.lines.map((line, i) => html("span", {class: "code-line"},
      html("span", {class: "line-number", "aria-hidden": "true"}, String(i + 1).padStart(3)),
      line.split(/(?=\/\/)/).map((part) =>
        html("span", {class: part.startsWith("//") ? "comment" : null}, part)), "\n"));
    this.status = html("span", {});
    this.box = html("pre", {class: "code", tabindex: 0, "aria-label": `stages/${stage}.cpp`},
      html("code", {}, this.rows));
    this.element = html("figure", {}, html("figcaption", {}, html("b", {}, `stages/${stage}.cpp`),
      this.status), sources[stage] ? this.box
      : note("This program does not contain the text of this stage."));
    this.top = 0;   // [pixels] of the box
  }
  show(method) {
    if (this.method === method) return;
    this.method = method;
    const range = methodLines(this.lines, method);
    this.rows.forEach((row, i) => row.classList.toggle("running",
      range !== null && range[0] <= i && i <= range[1]));
    const [first, last] = (range ?? []).map((line) => line + 1);
    setText(this.status, range
      ? ` runs ${method}(), ${first === last ? `line ${first}` : `lines ${first} to ${last}`}`
      : method ? ` does not define ${method}(): there is nothing to do`
        : ": none of its functions runs at this event");
    if (!range) return;
    // Sizes are those of the style sheet: asking for them would make the browser lay out the page.
    const top = range[0] * CODE.line, bottom = (range[1] + 1) * CODE.line;
    if (top >= this.top && bottom <= this.top + CODE.height) return;
    this.top = Math.max(0, (top + bottom - CODE.height) / 2);
    requestAnimationFrame(() => { this.box.scrollTop = this.top; });
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
    this.element = html("article", {class: "stage-view"}, html("h3", {}, recording.stage),
      this.sentence, this.name, html("div", {class: "scroll", tabindex: 0, role: "group",
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

// ---- the player ---------------------------------------------------------------------------------

class Player {
  constructor(section) {
    this.section = section;
    this.stages = recordings.map((recording) => recording.stage);
    Object.assign(this, {stage: this.stages.at(-1), beside: "", position: 0, playing: false,
      speed: 1, strips: html("div", {class: "strips"}), boards: html("div", {class: "boards"}),
      sources: html("div", {class: "boards"}), letters: html("div", {class: "scroll", tabindex: 0,
        role: "group", "aria-label": "This event as letters"})});
    this.controls = playerControls(this);
    section.append(this.controls.element, this.strips, this.controls.range, this.boards,
      boardLegend(), this.sources, html("details", {ontoggle: () => this.showLetters()},
        html("summary", {}, "This event as letters"), note("Parameter, gradient, optimizer state: "
          + Object.entries(STATES).map((state) => state.join(" ")).join("; ") + "."),
        this.letters));
    this.build();
    new ResizeObserver(() => { if (section.clientWidth !== this.width) this.build(); })
      .observe(section);
  }

  // Builds what depends on the stages and on the width.
  build() {
    const width = this.width = this.section.clientWidth;
    const shown = [this.stage, this.beside].filter(Boolean).map(recordingOf);
    const columns = shown.length === 2 &&
      width / 2 > 206 + 40 * Math.max(...shown.map((r) => r.units.length));
    const most = Math.max(...shown.map((recording) => recording.highest()));
    this.positions = positionsOf(shown);
    this.views = shown.map((recording) =>
      new StageView(recording, Math.max(280, columns ? width / 2 - 12 : width), most));
    this.boards.classList.toggle("columns", columns);
    this.boards.replaceChildren(...this.views.map((view) => view.element));
    this.sources.classList.toggle("columns", shown.length === 2 && width > 800);
    this.sources.replaceChildren(...this.views.map((view) => view.source.element));
    this.cursors = shown.map(() => html("div", {class: "cursor"}));
    this.strips.replaceChildren(...shown.map((recording, i) =>
      html("div", {class: "strip"}, this.strip(recording, i, most), this.cursors[i])));
    this.controls.built();
    this.show(this.position);
  }
  // The memory of the first rank as a mountain. A press or a drag moves to the event there.
  strip(recording, side, most) {
    const step = this.width / this.positions.length, first = new Map();
    this.positions.forEach((events, p) => first.has(events[side]) || first.set(events[side], p));
    const at = (k) => step * (first.get(Math.ceil(k)) ?? this.positions.length)
      - (k % 1 ? step / 2 : 0);
    const picture = memoryPicture(recording, {width: this.width, height: 92, most, at});
    const move = (event) => {
      const box = picture.getBoundingClientRect();
      this.step(Math.floor((event.clientX - box.left) / step) - this.position);
    };
    picture.addEventListener("pointerdown", (event) => {
      picture.setPointerCapture(event.pointerId);
      move(event);
    });
    picture.addEventListener("pointermove", (event) => { if (event.buttons & 1) move(event); });
    return picture;
  }
  // Other stages begin at the same event if they have it.
  choose(stage, beside) {
    if (!this.stages.includes(stage)) return;
    const k = this.positions[this.position][0];
    const name = recordingOf(this.stage).anchors().filter(({event}) => event <= k).pop()?.name;
    // Two that are the same change places.
    this.beside = beside === stage ? (this.stage === stage ? "" : this.stage) : beside;
    this.stage = stage;
    this.build();
    const event = recordingOf(stage).anchors().find((anchor) => anchor.name === name)?.event;
    this.show(this.positions.findIndex((events) => events[0] === event));
  }

  show(position) {
    this.position = Math.max(0, Math.min(this.positions.length - 1, position));
    const events = this.positions[this.position];
    this.views.forEach((view, i) => view.show(events[i]));
    const x = ((this.position + 0.5) * this.width) / this.positions.length;
    for (const cursor of this.cursors) cursor.style.transform = `translateX(${x.toFixed(1)}px)`;
    this.controls.showPosition();
    this.showLetters();
  }
  // The same as letters, for people who do not see the board.
  showLetters() {
    if (!this.letters.parentNode.open) return;
    this.letters.replaceChildren(...this.views.map(({recording}, i) => {
      const k = this.positions[this.position][i];
      return html("table", {}, html("caption", {}, `${recording.stage}: ${recording.text(k)}`),
        html("tr", {}, ["rank", ...recording.units.map((unit) => unit.name)].map((name) =>
          html("th", {scope: "col"}, name))),
        recording.shown.map(({rank}, row) => html("tr", {}, html("th", {scope: "row"}, rank),
          recording.units.map((_, u) => html("td", {}, recording.letters(row, u, k))))));
    }));
  }
  step(by) {
    this.play(false);
    this.show(this.position + by);
  }
  // Screen readers read the sentence while one steps, but not while it plays.
  play(on) {
    this.playing = on;
    this.controls.showPlaying();
    for (const view of this.views) set(view.sentence, "aria-live", on ? "off" : "polite");
    if (!on) return;
    if (this.position === this.positions.length - 1) this.show(0);
    let due = null;
    const frame = (now) => {
      if (!this.playing) return;
      const each = 600 / this.speed;
      due ??= now + each;
      if (now >= due) {
        due = Math.max(due + each, now);
        if (this.position === this.positions.length - 1) return this.play(false);
        this.show(this.position + 1);
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}

// ---- controls and keys --------------------------------------------------------------------------

const KEYS = [["space", "play or pause"], ["← →", "previous or next event"],
  ["Home End", "first or last event"], ["1 2 3 4", "ddp, zero1, zero2, zero3"],
  ["c", "a second stage beside, or not"], ["?", "this list"]];

// Pictures of the buttons: fonts lack these signs on some machines.
const ICONS = {
  first: "M3 3v10M13 3L6 8l7 5z", back: "M11 3L4 8l7 5z", play: "M4 2l9 6-9 6z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z", on: "M5 3l7 5-7 5z", last: "M13 3v10M3 3l7 5-7 5z",
};

function button(sign, label, onclick) {
  return html("button", {type: "button", "aria-label": label, title: label, onclick},
    ICONS[sign] ? svg("svg", {class: "icon", width: 16, height: 16, viewBox: "0 0 16 16",
      "aria-hidden": "true"}, svg("path", {d: ICONS[sign]})) : sign);
}

function playerControls(player) {
  const play = button("play", "Play", () => player.play(!player.playing));
  play.className = "play";
  const counter = html("output", {class: "counter"});
  const range = html("input", {type: "range", min: 0, max: 0, "aria-label": "Event of the step",
    oninput: () => player.step(range.value - player.position)});
  const help = html("dialog", {"aria-label": "Keys"}, html("h3", {}, "Keys"),
    html("dl", {class: "facts"}, KEYS.map(([key, text]) =>
      [html("dt", {}, html("kbd", {}, key)), html("dd", {}, text)])),
    html("button", {type: "button", onclick: () => help.close()}, "Close"));
  const stage = selectBox("stage", player.stages, player.stage,
    (value) => player.choose(value, player.beside));
  const beside = selectBox("compare with", [["", "none"], ...player.stages], "",
    (value) => player.choose(player.stage, value));
  return {
    range, help,
    element: html("div", {class: "controls"},
      button("first", "First event", () => player.step(-Infinity)),
      button("back", "Previous event", () => player.step(-1)), play,
      button("on", "Next event", () => player.step(1)),
      button("last", "Last event", () => player.step(Infinity)), counter, stage,
      player.stages.length > 1 ? beside : "",
      selectBox("speed", [["0.5", "½×"], ["1", "1×"], ["4", "4×"], ["16", "16×"], ["1000", "max"]],
        "1", (value) => { player.speed = Number(value); }),
      button("?", "Keys", () => help.showModal()), help),
    built() {
      range.max = player.positions.length - 1;
      stage.querySelector("select").value = player.stage;
      beside.querySelector("select").value = player.beside;
      for (const option of beside.querySelectorAll("option"))
        option.disabled = option.value === player.stage;
    },
    showPosition() {
      range.value = player.position;
      range.setAttribute("aria-valuetext", player.views[0].sentence.textContent);
      setText(counter, `${player.position + 1} of ${player.positions.length}`);
    },
    showPlaying() {
      const [sign, label] = player.playing ? ["pause", "Pause"] : ["play", "Play"];
      set(play.querySelector("path"), "d", ICONS[sign]);
      set(play, "aria-label", label);
      set(play, "title", label);
    },
  };
}

function keyAction(player, key) {
  // The stage that key c puts beside: the one before in the list, or the next.
  const at = player.stages.indexOf(player.stage);
  const other = player.stages[at - 1] ?? player.stages[at + 1] ?? "";
  switch (key) {
    case " ": return () => player.play(!player.playing);
    case "ArrowLeft": return () => player.step(-1);
    case "ArrowRight": return () => player.step(1);
    case "Home": return () => player.step(-Infinity);
    case "End": return () => player.step(Infinity);
    case "c": return () => player.choose(player.stage, player.beside ? "" : other);
    case "?": return () => player.controls.help.showModal();
    case "1": case "2": case "3": case "4":
      return () => player.choose(STAGES[key - 1], player.beside);
    default: return null;
  }
}

// Keys work while the player or an element in it has the focus, and also while nothing has it and
// the player is on the screen. A field keeps the keys that it uses itself.
function listenToKeys(player) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const {target} = event, box = player.section.getBoundingClientRect();
    const onScreen = box.top < innerHeight * 0.7 && box.bottom > innerHeight * 0.3;
    if (!(player.section.contains(target) || (target === document.body && onScreen))) return;
    const field = target.closest("select, input, dialog, summary, a");
    const pressed = target.closest("button") && [" ", "Enter"].includes(event.key);
    if (field && !(field.type === "range" && "c?1234 ".includes(event.key))) return;
    const action = pressed ? null : keyAction(player, event.key);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

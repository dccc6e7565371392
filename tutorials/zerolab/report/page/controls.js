// The controls of the step player, and its keys.

const KEYS = [["space", "play or pause"], ["← →", "previous or next event"],
  ["Home End", "first or last event"], ["1 2 3 4", "ddp, zero1, zero2, zero3"],
  ["c", "a second stage beside, or not"], ["?", "this list"]];

// Pictures of the buttons: fonts lack these signs on some machines.
const ICONS = {
  first: "M3 3v10M13 3L6 8l7 5z", back: "M11 3L4 8l7 5z", play: "M4 2l9 6-9 6z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z", on: "M5 3l7 5-7 5z", last: "M13 3v10M3 3l7 5-7 5z",
};

function icon(name) {
  return svg("svg", {class: "icon", width: 16, height: 16, viewBox: "0 0 16 16",
    "aria-hidden": "true"}, svg("path", {d: ICONS[name]}));
}

function playerControls(player) {
  const button = (sign, label, action) => html("button", {type: "button", "aria-label": label,
    title: label, onclick: action}, ICONS[sign] ? icon(sign) : sign);
  const play = button("play", "Play", () => player.toggle());
  play.className = "play";
  const counter = html("output", {class: "counter"});
  const range = html("input", {type: "range", min: 0, max: 0, step: 1, value: 0,
    "aria-label": "Event of the step",
    oninput: () => { player.pause(); player.show(Number(range.value)); }});
  const help = html("dialog", {class: "help", "aria-label": "Keys"}, html("h3", {}, "Keys"),
    html("dl", {}, KEYS.map(([key, text]) => [html("dt", {}, html("kbd", {}, key)),
      html("dd", {}, text)])),
    html("button", {type: "button", onclick: () => help.close()}, "Close"));
  const choices = player.stages.map((stage) => ({value: stage, text: stage}));
  const stage = buttonGroup("stage", choices, player.stage, (value) => player.choose(value));
  const beside = selectBox("compare with", [{value: "", text: "none"}, ...choices], "",
    (value) => player.compare(value));
  const speed = selectBox("speed", SPEEDS.map(([value, text]) => ({value, text})), "1",
    (value) => { player.speed = Number(value); });
  const element = html("div", {class: "controls"},
    html("div", {class: "transport", role: "group", "aria-label": "Playing"},
      button("first", "First event", () => player.step(-Infinity)),
      button("back", "Previous event", () => player.step(-1)), play,
      button("on", "Next event", () => player.step(1)),
      button("last", "Last event", () => player.step(Infinity))),
    counter, speed, stage, choices.length > 1 ? beside : null,
    button("?", "Keys", () => help.showModal()), help);
  const controls = {
    element, scrub: html("div", {class: "scrub"}, range), help,
    built() {
      range.max = player.positions.length - 1;
      stage.choose(player.stage);
      const box = beside.querySelector("select");
      for (const option of box.options) option.disabled = option.value === player.stage;
      box.value = player.beside;
    },
    showPosition() {
      range.value = player.position;
      range.setAttribute("aria-valuetext", sentence(player.views[0].recording,
        player.positions[player.position][0]));
      setText(counter, `${player.position + 1} of ${player.positions.length}`);
    },
    showPlaying(playing) {
      play.replaceChildren(icon(playing ? "pause" : "play"));
      play.setAttribute("aria-label", playing ? "Pause" : "Play");
      play.title = playing ? "Pause" : "Play";
    },
  };
  return controls;
}

// The stage that key c puts beside: the one before in the list, or the next.
function otherStage(player) {
  const at = player.stages.indexOf(player.stage);
  return player.stages[at - 1] ?? player.stages[at + 1] ?? "";
}

function keyAction(player, key) {
  switch (key) {
    case " ": return () => player.toggle();
    case "ArrowLeft": return () => player.step(-1);
    case "ArrowRight": return () => player.step(1);
    case "Home": return () => player.step(-Infinity);
    case "End": return () => player.step(Infinity);
    case "c": return () => player.compare(player.beside ? "" : otherStage(player));
    case "?": return () => player.controls.help.showModal();
    case "1": case "2": case "3": case "4": return () => player.choose(STAGES[key - 1]);
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

function boardLegend() {
  const entry = (bar, state, text, marks = {}) => html("li", {},
    svg("svg", {class: "swatch", width: 44, height: 12, "aria-hidden": "true"},
      svg("g", {class: `bar bar-${bar}`, "data-state": state, ...marks},
        svg("rect", {class: "all", x: 1, y: 1, width: 42, height: 10, rx: 2}),
        svg("rect", {class: "own", x: 11.5, y: 1, width: 10.5, height: 10}),
        svg("path", {class: "flight", "stroke-width": 10, d: "M1 6h42"}),
        svg("path", {class: "cuts", d: "M11.5 1v10M22 1v10M32.5 1v10"}))), text);
  return html("ul", {class: "legend", "aria-label": "Legend"},
    entry("p", "#", "P parameters, full"), entry("p", "/", "this rank's slice only"),
    entry("p", ".", "not held"), entry("p", "~", "full, other slices not valid"),
    entry("p", "~", "in flight", {"data-flying": "true"}),
    entry("g", "0", "G gradient, all zero"),
    entry("g", "/", "this rank's slice, still zero", {"data-zero": "true"}),
    entry("g", "+", "not averaged yet"), entry("g", "#", "averaged"),
    entry("o", "#", "O optimizer state"),
    html("li", {}, svg("svg", {class: "swatch", width: 10, height: 16, "aria-hidden": "true"},
      svg("path", {class: "memory-high", d: "M5 1v14"})), "most memory so far"));
}

// The same as letters, for people who do not see the board.
function letterTable(player) {
  const body = html("div", {class: "scroll", tabindex: 0});
  const details = html("details", {}, html("summary", {}, "This event as letters"),
    note("Parameter, gradient, optimizer state: " + Object.entries(STATES)
      .map(([letter, text]) => `${letter} ${text}`).join("; ") + "."), body);
  const show = () => {
    if (!details.open) return;
    body.replaceChildren(...player.views.map(({recording}, i) => {
      const k = player.positions[player.position][i];
      return html("table", {}, html("caption", {}, `${recording.stage}: ${recording.text(k)}`),
        html("tr", {}, html("th", {scope: "col"}, "rank"), recording.units.map((unit) =>
          html("th", {scope: "col"}, unit.name))),
        recording.shown.map((rank, row) => html("tr", {}, html("th", {scope: "row"}, rank.rank),
          recording.units.map((_, u) => html("td", {}, recording.letters(row, u, k))))));
    }));
  };
  details.addEventListener("toggle", show);
  player.section.addEventListener("shown", show);
  return details;
}

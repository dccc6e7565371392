// Puts the sections into the page.

function title() {
  const names = listed(shownStages), ranks = report.document?.ranks ?? recordings[0]?.ranks;
  const on = ranks ? ` on ${plural(ranks, "rank")}` : "";
  const done = {compare: "", train: "Training with ", plan: "A plan of "}[report.kind] ?? "";
  return `${done}${names || "A run"}${on}`;
}

function about() {
  const {about: a, document: doc} = report, facts = [["command", a.command], ["date", a.date],
    ["zerolab", a.version], ["compiler", a.compiler], ["device", a.device],
    ["cores", a.cores], ["model", doc?.model && `${doc.model.name}: ${plural(doc.parameters,
      "parameter")}`], ["data", doc?.data?.name], ["precision", doc?.precision]];
  setText(document.getElementById("title"), title());
  document.title = `${title()} · zerolab`;
  setText(document.getElementById("command"), printable(a.command ?? ""));
  document.getElementById("about").append(
    html("dl", {class: "facts"}, facts.filter((fact) => fact[1]).map(([name, value]) =>
      [html("dt", {}, name), html("dd", {}, printable(value))])),
    a.settings ? html("pre", {class: "settings"}, printable(a.settings)) : "");
}

// Dark or light: what the system asks for, until the button is pressed.
function themeButton() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });
}

function stepPlayer(section) {
  if (!recordings.length)
    return section.append(note("No step was recorded, so there is nothing to play."));
  const step = recordings[0].data.step;
  section.append(note(planned ? "The events of one step, from a dry run of the real code."
    : `The events of step ${step} of this run. Press space to play, or ? for all keys.`),
  note("Columns are units, which are gathered and reduced as a whole: h.0, h.1 … are the blocks " +
    "of the model, root is the rest. In zero3 root stays complete " +
    "until its backward pass has ended."));
  listenToKeys(new Player(section));
}

about();
themeButton();
for (const [id, build] of [["headline", headline], ["player", stepPlayer], ["memory", memory],
  ["traffic", traffic], ["time", timeSection], ["training", training]])
  build(document.querySelector(`#${id} > .body`));
document.documentElement.dataset.ready = "yes";

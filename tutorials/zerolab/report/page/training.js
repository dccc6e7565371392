// Losses, gradient norms, learning rates and speed of all steps; the stages overlaid.

const CURVES = [
  {title: "Loss", value: (m) => m.loss, show: (v) => digits(v, 4)},
  {title: "Gradient norm", value: (m) => m.grad_norm, show: (v) => digits(v, 3)},
  {title: "Learning rate", value: (m) => m.lr, show: (v) => digits(v, 3)},
  {title: "Tokens per second", value: (m) => isNumber(m.tokens) && m.seconds > 0
    ? m.tokens / m.seconds : null, show: (v) => digits(v, 3)},
  {title: "Held-out loss", value: (m) => m.eval_loss, show: (v) => digits(v, 4), optional: true},
  {title: "Loss scale", value: (m) => m.loss_scale, show: (v) => digits(v, 4), optional: true},
];

// Which later stages have exactly the losses of the first.
function equalText(stages) {
  const losses = (stage) => JSON.stringify(report.metrics[stage].map((m) => [m.loss, m.grad_norm]));
  const equal = stages.filter((stage) => losses(stage) === losses(stages[0]));
  if (equal.length < 2) return "";
  return `${listed(equal)} have the same losses and gradient norms in every step, so their lines ` +
    "cover each other: the first is the widest.";
}

function metricsTable(stages) {
  const known = ["loss", "grad_norm", "lr", "tokens", "seconds", "skipped", "loss_scale",
    "eval_loss"];
  const all = stages.flatMap((stage) => report.metrics[stage]);
  const keys = known.filter((key) => all.some((m) => m[key] !== undefined));
  const rows = stages.flatMap((stage) => report.metrics[stage].map((m) => [stage, m.step,
    ...keys.map((key) => m[key] === null ? "not finite" : typeof m[key] === "boolean"
      ? (m[key] ? "yes" : "no") : m[key] ?? "")]));
  const drawn = stages.some((stage) => report.steps_made?.[stage] > report.metrics[stage].length);
  return numberTable(drawn ? "The drawn steps" : "Every step",
    ["stage", "step", ...keys.map(spaced)], rows, "training.csv");
}

function training(section) {
  const stages = shownStages.filter((stage) => report.metrics?.[stage]?.length);
  if (!stages.length) return section.append(note(planned
    ? "A plan trains nothing: there are no losses." : "No training step was completed."));
  const grid = html("div", {class: "grid-2"});
  const all = stages.flatMap((stage) => report.metrics[stage]);
  let width = 0;
  const draw = () => {
    width = section.clientWidth;
    const two = width > 760;
    grid.classList.toggle("single", !two);
    grid.replaceChildren(...CURVES.flatMap(({title, value, show, optional}) => {
      const series = stages.map((stage) => ({name: stage, points: report.metrics[stage]
        .map((m) => [m.step, value(m) ?? null]).filter((p) => !optional || p[1] !== null)}));
      const given = series.some((line) => line.points.some((p) => p[1] !== null));
      if (!given && (optional || !all.some((m) => value(m) === null))) return [];
      return [html("figure", {}, html("figcaption", {}, html("b", {}, title)),
        lineChart(title, series, two ? (width - 24) / 2 : width, show))];
    }));
  };
  const unset = report.nonfinite_losses ? sum(Object.values(report.nonfinite_losses))
    : sum(all.map((m) => m.loss === null ? 1 : 0));
  section.append(html("ul", {class: "legend"}, stages.map((stage) => html("li", {},
    svg("svg", {class: "swatch", width: 22, height: 12, "aria-hidden": "true"},
      svg("path", {class: `curve stage-${stage}`, d: "M2 6h18", "stroke-width": 4})), stage))));
  const equal = equalText(stages);
  if (equal) section.append(note(equal));
  if (unset) section.append(note(`${commas(unset)} ${unset === 1 ? "loss is" : "losses are"
  } not finite: the line has a gap there.`));
  if (all.length === stages.length) section.append(note("There is one step: a point, not a line."));
  section.append(grid, metricsTable(stages));
  draw();
  new ResizeObserver(() => { if (section.clientWidth !== width) draw(); }).observe(section);
}

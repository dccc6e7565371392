// Memory over one step, stacked by use: the picture behind the scrubber, and those of the section
// about memory.

// "optimizer state" and "optimizer_state" -> the same class.
const useClass = (name, kind = "use") => `${kind} ${kind}-${name.replaceAll(" ", "_")}`;

// Paths of the layers, the lowest first. `points`: [x, [bytes of each layer]]; a value holds until
// the next point. `x` and `y` map to pixels; `end` is the x at which the last value ends.
function layerPaths(points, count, {x, y, end}) {
  const edges = Array.from({length: count + 1}, () => []);
  points.forEach(([at, values], i) => {
    const from = x(at), to = i + 1 < points.length ? x(points[i + 1][0]) : x(end);
    let total = 0;
    edges[0].push([from, y(0)], [to, y(0)]);
    values.forEach((value, layer) => {
      total += value;
      edges[layer + 1].push([from, y(total)], [to, y(total)]);
    });
  });
  const text = (list) => list.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
  return Array.from({length: count}, (_, layer) =>
    `M${text(edges[layer + 1])}L${text([...edges[layer]].reverse())}z`);
}

function layers(points, names, scale) {
  const paths = layerPaths(points, names.length, scale);
  return svg("g", {class: "layers"}, names.flatMap((name, layer) => [
    svg("path", {class: useClass(name), d: paths[layer]}, svg("title", {}, name)),
    svg("path", {class: useClass(name, "texture"), d: paths[layer]}),
  ]));
}

// The instant at which most is held: {x, values, total}.
function peakOf(points) {
  let best = {x: 0, values: [], total: -1};
  for (const [x, values] of points) {
    const total = sum(values);
    if (total > best.total) best = {x, values, total};
  }
  return best;
}

function useLegend(names) {
  return html("ul", {class: "legend"}, names.map((name) => html("li", {},
    svg("svg", {class: "swatch", width: 16, height: 12, "aria-hidden": "true"},
      svg("rect", {class: useClass(name), width: 16, height: 12}),
      svg("rect", {class: useClass(name, "texture"), width: 16, height: 12})),
    name)));
}

// A line chart of several series over steps. Equal lines cover each other: then the first is the
// widest, so that every one can be seen.

// `series`: [{name, points: [[step, value or null]]}]. A null leaves a gap.
function lineChart(title, series, width, show) {
  const height = 210, left = 70, right = 14, top = 12, bottom = 28;
  const points = series.flatMap((line) => line.points);
  const values = points.map((point) => point[1]).filter(isNumber);
  if (!values.length) return note(`${title}: no finite number.`);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - Math.abs(low) / 10, high + (Math.abs(high) / 10 || 1)];
  const steps = points.map((point) => point[0]);
  const first = Math.min(...steps), last = Math.max(...steps);
  const x = (step) => first === last ? (left + width - right) / 2
    : left + ((step - first) / (last - first)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const grid = [0, 0.5, 1].map((part) => {
    const value = low + part * (high - low);
    return [svg("path", {class: "grid", d: `M${left} ${y(value)}H${width - right}`}),
      svg("text", {class: "tick", x: left - 10, y: y(value) + 4, "text-anchor": "end"},
        show(value))];
  });
  const ends = first === last ? [[first, "middle"]] : [[first, "start"], [last, "end"]];
  return svg("svg", {class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title} by step`}, grid,
  ends.map(([step, anchor]) => svg("text", {class: "tick", x: x(step), y: height - 8,
    "text-anchor": anchor}, `step ${step}`)),
  series.map((line, i) => drawnLine(line, equalTo(line, series.slice(i + 1)), x, y)));
}

// How many of `others` are the same line.
function equalTo(line, others) {
  const text = JSON.stringify(line.points);
  return others.filter((other) => JSON.stringify(other.points) === text).length;
}

// `above`: how many equal lines will be drawn over this one.
function drawnLine({name, points}, above, x, y) {
  const widths = 2.5 + 3 * above, parts = [];
  let run = [];
  const flush = () => {
    if (run.length === 1) parts.push(`M${run[0]}h.01`);
    else if (run.length) parts.push(`M${run.join("L")}`);
    run = [];
  };
  for (const [step, value] of points) {
    if (isNumber(value)) run.push(`${x(step).toFixed(1)} ${y(value).toFixed(1)}`);
    else flush();
  }
  flush();
  const alone = points.length === 1 || parts.every((part) => part.endsWith("h.01"));
  return svg("path", {class: `curve stage-${name}`, d: parts.join(""),
    "stroke-width": alone ? widths + 6 : widths}, svg("title", {}, name));
}

// The source of a stage file, with the function highlighted that runs because of an event.

// The lines of the function `name` as [first, last], counted from 0; null if the file has none. It
// begins where the name is declared and ends with its closing brace.
function methodLines(lines, name) {
  const first = name ? lines.findIndex((line) =>
    new RegExp(`^\\s+\\w+ ${name}\\(.*\\).*\\{`).test(line)) : -1;
  if (first < 0) return null;
  let depth = 0;
  for (let i = first; i < lines.length; ++i) {
    for (const c of lines[i]) depth += c === "{" ? 1 : c === "}" ? -1 : 0;
    if (depth === 0) return [first, i];
  }
  return null;
}

function lineNumbers([first, last]) {
  return first === last ? `line ${first + 1}` : `lines ${first + 1} to ${last + 1}`;
}

const CODE = {line: 20, height: 280};   // [pixels], as in page.css

class SourceView {
  constructor(stage) {
    this.stage = stage;
    this.lines = (sources[stage] ?? "").replace(/\n$/, "").split("\n");
    this.rows = this.lines.map((line, i) => html("span", {class: "code-line"},
      html("span", {class: "line-number", "aria-hidden": "true"}, String(i + 1).padStart(3)),
      this.code(line), "\n"));
    this.status = html("p", {class: "code-status"});
    this.box = html("pre", {class: "code", tabindex: 0, "aria-label": `stages/${stage}.cpp`},
      html("code", {}, this.rows));
    this.element = html("figure", {class: "source"},
      html("figcaption", {}, html("b", {}, `stages/${stage}.cpp`), this.status),
      sources[stage] ? this.box : note("This program does not contain the text of this stage."));
    this.method = null;
    this.top = 0;   // [pixels] of the box
  }
  code(line) {
    const at = line.indexOf("//");
    if (at < 0) return [line];
    return [line.slice(0, at), html("span", {class: "comment"}, line.slice(at))];
  }
  show(method) {
    if (this.method === method) return;
    this.method = method;
    const range = methodLines(this.lines, method);
    this.rows.forEach((row, i) => row.classList.toggle("running",
      range !== null && range[0] <= i && i <= range[1]));
    setText(this.status, range ? ` runs ${method}(), ${lineNumbers(range)}`
      : method ? ` does not define ${method}(): there is nothing to do`
        : ": none of its functions runs at this event");
    if (range) this.reveal(range);
  }
  // Scrolls so that the lines are seen. Sizes are those of the style sheet: asking for them would
  // make the browser lay out the page.
  reveal([first, last]) {
    const top = first * CODE.line, bottom = (last + 1) * CODE.line;
    if (top >= this.top && bottom <= this.top + CODE.height) return;
    this.top = Math.max(0, (top + bottom - CODE.height) / 2);
    requestAnimationFrame(() => { this.box.scrollTop = this.top; });
  }
}

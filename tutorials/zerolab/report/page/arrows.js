// Arrows of the collectives in flight: in a ring, rank r sends to rank (r + 1) mod N.

function head(x, y, direction) {
  const w = 4, h = 6 * direction;
  return svg("path", {class: "head", d: `M${x - w} ${y - h}L${x} ${y}L${x + w} ${y - h}z`});
}

// The ring of one call in the column around x.
function ring(board, call, x) {
  const {layout, recording} = board, {rows, y, cellHeight, cell, wide} = layout;
  const below = cellHeight + (wide ? 3 : 20), parts = [];
  for (let row = 0; row + 1 < rows; ++row) {
    const from = y(row) + below, to = y(row + 1) - 4;
    parts.push(svg("path", {class: "line", d: `M${x} ${from}V${to - 5}`}), head(x, to, 1));
  }
  const last = y(rows - 1) + below;
  if (rows < recording.ranks) {   // the other ranks are not shown
    parts.push(svg("path", {class: "line", d: `M${x} ${last}v9`}), head(x, last + 14, 1));
  } else if (rows > 1) {
    const side = call.unit < 0 ? x + 9 : x + cell / 2 - 1, top = y(0) - 8;
    parts.push(svg("path", {class: "line", d: `M${x} ${last}q0 8 6 8H${side - 6}q6 0 6 -6V${
      top + 6}q0 -6 -6 -6H${x + 4}q-4 0 -4 2`}), head(x, top + 7, 1));
  }
  return parts;
}

function pill(board, text, x, line) {
  const {width, height} = board.layout, w = text.length * 7 + 20;
  const left = Math.max(0, Math.min(width - w, x - w / 2)), top = height - 24 - 22 * line;
  return [svg("rect", {class: "pill", x: left, y: top, width: w, height: 20, rx: 10}),
    svg("text", {class: "pill-text", x: left + w / 2, y: top + 14, "text-anchor": "middle"}, text)];
}

function showArrows(board, calls) {
  const key = calls.map((call) => call.begin).join();
  if (board.arrowsOf === key) return;
  board.arrowsOf = key;
  board.arrows.replaceChildren(...calls.flatMap((call, i) => {
    const {x, cell} = board.layout;
    const middle = call.unit < 0 ? 48 : x(call.unit) + cell / 2;
    const text = `${call.what}: each rank sends ${bytes(call.bytes)}`;
    const kind = call.bar === 0 ? "p" : call.bar === 1 ? "g" : "other";
    return [svg("g", {class: `ring ring-${kind}`},
      board.recording.ranks > 1 ? ring(board, call, middle) : [], pill(board, text, middle, i))];
  }));
}

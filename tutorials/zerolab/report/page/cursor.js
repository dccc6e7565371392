// The event that the step player shows, for the pictures of other sections. Stages that the player
// does not show are at the same event too.

const cursor = {events: new Map(), listeners: []};

// For each event of `a` the event of `b` that belongs to it.
const matches = new Map();
function matching(a, b) {
  const key = `${a.stage} ${b.stage}`;
  if (!matches.has(key)) {
    const found = new Array(a.length).fill(0);
    for (const [k, other] of together(a, b)) found[k] = Math.max(found[k], other);
    matches.set(key, found);
  }
  return matches.get(key);
}

// `shown`: [stage, event] of what the player shows.
function moveCursor(shown) {
  const [stage, k] = shown[0], here = recordingOf(stage);
  for (const recording of recordings)
    cursor.events.set(recording.stage, matching(here, recording)[k]);
  for (const [other, event] of shown) cursor.events.set(other, event);
  for (const listener of cursor.listeners) listener();
}

// A vertical line over a picture, which does not make the browser paint the picture again.
class CursorLine {
  constructor(picture, top, height) {
    this.line = html("div", {class: "cursor", style: `top:${top}px;height:${height}px`});
    this.element = html("div", {class: "with-cursor"}, picture, this.line);
  }
  moveTo(x) { this.line.style.transform = `translateX(${x.toFixed(1)}px)`; }
}

// The strip above the scrubber: phases of the step, and the memory of the first rank as a mountain.
// A press or a drag moves to the event there.

const STRIP = {height: 92, top: 20};

class Strip {
  constructor(recording, {length, eventAt, width, scale, named, moved}) {
    this.width = width;
    this.length = length;
    const step = width / length, {wanted, names} = recording.pool("device");
    // x of an event of this recording: the first position at which it is shown.
    const first = new Map();
    for (let p = length - 1; p >= 0; --p) first.set(eventAt(p), p);
    const at = (k) => step * (first.get(Math.ceil(k)) ?? length) - (k % 1 ? step / 2 : 0);
    const y = (value) => STRIP.height - ((STRIP.height - STRIP.top - 4) * value) / scale;
    const points = recording.profile(0, wanted);
    const picture = svg("svg", {class: "strip", width, height: STRIP.height, role: "img",
      viewBox: `0 0 ${width} ${STRIP.height}`,
      "aria-label": `Memory of rank ${recording.shown[0].rank} during the step`},
    recording.phases().map((phase, i) => this.phase(phase, i, at, recording.length)),
    layers(points, names, {x: at, y, end: recording.length}),
    named ? svg("text", {class: "strip-name", x: width - 6, y: 14, "text-anchor": "end"},
      recording.stage) : null);
    this.cursor = new CursorLine(picture, 0, STRIP.height);
    this.element = this.cursor.element;
    const move = (event) => {
      const box = picture.getBoundingClientRect();
      const part = (event.clientX - box.left) / box.width;
      moved(Math.max(0, Math.min(length - 1, Math.floor(part * length))));
    };
    picture.addEventListener("pointerdown", (event) => {
      picture.setPointerCapture(event.pointerId);
      move(event);
    });
    picture.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) move(event);
    });
  }
  phase({name, begin, end}, i, at, last) {
    const x = at(begin), width = (end === last ? this.width : at(end)) - x;
    const fits = width > 7 * name.length + 6;
    return svg("g", {}, svg("rect", {class: `phase phase-${i % 2}`, x, y: 0, width,
      height: STRIP.height}, svg("title", {}, name)),
    fits ? svg("text", {class: "phase-name", x: x + 5, y: 14}, name) : null);
  }
  show(position) {
    this.cursor.moveTo(((position + 0.5) * this.width) / this.length);
  }
}

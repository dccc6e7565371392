// Loads each page in a frame, uses all its controls and checks it. Writes what it found into
// <pre id="findings">: a line "page: text" for each fault, then a line with what was counted.

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const findings = [], counts = {numbers: 0, cells: 0, methods: 0,
  controls: 0, texts: 0, keys: 0, pages: 0};

// The number that a path of the page means, read from the document again. [*] adds up a list,
// [key=value,…] those elements that match.
function numberAt(document, path) {
  let all = [document];
  for (const [, key, index] of path.matchAll(/([A-Za-z_]+)|\[([^\]]*)\]/g)) {
    if (key) all = all.map((value) => value?.[key]);
    else if (/^\d+$/.test(index)) all = all.map((value) => value?.[Number(index)]);
    else all = all.flat().filter((value) => index === "*" || index.split(",").every((pair) =>
      String(value[pair.split("=")[0]]) === pair.split("=")[1]));
  }
  return all.reduce((a, b) => a + b, 0);
}

// "3.21 MiB" -> bytes, with the room for rounding; "1,234" exactly.
function shownNumber(text) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"], match = text.match(/^([\d.,-]+) ?(\w*)$/);
  if (!match) return null;
  const unit = units.indexOf(match[2] || "B"), value = Number(match[1].replaceAll(",", ""));
  return {value: value * 1024 ** unit, room: unit > 0 ? 0.0051 * 1024 ** unit : 0};
}

// `all`: every table is open, so every number of memory and traffic is shown.
function checkNumbers(window, say, all) {
  const {document} = window, report = JSON.parse(document.getElementById("report").textContent);
  const shown = new Set();
  for (const element of document.querySelectorAll("[data-path]")) {
    const path = element.dataset.path, value = Number(element.dataset.value);
    if (path === "recorded") continue;
    const expected = numberAt(report, path), text = shownNumber(element.textContent);
    ++counts.numbers;
    shown.add(path);
    if (value !== expected) say(`${path} is ${expected}, not ${value}`);
    if (!path.includes("seconds") && (!text || Math.abs(text.value - expected) > text.room))
      say(`${path} is ${expected}, but the page shows ${element.textContent}`);
  }
  const ran = (report.document?.stages ?? []).filter((stage) => stage.promised_equal_to);
  if (ran.length && ran.every((stage) => stage.stage === stage.promised_equal_to) !==
      document.querySelector(".cards").textContent.includes("nothing to compare with"))
    say("it does not say whether a stage has the bits of another one");
  const stages = all ? report.document?.stages ?? [] : [];
  stages.forEach((stage, s) => [["memory", "bytes"], ["communication", "sent_bytes"]].forEach(
    ([list, word]) => (stage[list] ?? []).forEach((row, i) => Object.keys(row).forEach((key) => {
      const path = `document.stages[${s}].${list}[${i}].${key}`;
      if (key.includes(word) && !shown.has(path)) say(`${path} is not shown`);
    }))));
  return report;
}

// ---- controls -----------------------------------------------------------------------------------

function named(element) {
  const label = element.closest("label");
  return (element.getAttribute("aria-label") ?? label?.textContent ?? element.textContent).trim();
}

async function useControls(window, say, check) {
  const {document} = window;
  for (const details of document.querySelectorAll("details")) details.open = true;
  await wait(20);   // their tables are built
  for (const box of document.querySelectorAll("select")) {
    if (!named(box)) say("a list has no name");
    for (const option of [...box.options].filter((one) => !one.disabled)) {
      box.value = option.value;
      box.dispatchEvent(new window.Event("change", {bubbles: true}));
      ++counts.controls;
      await check();
    }
    box.selectedIndex = 0;
    box.dispatchEvent(new window.Event("change", {bubbles: true}));
  }
  for (const range of document.querySelectorAll("input[type=range]")) {
    for (const part of [0, 0.3, 0.6, 1]) {
      range.value = Math.round(part * range.max);
      range.dispatchEvent(new window.Event("input", {bubbles: true}));
      ++counts.controls;
      await check();
    }
  }
  for (const button of document.querySelectorAll("button")) {
    if (!named(button)) say("a button has no name");
    button.click();
    ++counts.controls;
    await check();
    document.querySelector("dialog[open]")?.close();
  }
}

async function useKeys(window, say) {
  const {document} = window, counter = document.querySelector(".counter");
  if (!counter) return;
  const at = () => Number(counter.textContent.split(" ")[0]);
  const press = (key) => {
    document.querySelector(".play").dispatchEvent(
      new window.KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    ++counts.keys;
  };
  press("End");
  const last = at();
  press("ArrowLeft");
  if (at() !== last - 1) say(`the left arrow goes to event ${at()}, not ${last - 1}`);
  press("Home");
  if (at() !== 1) say(`Home goes to event ${at()}, not 1`);
  press("ArrowRight");
  if (at() !== 2) say(`the right arrow goes to event ${at()}, not 2`);
  for (const key of ["1", "2", "3", "4", "c", "c", "x"]) press(key);
  press("?");
  if (!document.querySelector("dialog[open]")) say("? shows no list of keys");
  document.querySelector("dialog[open]")?.close();
  const speed = [...document.querySelectorAll("#player select")].find((box) =>
    named(box).startsWith("speed"));
  speed.value = speed.options[speed.options.length - 1].value;
  speed.dispatchEvent(new window.Event("change"));
  document.querySelector(".play").click();
  for (let i = 0; i < 3000 && named(document.querySelector(".play")) === "Pause"; ++i) await wait(50);
  const [position, , all] = counter.textContent.split(" ");
  if (position !== all) say(`playing ended at event ${position} of ${all}`);
}

// ---- the step player ----------------------------------------------------------------------------

// Goes through every event and compares the board with the recording, replayed from its beginning.
function checkPlayer(window, report, say) {
  const {document} = window, name = document.querySelector(".stage-view h3")?.textContent;
  const recording = report.recordings.find(({stage}) => stage === name);
  if (!recording) return;
  const range = document.querySelector("#player input[type=range]");
  const letters = recording.rank.map(() => recording.units.map(() => "..."));
  const live = recording.rank.map(() => recording.series.map(() => 0));
  for (let k = 0; k < recording.events.length; ++k) {
    recording.rank.forEach((rank, i) => {
      for (const [event, unit, now] of rank.cells) if (event === k) letters[i][unit] = now;
      for (const [event, series, now] of rank.memory) if (event === k) live[i][series] = now;
    });
    range.value = k;
    range.dispatchEvent(new window.Event("input"));
    for (const bar of document.querySelectorAll(".board [data-cell]")) {
      const [row, unit, b] = bar.getAttribute("data-cell").split(" ").map(Number);
      const shown = bar.getAttribute("data-state"), expected = letters[row][unit][b];
      counts.cells += 1;
      if (shown !== expected) say(`event ${k}, rank ${row}, unit ${unit}: ${shown}, not ${expected}`);
    }
    document.querySelectorAll(".memory-text").forEach((text, i) => {
      const held = live[i].reduce((a, b, s) =>
        recording.series[s].startsWith("device ") ? a + b : a, 0);
      const {value, room} = shownNumber(text.textContent) ?? {value: -1, room: 0};
      if (Math.abs(value - held) > Math.max(room, 0.06 * held))
        say(`event ${k}, rank ${i}: ${text.textContent}, not ${held} B`);
    });
    checkMethod(document, recording.texts[recording.events[k][5]], say);
    if (document.querySelector(".sentence").textContent.length < 10) say(`event ${k}: no sentence`);
  }
}

function checkMethod(document, method, say) {
  const code = [...document.querySelectorAll(".code-line")].map((line) => line.textContent);
  const running = [...document.querySelectorAll(".running")].map((line) => line.textContent);
  const defined = method && code.some((line) => line.includes(` ${method}(UnitState`));
  if (defined && !running[0]?.includes(` ${method}(UnitState`))
    say(`${method}() is not highlighted, but ${running[0]}`);
  if (defined && !running[running.length - 1]?.trimEnd().endsWith("}"))
    say(`${method}() is not highlighted to its end`);
  if (!defined && running.length) say(`lines are highlighted without a function: ${running[0]}`);
  if (defined) ++counts.methods;
}

// ---- colours and sizes --------------------------------------------------------------------------

// "rgb(1, 2, 3)" and "rgba(1, 2, 3, 0.5)"
const rgba = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);

function luminance([r, g, b]) {
  const linear = [r, g, b].map((c) => c / 255).map((c) =>
    c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

// The colour behind an element: of the rectangle before it in a picture, else of the first element
// around it that has one.
function ground(window, element) {
  const before = element.namespaceURI.endsWith("svg") ? element.previousElementSibling : null;
  if (before?.localName === "rect" && /pill|phase/.test(before.getAttribute("class") ?? ""))
    return rgba(window.getComputedStyle(before).fill);
  if (element.getAttribute("data-current") === "true")
    return rgba(window.getComputedStyle(element.ownerDocument.querySelector(".current-unit")).fill);
  for (let e = element; e; e = e.parentElement) {
    const colour = rgba(window.getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}

function checkContrast(window, say) {
  const {document} = window, seen = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || ["script", "title", "option", "noscript"].includes(element.localName)) continue;
    if (!element.getClientRects().length || element.closest(".skip, tr:nth-child(n + 4)")) continue;
    const style = window.getComputedStyle(element);
    const colour = rgba(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const ratio = contrast(colour, ground(window, element));
    ++counts.texts;
    const key = `${element.localName}.${element.getAttribute("class")} has a contrast of ${
      ratio.toFixed(2)}`;
    if (ratio < 4.5 && !seen.has(key)) say(`${key}: "${element.textContent.slice(0, 30)}"`);
    seen.add(key);
  }
}

function checkNoNetwork(window, say) {
  const {document} = window;
  for (const element of document.querySelectorAll("*"))
    for (const name of ["src", "href", "xlink:href", "action", "srcset", "poster", "data"])
      if (element.hasAttribute(name) && !/^(#|data:|blob:)/.test(element.getAttribute(name)))
        say(`<${element.localName} ${name}> refers to ${element.getAttribute(name)}`);
  for (const style of document.querySelectorAll("style"))
    if (/@import|url\((?!#)/.test(style.textContent)) say("a style refers to another file");
  const policy = document.querySelector("meta[http-equiv='Content-Security-Policy']")?.content ?? "";
  if (!policy.includes("default-src 'none'")) say("no policy forbids the network");
  for (const {name} of window.performance.getEntriesByType("resource")) say(`it loaded ${name}`);
}

// ---- all pages ----------------------------------------------------------------------------------

async function checkPage(name, text, width) {
  const seen = new Set();
  const say = (what) => {
    if (!seen.has(what) && seen.size < 20) findings.push(`${name} at ${width}: ${what}`);
    seen.add(what);
  };
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  frame.srcdoc = text;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; });
  const window = frame.contentWindow, page = window.document;
  for (let i = 0; i < 100 && page.documentElement.dataset.ready !== "yes"; ++i) await wait(20);
  if (page.documentElement.dataset.ready !== "yes") say("the page is not complete");
  const check = async () => {
    await wait(0);
    const over = page.documentElement.scrollWidth - window.innerWidth;
    if (over > 0) say(`it is ${over} pixels too wide`);
    for (const error of window.errorsSeen) say(error);
  };
  await check();
  checkPlayer(window, checkNumbers(window, say, false), say);
  await useControls(window, say, check);
  await useKeys(window, say);
  checkNumbers(window, say, true);
  checkNoNetwork(window, say);
  for (const theme of ["light", "dark"]) {
    page.documentElement.style.colorScheme = theme;
    checkContrast(window, say);
  }
  await check();
  counts.pages += 1;
  frame.remove();
}

async function checkAll() {
  const pages = JSON.parse(document.getElementById("pages").textContent);
  for (const {name, text, width} of pages)
    await checkPage(name, text, width).catch((error) =>
      findings.push(`${name} at ${width}: the check failed with ${error.message}`));
}

const result = document.getElementById("findings");
checkAll().catch((error) => findings.push(error.stack)).then(() => {
  result.textContent = [...findings, `counted ${JSON.stringify(counts)}`].join("\n");
});

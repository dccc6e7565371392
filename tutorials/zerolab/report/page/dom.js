// Builds elements of the page. Text from the document is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// html("p", {class: "note"}, "text", html("b", {}, "more")); "onclick" adds a listener.
function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Sets an attribute only if it changes: the browser then has less to do.
function set(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function note(text) {
  return html("p", {class: "note"}, text);
}

// A group of buttons of which one is pressed. `choices`: [{value, text}]. The returned element has
// a function choose(value), which presses a button without calling `chosen`.
function buttonGroup(label, choices, value, chosen) {
  const buttons = choices.map((choice) => html("button", {
    type: "button", "data-value-of": choice.value, "aria-pressed": choice.value === value,
    onclick: (event) => {
      group.choose(choice.value);
      chosen(choice.value);
      if (event.detail > 0) event.currentTarget.blur();   // so that the space bar still plays
    },
  }, choice.text));
  const group = html("div", {class: "group", role: "group", "aria-label": label},
    html("span", {class: "group-label"}, label), buttons);
  group.choose = (now) => buttons.forEach((button, i) =>
    button.setAttribute("aria-pressed", String(choices[i].value === now)));
  group.choose(value);
  return group;
}

function selectBox(label, choices, value, chosen) {
  const box = html("select", {onchange: () => chosen(box.value)},
    choices.map((choice) => html("option", {value: choice.value}, choice.text)));
  box.value = value;
  return html("label", {class: "field"}, html("span", {}, label), box);
}

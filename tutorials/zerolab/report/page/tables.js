// The numbers behind a picture: a table that opens, and the same as a file.

// RFC 4180. A text that a spreadsheet would take as a formula gets an apostrophe in front.
function csvText(headings, rows) {
  const field = (value) => {
    let text = value instanceof Quantity ? String(value.value) : String(value ?? "");
    if (/^[=+\-@\t\r]/.test(text) && !isNumber(Number(text))) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headings, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("");
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  html("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function tableCell(value) {
  if (value instanceof Quantity)
    return html("td", {class: "number"}, new Quantity(value.value, value.path, commas).element());
  const number = typeof value === "number";
  return html("td", {class: number ? "number" : null}, number && Number.isInteger(value)
    ? commas(value) : value ?? "");
}

const MOST_ROWS = 2000;

// `headings`: texts; `rows`: lists of texts, numbers and quantities; `file`: name of the CSV file.
// The table is built when it opens.
function numberTable(title, headings, rows, file, open = false) {
  const box = html("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": title});
  const details = html("details", {class: "numbers"}, html("summary", {}, title), box,
    rows.length > MOST_ROWS ? note(`The first ${commas(MOST_ROWS)} of ${
      commas(rows.length)} rows. The file has all.`) : null,
    html("button", {type: "button", class: "link",
      onclick: () => download(file, csvText(headings, rows))}, `Download ${file}`));
  const build = () => {
    if (box.childElementCount) return;
    box.append(html("table", {},
      html("thead", {}, html("tr", {}, headings.map((heading) =>
        html("th", {scope: "col"}, heading)))),
      html("tbody", {}, rows.slice(0, MOST_ROWS).map((row) =>
        html("tr", {}, row.map(tableCell))))));
  };
  details.addEventListener("toggle", build);
  details.open = open;
  if (open) build();
  return details;
}

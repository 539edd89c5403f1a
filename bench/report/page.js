// Tables that sort, and the filters of the table of all rows.
"use strict";

function cellValue(row, index) {
  const cell = row.cells[index];
  return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1; // what has no value comes last
  if (typeof b === "number") return 1;
  return a.localeCompare(b, undefined, { numeric: true });
}

for (const table of document.querySelectorAll("table.rows")) {
  const head = [...table.tHead.rows[0].cells];
  head.forEach((cell, index) => {
    cell.querySelector("button").addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      head.forEach((each) => each.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = cellValue(a, index), y = cellValue(b, index);
        const missing = (typeof x !== "number") - (typeof y !== "number");
        if (missing) return missing;
        return up ? compare(x, y) : compare(y, x);
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// On paper everything is open, and headings stand on each page: Chromium repeats none that holds a button.
let buttons = [];
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  buttons = [...document.querySelectorAll("table.rows th button")].map((button) => {
    const text = document.createElement("span");
    text.textContent = button.textContent;
    button.replaceWith(text);
    return [button, text];
  });
});
addEventListener("afterprint", () => {
  for (const [button, text] of buttons) text.replaceWith(button);
});

const filters = document.querySelector(".filters");
if (filters) {
  const table = document.querySelector("#all-rows"), count = document.querySelector("#shown");
  const apply = () => {
    const words = filters.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const picked = [...filters.querySelectorAll("select")].filter((each) => each.value);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const name = row.cells[0].textContent.toLowerCase();
      const fits = words.every((word) => name.includes(word)) &&
        picked.every((each) => row.dataset[each.name].split(" ").includes(each.value));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
  };
  filters.addEventListener("input", apply);
  filters.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

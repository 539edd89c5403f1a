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

const filters = document.querySelector(".filters");
if (filters) {
  const table = document.querySelector("#all-rows"), count = document.querySelector("#shown");
  const choices = {
    group: "every family", dtype: "every type", state: "hot and cold", threads: "any threads", verdict: "any verdict",
  };
  for (const [name, text] of Object.entries(choices)) {
    const values = new Set([...table.tBodies[0].rows].flatMap((row) => row.dataset[name].split(" ")));
    const select = document.createElement("select");
    select.name = name;
    select.ariaLabel = text;
    select.append(new Option(text, ""), ...[...values].filter(Boolean).sort().map((value) => new Option(value)));
    filters.append(select);
  }
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

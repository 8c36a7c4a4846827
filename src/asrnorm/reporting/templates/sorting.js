"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], original = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const key = (row, index) => row.cells[index].dataset.sort ?? row.cells[index].textContent.trim();
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", {numeric: true}) : x - y;
  };
  heads.forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = {none: "ascending", ascending: "descending", descending: "none"}[head.getAttribute("aria-sort")];
      heads.forEach(other => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
      const groups = original.filter(row => row.classList.contains("group"));
      groups.forEach(row => { row.hidden = order !== "none"; });
      if (order === "none") { body.append(...original); return; }
      const sign = order === "ascending" ? 1 : -1;
      const rows = original.filter(row => !row.classList.contains("group"));
      const full = rows.filter(row => key(row, index) !== ""), empty = rows.filter(row => key(row, index) === "");
      full.sort((a, b) => sign * compare(key(a, index), key(b, index)));
      body.append(...full, ...empty, ...groups);
    });
  });
}

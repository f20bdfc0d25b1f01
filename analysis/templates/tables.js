// Tables: a header sorts its column, once forth, once back, once as it was.
const numberIn = (text) => {
  const found = /^[+\-−]?\d[\d,]*(\.\d+)?/.exec(text);
  return found ? Number(found[0].replace("−", "-").replaceAll(",", "")) : NaN;
};

function compareCells(one, two) {
  const [a, b] = [numberIn(one), numberIn(two)];
  return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(two, "en", { numeric: true }) : a - b;
}

// Cells that say why there is no number stay behind, whatever the direction.
function sortRows(rows, column, sign) {
  const text = (row) => row.cells[column].textContent.trim();
  const isNumeric = rows.some((row) => !Number.isNaN(numberIn(text(row))));
  const isMissing = (row) => isNumeric && Number.isNaN(numberIn(text(row)));
  return [...rows].sort((one, two) =>
    isMissing(one) - isMissing(two) || sign * compareCells(text(one), text(two)));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows] }));
  if (bodies.every(({ rows }) => rows.length < 2)) return;
  const directions = [null, "descending", "ascending"];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = head.classList.contains("words") ? [null, "ascending", "descending"] : directions;
      const next = order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % order.length];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      for (const { body, rows } of bodies) {
        body.append(...(next ? sortRows(rows, column, next === "ascending" ? 1 : -1) : rows));
      }
    });
  });
}

document.querySelectorAll("table:has(thead)").forEach(makeSortable);

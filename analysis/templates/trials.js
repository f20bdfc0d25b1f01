// The list of trials is made when it is first asked for: a thousand rows take a while.
const trials = JSON.parse(document.getElementById("trials-data").textContent);

function cellOf(value, place) {
  const cell = document.createElement(place ? "td" : "th");
  cell.className = "words";
  if (!place) cell.scope = "row";
  cell.textContent = value;
  return cell;
}

function listTrials() {
  const table = document.getElementById("trials-table");
  if (table.tHead) return;
  const head = table.createTHead().insertRow();
  for (const name of trials.columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.className = "words";
    cell.textContent = name;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const values of trials.rows) {
    const row = document.createElement("tr");
    row.id = `run-${values[0]}`;
    row.append(...values.map(cellOf));
    body.append(row);
  }
  makeSortable(table);
}

document.getElementById("trials").addEventListener("toggle", listTrials);

const quoted = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
document.getElementById("trials-csv").addEventListener("click", (event) => {
  const lines = [trials.columns, ...trials.rows].map((row) => row.map(quoted).join(","));
  event.target.href = `data:text/csv;charset=utf-8,${encodeURIComponent(`${lines.join("\n")}\n`)}`;
});

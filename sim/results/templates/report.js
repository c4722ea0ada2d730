"use strict";

// --- pictures: drawn in the colours of the scheme in which the page is read ---

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", "resetScale2d"]],  // zooming is dragging
};

function draw(div) {
  const style = getComputedStyle(document.documentElement);
  const valueOf = name => JSON.stringify(style.getPropertyValue("--" + name).trim());
  const stored = document.getElementById(div.id + "-figure").textContent;
  const figure = JSON.parse(stored.replace(/"var\(--([\w-]+)\)"/g, (_, name) => valueOf(name)));
  figure.layout.uirevision = "kept";
  if (div.data) {  // drawn before, in other colours: what the reader chose stays
    figure.data.forEach((trace, i) => { trace.visible = div.data[i].visible; });
    (figure.layout.sliders || []).forEach((slider, i) => { slider.active = div.layout.sliders[i].active; });
  }
  return Plotly.react(div, figure.data, figure.layout, CONFIG);
}

const pictures = [...document.querySelectorAll(".plotly-graph-div")];
const resize = divs => divs.forEach(div => Plotly.Plots.resize(div));
pictures.forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => pictures.forEach(draw));
// The first pictures were drawn before the page had its final widths.
addEventListener("load", () => resize(pictures));

// --- one client: the one that is chosen from the list, or by a click on its name in a table or a picture ---

const chooser = document.querySelector(".choice select");
const names = new Set(chooser ? [...chooser.options].map(option => option.value) : []);

function show(name) {
  chooser.value = name;
  for (const div of pictures.filter(div => div.data.some(trace => trace.meta))) {
    Plotly.restyle(div, { visible: div.data.map(trace => !trace.meta || trace.meta === name) });
  }
}

function showFrom(name, section) {
  show(name);
  if (section !== chooser.closest("section")) chooser.scrollIntoView({ block: "center" });
}

if (chooser) {
  chooser.addEventListener("change", () => show(chooser.value));
  for (const div of pictures) {
    div.on("plotly_click", ({ points: [point] }) => {
      const name = [point.id, point.y, ...[point.customdata].flat()].find(word => names.has(word));
      if (name) showFrom(name, div.closest("section"));
    });
  }
  for (const cell of document.querySelectorAll("table.sortable td")) {
    if (!names.has(cell.textContent)) continue;
    cell.className = "client";
    cell.addEventListener("click", () => showFrom(cell.textContent, cell.closest("section")));
  }
}

// --- tables: sorted by a click on a column's head, searched by any of their words ---

const valueIn = (row, column) => {
  const cell = row.cells[column];
  const shown = cell.textContent;
  return cell.classList.contains("number") ? parseFloat(cell.dataset.v ?? NaN) : shown;
};

function compare(first, second, descending) {
  const missing = value => typeof value === "number" && isNaN(value);
  if (missing(first) || missing(second)) return missing(first) - missing(second);  // last, either way
  const order = typeof first === "number" ? first - second
    : first.localeCompare(second, "en", { numeric: true });
  return descending ? -order : order;
}

function sort(table, head) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => [valueIn(row, head.cellIndex), row]);
  rows.sort(([first], [second]) => compare(first, second, descending));
  body.append(...rows.map(([, row]) => row));
  table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function find(table, words, count) {
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
  const shown = rows.filter(row => !row.hidden).length;
  count.textContent = words.length ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
}

for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach(head => {
    head.firstElementChild.addEventListener("click", () => sort(table, head));
  });
}
for (const bar of document.querySelectorAll(".find")) {
  const table = bar.parentElement.querySelector("table");
  const [input, count] = [bar.querySelector("input"), bar.querySelector("output")];
  input.addEventListener("input", () => {
    find(table, input.value.toLowerCase().split(/\s+/).filter(word => word), count);
  });
}

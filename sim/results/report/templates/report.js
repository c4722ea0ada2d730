"use strict";

// --- pictures, in the colors of the light or dark scheme ---

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", {  // drag to zoom
    name: "csv",
    title: "Download this figure's data as CSV",
    icon: window.Plotly?.Icons.disk,
    click: div => download(div.id + ".csv", csvOf(div)),
  }, {
    name: "svg",
    title: "Download this figure as SVG",
    icon: window.Plotly?.Icons.pencil,
    click: div => Plotly.downloadImage(div, { format: "svg", filename: div.id }),
  }, "resetScale2d"]],
};

function stacked(layout, div) {  // put two pictures below each other on a narrow page
  const { xaxis, xaxis2, yaxis, yaxis2 } = layout, room = div.parentElement.clientWidth;
  if (!xaxis2 || room >= parseFloat(div.style.minWidth || 0)) return;
  layout.height = 2 * room;
  Object.assign(div.style, { minWidth: 0, height: layout.height + "px" });
  for (const axis of [xaxis, xaxis2]) axis.domain = [0, 1];
  [yaxis.domain, yaxis2.domain] = [[0.56, 1], [0, 0.44]];
  layout.annotations.slice(0, 2).forEach((title, i) => Object.assign(title, { x: 0.5, y: i ? 0.44 : 1 }));
}

function draw(div) {
  const style = getComputedStyle(document.documentElement);
  const valueOf = name => JSON.stringify(style.getPropertyValue("--" + name).trim());
  const stored = document.getElementById(div.id + "-figure").textContent;
  const figure = JSON.parse(stored.replace(/"var\(--([\w-]+)\)"/g, (_, name) => valueOf(name)));
  figure.layout.uirevision = "kept";
  stacked(figure.layout, div);
  if (div.data) {  // drawn before in other colors: keep the reader's choices
    figure.data.forEach((trace, i) => { trace.visible = div.data[i].visible; });
    (figure.layout.sliders || []).forEach((slider, i) => { slider.active = div.layout.sliders[i].active; });
  }
  return Plotly.react(div, figure.data, figure.layout, CONFIG);
}

const pictures = window.Plotly ? [...document.querySelectorAll(".plotly-graph-div")] : [];
const resize = divs => divs.forEach(div => Plotly.Plots.resize(div));
// Draw one picture after the other without blocking the page; resolves when all are drawn.
const ready = (async () => {
  for (const div of pictures) {
    draw(div);
    await new Promise(resolve => setTimeout(resolve));
  }
})();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  pictures.forEach(draw);
  pictures.filter(div => div.layout.meta).forEach(look);
});
// The first pictures were drawn before the page had its final widths.
addEventListener("load", () => ready.then(() => resize(pictures)));

for (const box of document.querySelectorAll(".scroll")) {
  const update = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
  box.addEventListener("scroll", update);
  new ResizeObserver(update).observe(box);
}

// --- CSV of the visible part of a picture, one row per point or cell ---

const quoted = value => {
  const text = value == null || Number.isNaN(value) ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function* rowsOf(trace) {
  const name = trace.meta || trace.name, at = (values, i) => values && values[i];
  const labels = trace.ids || (Array.isArray(trace.text) ? trace.text : trace.hovertext);
  const cells = trace.type === "heatmap" ? trace.z.entries() : [];
  for (const [i, row] of cells) for (const [j, z] of row.entries()) yield [name, trace.x[j], trace.y[i], z, ""];
  if (trace.type === "heatmap") return;
  for (let i = 0; i < trace.x.length; i++) yield [name, trace.x[i], trace.y[i], "", at(labels, i)];
}

function csvOf(div) {
  const title = axis => (axis.title && axis.title.text) || axis._name[0];
  const { xaxis, yaxis } = div._fullLayout;
  const rows = [["series", title(xaxis), title(yaxis), "value", "label"]];
  for (const trace of div._fullData) {
    if (trace.visible !== true || !trace.x || trace.mode === "text") continue;
    rows.push(...rowsOf(trace));
  }
  return rows.map(row => row.map(quoted).join(",")).join("\n") + "\n";
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// --- timeline: after a zoom, compute the same number of cells again from the devices' intervals ---

const numbersIn = base64 => new Float64Array(Uint8Array.from(atob(base64), c => c.charCodeAt(0)).buffer);

function sharesOf(spans, low, width, bins) {  // share of each bin that the spans cover; times in seconds
  const shares = new Array(bins).fill(0);
  for (let i = 0; i < spans.length && spans[i] < low + width * bins; i += 2) {
    const first = Math.max(0, Math.floor((spans[i] - low) / width));
    const last = Math.min(bins - 1, Math.floor((spans[i + 1] - low) / width));
    for (let bin = first; bin <= last; bin++) {
      const from = low + width * bin;
      shares[bin] += Math.max(0, Math.min(spans[i + 1], from + width) - Math.max(spans[i], from)) / width;
    }
  }
  return shares;
}

function look(div) {
  const { unit_s, bins, busy, down } = div.layout.meta;
  const [low, high] = div.layout.xaxis.range.map(end => end * unit_s), width = (high - low) / bins;
  const states = busy.map((spans, row) => [spans, down[row]].map(
    text => sharesOf(numbersIn(text), low, width, bins)));
  const length = `<br>of ${Number(width.toPrecision(3))} s<`;
  Plotly.restyle(div, {
    x: [Array.from({ length: bins }, (_, bin) => (low + width * (bin + 0.5)) / unit_s)],
    z: [states.map(([busy, down]) => busy.map((share, bin) => (down[bin] > 0.5 ? null : share)))],
    customdata: [states.map(([busy, down]) => busy.map(
      (share, bin) => [share, Math.max(0, 1 - share - down[bin]), down[bin]]))],
    hovertemplate: div.data[0].hovertemplate.replace(/<br>of [^<]*</, length),
  }, [0]);
}

ready.then(() => {
  for (const div of pictures.filter(div => div.layout.meta)) {
    div.on("plotly_relayout", change => {
      if (Object.keys(change).some(key => key.startsWith("xaxis"))) look(div);
    });
  }
});

// --- one client, selected in the list or by a click on its name in a table or picture ---

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
  ready.then(() => pictures.forEach(div => div.on("plotly_click", ({ points: [point] }) => {
    const name = [point.id, point.y, ...[point.customdata].flat()].find(word => names.has(word));
    if (name) showFrom(name, div.closest("section"));
  })));
  for (const cell of document.querySelectorAll("table.sortable td")) {
    if (!names.has(cell.textContent)) continue;
    cell.className = "client";
    cell.addEventListener("click", () => showFrom(cell.textContent, cell.closest("section")));
  }
}

// --- tables: a click on a column's head sorts, the search field filters rows ---

const valueIn = (row, column) => {
  const cell = row.cells[column];
  const shown = cell.textContent;
  return cell.classList.contains("number") ? parseFloat(cell.dataset.v ?? NaN) : shown;
};

function compare(first, second, descending) {
  const missing = value => typeof value === "number" && isNaN(value);
  if (missing(first) || missing(second)) return missing(first) - missing(second);  // missing values last in both orders
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

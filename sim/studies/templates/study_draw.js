// Pictures of a study, as SVG: texts are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const HUES = ["blue", "green", "orange", "purple", "yellow", "faint", "sky", "ink"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4"];
const LETTER = 6.4, SLOPE = 0.6;  // pixels of a letter; height of a tilted label by its length
const MARGIN = { left: 52, right: 14, top: 26, bottom: 36 };

function svg(kind, attributes = {}, ...content) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

function hue(number) { return `var(--${HUES[number % HUES.length]})`; }

function nth_style(number) {
  return { color: hue(number), dash: DASHES[Math.floor(number / HUES.length) % DASHES.length] };
}

function ticks(from, to, most) {
  const rough = (to - from) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(each => power * each >= rough - 1e-12), found = [];
  for (let tick = Math.ceil(from / step - 1e-9) * step; tick <= to + 1e-9 * step; tick += step) found.push(tick);
  return [found, step];
}

function tick_text(value, step) {
  value = Math.abs(value) < 1e-9 * step ? 0 : value;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) });
}

function shortened(words, pixels) {
  const most = Math.max(6, Math.floor(pixels / LETTER));
  return words.length > most ? words.slice(0, most - 1) + "…" : words;
}

// A panel with its axes: {node, x(value), y(value), box}.
function panel(place, x_range, y_range, { title = "", x_unit = [1, ""], y_scale = 1, x_ticks = null, tilted = 0 }) {
  const { left, right, top } = MARGIN, bottom = MARGIN.bottom + tilted;
  const box = { left: place.x + left, top: place.y + top, width: place.width - left - right, height: place.height - top - bottom };
  const x = value => box.left + box.width * (value - x_range[0]) / (x_range[1] - x_range[0] || 1);
  const y = value => box.top + box.height * (1 - (value - y_range[0]) / (y_range[1] - y_range[0] || 1));
  const node = svg("g"), [rows, row_step] = ticks(y_range[0] * y_scale, y_range[1] * y_scale, box.height / 44);
  for (const tick of rows) {
    const at = y(tick / y_scale);
    node.append(svg("line", { x1: box.left, x2: box.left + box.width, y1: at, y2: at, class: "grid" }));
    node.append(svg("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, tick_text(tick, row_step)));
  }
  const [columns, step] = x_ticks ? [[], 1] : ticks(x_range[0] / x_unit[0], x_range[1] / x_unit[0], box.width / 70);
  for (const tick of columns) {
    const at = x(tick * x_unit[0]);
    node.append(svg("line", { x1: at, x2: at, y1: box.top + box.height, y2: box.top + box.height + 4, class: "edge" }));
    node.append(svg("text", { x: at, y: box.top + box.height + 17, "text-anchor": "middle" }, tick_text(tick, step)));
  }
  const room = box.width / (x_ticks?.length || 1), every = Math.ceil((tilted ? 22 : 14) / room);  // labels with less room are left out
  for (const [value, words] of (x_ticks ?? []).filter((_, place) => place % every === 0)) {
    const under = { x: x(value), y: box.top + box.height + (tilted ? 13 : 17), "text-anchor": tilted ? "end" : "middle" };
    if (tilted) under.transform = `rotate(-35 ${under.x} ${under.y})`;
    const longest = tilted ? Math.min(tilted / SLOPE, (x(value) - place.x - 10) / 0.82) : room;
    node.append(svg("text", under, svg("title", {}, words), shortened(words, longest)));
  }
  node.append(svg("line", { x1: box.left, x2: box.left + box.width, y1: box.top + box.height, y2: box.top + box.height, class: "edge" }));
  if (title) node.append(svg("text", { x: box.left, y: place.y + 15, class: "title" }, shortened(title, box.width)));
  return { node, x, y, box };
}

function path_of(points, x, y) {
  return points.map((point, place) => `${place ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
}

function band_of(curve, x, y) {
  const known = curve.filter(point => Number.isFinite(point.low));
  if (known.length < 2) return "";
  const over = known.map(point => [point.x, point.high]), under = known.map(point => [point.x, point.low]).reverse();
  return path_of([...over, ...under], x, y) + "Z";
}

function columns_of(count, width) { return Math.max(1, Math.min(count, width < 560 ? 1 : width < 900 ? 2 : 3, count === 4 ? 2 : 3)); }

// The height that tilted labels need below each of `count` panels; 0 if the labels fit side by side.
function tilt(labels, count, width) {
  const room = (width / columns_of(count, width) - MARGIN.left - MARGIN.right) / labels.length;
  const longest = Math.max(0, ...labels.map(label => label.length)) * LETTER;
  return longest <= room ? 0 : Math.min(110, Math.ceil(longest * SLOPE));
}

// The places of `count` panels in this width: [{x, y, width, height}], and the whole height.
function layout(count, width, below = 0) {
  const columns = columns_of(count, width);
  const each = width / columns, height = below + (count === 1 ? Math.min(430, Math.max(260, width * 0.42)) : 250);
  const places = [...Array(count).keys()].map(number => (
    { x: (number % columns) * each, y: Math.floor(number / columns) * height, width: each, height }
  ));
  return [places, Math.ceil(count / columns) * height];
}

// Rows of a legend below a picture; returns the height.
function legend(node, entries, width, top) {
  const first = width < 560 ? 4 : MARGIN.left;
  let x = first, y = top + 14;
  for (const { words, color, dash, on_hover } of entries) {
    const shown = shortened(words, width - first - 40), needs = 52 + shown.length * 6.6;
    if (x > first && x + needs > width) { x = first; y += 20; }
    const entry = svg("g", { class: "entry" });
    entry.append(svg("line", { x1: x, x2: x + 28, y1: y - 4, y2: y - 4, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash }));
    entry.append(svg("text", { x: x + 34, y }, svg("title", {}, words), shown));
    entry.addEventListener("pointerenter", () => on_hover(true));
    entry.addEventListener("pointerleave", () => on_hover(false));
    node.append(entry);
    x += needs;
  }
  return y - top + 10;
}

// --- pictures as files ---------------------------------------------------------------------------------------

function stand_alone(node) {  // a copy with the colors of the page, and a background
  const copy = node.cloneNode(true), originals = [node, ...node.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((each, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight"])
      each.setAttribute(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll(".cursor").forEach(each => each.remove());
  copy.setAttribute("xmlns", SVG);
  const [, , width, height] = node.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width); copy.setAttribute("height", height);
  copy.prepend(svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  return new XMLSerializer().serializeToString(copy);
}

function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function save_png(name, node) {
  const picture = new Image(), [, , width, height] = node.getAttribute("viewBox").split(" ").map(Number);
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width; canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(content => save(name, content));
  };
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(stand_alone(node));
}

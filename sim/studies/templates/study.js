// The page of a study: controls, curves, results at the end, and details of a run.

const at = id => document.getElementById(id);
const state = { metric: 0, scale: 0, split: -1, each: false, zoom: null, looks: null };
let study, drawn = [];  // of the curves: [{panel, series}]

function element(kind, content = [], attributes = {}) {
  const made = document.createElement(kind);
  made.append(...[content].flat());  // text stays text
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, words]) => element("option", words, { value })));
  select.value = chosen;
}

// --- the look of a group: its color by the compared axis, its dashes by the others -----------------------------

const LOOKS_MAX = 16;  // most looks in a picture; more series share the look of a method, or only the best have one
const BEST_MAX = 12;

// Sets the look of each shown group: {color, dash, words, is_faint}; groups with the same words share an entry of the legend.
function set_looks() {
  const groups = study.shown_groups(), axis = study.compared ?? study.varied[0], split = state.split < 0 ? [] : [state.split];
  const others = study.varied.filter(each => each !== axis && each !== state.split), is_split = axis === undefined || axis === state.split;
  const other_of = group => others.reduce((sum, each) => sum * study.axes[each].values.length + group.values[each], 0);
  const count = is_split ? 1 : study.axes[axis].values.length, combinations = others.reduce((product, each) => product * study.axes[each].values.length, 1);
  const words = new Map(groups.map(group => [group, study.label(group, split)])), names = [...new Set(words.values())];
  let of_group = group => nth_style(names.indexOf(words.get(group)));
  if (is_split && combinations <= LOOKS_MAX) of_group = group => nth_style(other_of(group));
  else if (!is_split && count <= HUES.length && combinations <= Math.min(DASHES.length, 4))
    of_group = group => ({ color: hue(group.values[axis]), dash: DASHES[other_of(group)] });
  else if (!is_split && count * combinations <= LOOKS_MAX) of_group = group => nth_style(group.values[axis] + count * other_of(group));
  else if (names.length > LOOKS_MAX && !is_split && combinations > 1 && count <= LOOKS_MAX) of_group = group => look_of_method(group, axis, groups);
  else if (names.length > LOOKS_MAX) of_group = look_of_the_best(words);
  state.looks = new Map(groups.map(group => [group, { words: words.get(group), is_faint: false, ...of_group(group) }]));
}

function look_of_method(group, axis, groups) {
  const alike = groups.filter(each => each.values[axis] === group.values[axis]);
  const settings = new Set(alike.map(each => study.label(each, state.split < 0 ? [axis] : [axis, state.split]))).size;
  return { ...nth_style(group.values[axis]), words: `${study.axes[axis].values[group.values[axis]]} (${counted(settings, "setting")})` };
}

function look_of_the_best(words) {  // the best have a look each, and the others are gray
  const ends = new Map(), sign = study.metrics[state.metric].higher ? -1 : 1;
  for (const [group, name] of words) ends.set(name, [...(ends.get(name) ?? []), study.final(state.metric, group)?.mean ?? sign * Infinity]);
  const mean = name => sign * ends.get(name).reduce((a, b) => a + b, 0) / ends.get(name).length;
  const ranked = [...ends.keys()].sort((one, other) => (mean(one) - mean(other)) || 0), hues = HUES.filter(each => each !== "faint");
  const places = new Map(ranked.map((name, place) => [name, place])), rest = ranked.length - BEST_MAX;
  return group => {
    const place = places.get(words.get(group));
    if (place >= BEST_MAX) return { color: "var(--faint)", dash: "", words: counted(rest, "other"), is_faint: true };
    return { color: `var(--${hues[place % hues.length]})`, dash: DASHES[Math.floor(place / hues.length)] };
  };
}

function look(group) { return state.looks.get(group); }

function panels() {  // [{title, groups}]
  const groups = study.shown_groups();
  if (state.split < 0) return [{ title: "", groups }];
  const axis = study.axes[state.split];
  const found = axis.values.map((value, number) => (
    { title: `${axis.label} = ${value}`, groups: groups.filter(group => group.values[state.split] === number) }
  ));
  return found.filter(each => each.groups.length);
}

function y_range(values, metric) {
  let least = Infinity, most = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { least = Math.min(least, value); most = Math.max(most, value); }
  if (least > most) return [0, 1];
  const room = 0.06 * (most - least || Math.abs(most) || 1), [low, high] = metric.bounds;
  return [Math.max(low ?? -Infinity, least - room), Math.min(high ?? Infinity, most + room)];
}

// --- curves ----------------------------------------------------------------------------------------------------

function series_of(group, range) {
  const curve = study.curve(state.scale, state.metric, group, range), runs = study.shown_runs(group);
  const lines = !state.each ? [] : runs.map(run => {
    const xs = study.xs(state.scale, run), ys = study.ys(state.metric, run);
    const points = [...xs].map((x, place) => [x, ys[place]]);
    return { run, points: points.filter(([x, y]) => Number.isFinite(y) && x >= range[0] && x <= range[1]) };
  });
  return { group, curve, lines, ...look(group) };
}

function draw_curves() {
  const canvas = at("curves"), metric = study.metrics[state.metric], is_known = study.curves.includes(state.metric);
  at("curves-part").hidden = !is_known || !study.scales.length;
  if (!is_known || !study.scales.length) return;
  const kind = study.scales[state.scale].kind, range = state.zoom ?? study.range(state.scale), width = canvas.parentElement.clientWidth;
  const shown = panels().map(({ title, groups }) => ({ title, series: groups.map(group => series_of(group, range)) }));
  for (const { series } of shown) series.sort((one, other) => other.is_faint - one.is_faint);  // the best on top
  const all = shown.flatMap(each => each.series);
  const values = all.flatMap(each => each.curve.flatMap(point => [point.mean, point.low, point.high]));
  const ys = y_range([...values, ...all.flatMap(each => each.lines.flatMap(line => line.points.map(point => point[1])))], metric);
  const [places, height] = layout(shown.length, width), x_unit = unit_of(kind, range[1]), node = svg("g");
  drawn = shown.map(({ title, series }, number) => {
    const made = panel(places[number], range, ys, { title, x_unit, y_scale: metric.scale });
    for (const each of series) made.node.append(...shapes(each, made));
    node.append(made.node);
    return { panel: made, series };
  });
  const names = `${study.scales[state.scale].label}${x_unit[1] ? ` [${x_unit[1]}]` : ""}`;
  node.append(svg("text", { x: width - MARGIN.right, y: height - 2, "text-anchor": "end" }, names));
  const below = legend(node, entries(all), width, height + 4);
  finish(canvas, node, width, height + below + 4);
  at("curves-title").textContent = `${metric.title} over ${study.scales[state.scale].label}`;
}

function shapes(each, { x, y }) {
  const number = each.group.number, found = [], band = band_of(each.curve, x, y);
  const style = { stroke: each.color, "stroke-dasharray": each.dash, fill: "none", "data-group": number };
  if (band && !each.is_faint) found.push(svg("path", { d: band, fill: each.color, opacity: 0.13, "data-group": number, class: "band" }));
  for (const { run, points } of each.lines) {
    const line = svg("path", { ...style, d: path_of(points, x, y), "stroke-width": 1, opacity: 0.55, class: "one", "data-run": run });
    found.push(line);
  }
  const mean = each.curve.map(point => [point.x, point.mean]);
  found.push(svg("path", { ...style, d: path_of(mean, x, y), "stroke-width": each.is_faint ? 1 : 2.2, opacity: each.is_faint ? 0.5 : 1, class: "mean" }));
  return found;
}

function entries(all) {
  const known = new Map();
  for (const { group, color, dash, words, is_faint } of all) {
    const marks = group.marks ? " †" : "", entry = known.get(words) ?? { words, color, dash, is_faint, numbers: [] };
    if (marks && !entry.words.endsWith(marks)) entry.words += marks;
    entry.numbers.push(group.number);
    known.set(words, entry);
  }
  const sorted = [...known.values()].sort((one, other) => one.is_faint - other.is_faint);
  return sorted.map(entry => ({ ...entry, on_hover: is_on => light(is_on ? entry.numbers : null) }));
}

function light(numbers) {
  for (const each of document.querySelectorAll("svg [data-group]"))
    each.classList.toggle("dim", numbers !== null && !numbers.includes(Number(each.dataset.group)));
}

function finish(canvas, node, width, height) {
  canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
  canvas.style.height = `${height}px`;
  canvas.replaceChildren(node);
}

// --- results at the end ----------------------------------------------------------------------------------------

function columns_of_ends() {  // the axis along which the results stand
  const others = study.varied.filter(axis => axis !== state.split);
  return [study.by, ...others].find(axis => others.includes(axis) && axis !== study.compared) ?? study.compared ?? others[0] ?? -1;
}

function draw_ends() {
  const canvas = at("ends"), metric = study.metrics[state.metric], width = canvas.parentElement.clientWidth, axis = columns_of_ends();
  const values = axis < 0 ? ["all runs"] : study.axes[axis].values, kept = [...values.keys()].filter(v => axis < 0 || study.chosen[axis].has(v));
  const shown = panels(), all = shown.flatMap(each => each.groups);
  const found = new Map(all.map(group => [group.number, study.final(state.metric, group)]));
  const dots = all.flatMap(group => study.shown_runs(group).map(run => study.runs[run].ends[state.metric] ?? NaN));
  const ys = y_range([...dots, ...[...found.values()].flatMap(each => each ? [each.mean ?? NaN, each.low ?? NaN, each.high ?? NaN] : [])], metric);
  const ends = kept.map((value, place) => [place, values[value]]), tilted = tilt(ends.map(each => each[1]), shown.length, width);
  const [places, height] = layout(shown.length, width, tilted), node = svg("g");
  shown.forEach(({ title, groups }, number) => {
    const made = panel(places[number], [-0.5, kept.length - 0.5], ys, { title, y_scale: metric.scale, x_ticks: ends, tilted });
    kept.forEach((value, place) => {
      const here = groups.filter(group => axis < 0 || group.values[axis] === value);
      here.forEach((group, each) => made.node.append(...marks_of(group, place + ((each + 0.5) / here.length - 0.5) * 0.8, made, found, metric)));
    });
    node.append(made.node);
  });
  if (axis >= 0) node.append(svg("text", { x: width - MARGIN.right, y: height - 2, "text-anchor": "end" }, study.axes[axis].label));
  const is_named = axis === (study.compared ?? study.varied[0]) && study.varied.every(each => each === axis || each === state.split);
  const shown_looks = is_named ? [] : entries(all.map(group => ({ group, ...look(group) })));  // else the axis names the colors
  const below = legend(node, shown_looks, width, height + 4);
  finish(canvas, node, width, height + below + 4);
  at("ends-title").textContent = `${metric.title} at the end`;
}

function marks_of(group, position, { x, y }, found, metric) {
  const { color } = look(group), final = found.get(group.number), made = [], center = x(position), about = { "data-group": group.number };
  if (final && Number.isFinite(final.mean ?? NaN)) {
    if (Number.isFinite(final.low ?? NaN) && final.low !== null)
      made.push(svg("line", { x1: center, x2: center, y1: y(final.low), y2: y(final.high), stroke: color, "stroke-width": 2, ...about }));
    made.push(svg("line", { x1: center - 8, x2: center + 8, y1: y(final.mean), y2: y(final.mean), stroke: color, "stroke-width": 2.5, ...about }));
    if (group.marks) made.push(svg("text", { x: center + 9, y: y(final.mean) - 4, class: "mark" }, "†"));
  }
  for (const run of study.shown_runs(group)) {
    const value = study.runs[run].ends[state.metric];
    if (value === null) continue;
    const link = svg("a", { ...about, "data-run": run, tabindex: 0, role: "link" });
    const page = study.page(run);
    if (page) { link.setAttribute("href", page); link.setAttribute("target", "_blank"); link.setAttribute("rel", "noopener"); }
    link.append(svg("circle", { cx: center, cy: y(value), r: 4, fill: color, class: "dot" }));
    link.append(svg("title", {}, `${study.label(group)}, seed ${study.runs[run].seed}: ${with_unit(value, metric)}`));
    made.push(link);
  }
  return made;
}

// --- pointer: values at a place, zoom, and runs ------------------------------------------------------------------

function place_of(event) {  // [x, y] in the picture
  const canvas = at("curves"), box = canvas.getBoundingClientRect(), [, , width, height] = canvas.getAttribute("viewBox").split(" ");
  return [(event.clientX - box.left) * width / box.width, (event.clientY - box.top) * height / box.height];
}

function value_at({ box }, x) {
  const [from, to] = state.zoom ?? study.range(state.scale);
  return Math.min(to, Math.max(from, from + (to - from) * (x - box.left) / box.width));
}

function panel_at([x, y]) {
  return drawn.find(({ panel: { box } }) => x >= box.left - 4 && x <= box.left + box.width + 4 && y >= box.top - 4 && y <= box.top + box.height + 4);
}

function hover(event) {
  const where = place_of(event), found = panel_at(where), tip = at("tip");
  at("curves").querySelectorAll(".cursor").forEach(each => each.remove());
  tip.hidden = !found;
  if (!found) return;
  const { box } = found.panel, value = value_at(found.panel, where[0]), metric = study.metrics[state.metric], kind = study.scales[state.scale].kind;
  at("curves").append(svg("line", { x1: where[0], x2: where[0], y1: box.top, y2: box.top + box.height, class: "cursor" }));
  const rows = found.series.map(({ group, color, dash }) => {
    const runs = study.shown_runs(group).map(run => study.at(state.scale, state.metric, run, value));
    return { group, color, dash, made: study.interval(runs, state.metric) };
  }).filter(row => row.made).sort((one, other) => (other.made.mean - one.made.mean) * (metric.higher ? 1 : -1));
  const lines = rows.slice(0, 10).map(({ group, color, dash, made }) => element("div", [
    svg("svg", { viewBox: "0 0 26 8" }, svg("line", { x2: 26, y1: 4, y2: 4, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash })), `${study.label(group, [state.split])}${group.marks ? " †" : ""}: ${shown_interval(made, metric)}`,
  ]));
  if (rows.length > 10) lines.push(element("div", `and ${rows.length - 10} more`));
  tip.replaceChildren(element("b", shown_x(value, kind)), ...lines);
  const whole = at("curves-box").getBoundingClientRect(), left = event.clientX - whole.left;
  tip.style.top = `${event.clientY - whole.top + 14}px`;
  tip.style.left = `${Math.max(0, Math.min(left + 14, whole.width - tip.offsetWidth - 2))}px`;
}

function drag(event) {
  const start = place_of(event), found = panel_at(start), canvas = at("curves");
  if (!found || event.button) return;
  const run = event.target.closest?.("[data-run]");
  const { box } = found.panel, area = svg("rect", { y: box.top, height: box.height, class: "cursor area", x: start[0], width: 0 });
  canvas.setPointerCapture(event.pointerId);
  const move = other => {
    const [x] = place_of(other), ends = [start[0], x].map(each => Math.min(box.left + box.width, Math.max(box.left, each))).sort((a, b) => a - b);
    canvas.append(area);
    area.setAttribute("x", ends[0]); area.setAttribute("width", ends[1] - ends[0]);
  };
  const end = other => {
    canvas.removeEventListener("pointermove", move);
    const [x] = place_of(other), ends = [value_at(found.panel, start[0]), value_at(found.panel, x)].sort((a, b) => a - b);
    if (Math.abs(x - start[0]) > 6) { state.zoom = ends; draw(); }
    else if (run) open_run(Number(run.dataset.run), other);
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end, { once: true });
}

function open_run(run, event) {  // its page, or how to write it
  const page = study.page(run);
  if (page) window.open(page, "_blank", "noopener");
  show_run(run, event);
}

// Shows the facts of a run beside the pointer of an event, or beside its element if it came from the keyboard.
function show_run(run, event) {
  const one = study.runs[run], group = study.groups[one.group], part = at("run"), page = study.page(run);
  const title = element("h2", `${study.label(group)}, seed ${one.seed}`, { id: "run-title" }), close = element("button", "×", { type: "button", "aria-label": "Close" });
  const facts = study.metrics.map((metric, number) => element("p", `${metric.title}: ${shown_value(one.ends[number] ?? NaN, metric)}`));
  facts.push(...one.warnings.map(each => element("p", `† ${each}`, { class: "note" })));
  if (one.fork) facts.push(element("p", one.fork[0], { class: "note" }));
  if (page) facts.push(element("p", element("a", "Page of this run", { href: page, target: "_blank", rel: "noopener" })));
  else facts.push(...how_to_write(run));
  part.replaceChildren(element("header", [title, close]), ...facts);
  part.hidden = false;
  const opener = document.activeElement;
  part.closed = () => { part.hidden = true; if (opener?.isConnected) opener.focus({ preventScroll: true }); };
  close.addEventListener("click", part.closed);
  place_box(part, event);
  part.focus({ preventScroll: true });
}

function place_box(part, event) {
  const from = event.currentTarget?.contains?.(event.target) || event.clientX ? event.target : null;
  const around = from?.getBoundingClientRect?.(), is_pointer = Boolean(event.clientX || event.clientY);
  const x = is_pointer ? event.clientX : around?.right ?? 0, y = is_pointer ? event.clientY : around?.bottom ?? 0;
  const width = document.documentElement.clientWidth, below = y + 12;
  const top = below + part.offsetHeight <= innerHeight ? below : Math.max(8, y - 12 - part.offsetHeight);
  part.style.left = `${scrollX + Math.max(8, Math.min(x + 12, width - part.offsetWidth - 8))}px`;
  part.style.top = `${scrollY + top}px`;
}

function how_to_write(run) {
  const command = element("code", study.command(run)), copy = element("button", "Copy the command", { type: "button", id: "copy" });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      copy.textContent = "Copied";
    } catch {  // the browser does not allow it here
      getSelection().selectAllChildren(command);
      copy.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
    }
  });
  return [
    element("p", "This run has no page yet. To write it:"), element("p", [command, copy], { class: "command" }),
    element("p", ["Then run ", element("code", "coterie compare"), " again to link it here. ", element("code", "coterie sweep --reports"), " keeps the pages of all runs."], { class: "note" }),
  ];
}

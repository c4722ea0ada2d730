// Filters, choices, tables and downloads of the page of a study.

const CHECKS_MAX = 12;  // values of an axis with a checkbox each; more get a list

// The page's address holds the choices, so that they outlast a reload.
function save_choices() {
  const { metric, scale, split, each } = state, chosen = [...study.chosen, study.chosen_seeds];
  const words = [metric, scale, split, each ? 1 : 0, ...chosen.map((set, place) => hidden_of(place, set).join("."))];
  try { history.replaceState(null, "", "#" + words.join("_")); } catch { /* a page without an address */ }
}

function hidden_of(place, set) {  // places of values that a filter excludes
  const values = place < study.axes.length ? [...study.axes[place].values.keys()] : study.seeds;
  return [...values.keys()].filter(each => !set.has(values[each]));
}

function load_choices() {
  const words = location.hash.slice(1).split("_"), chosen = [...study.chosen, study.chosen_seeds];
  if (words.length !== 4 + chosen.length || !words.slice(0, 4).every(word => /^-?\d+$/.test(word))) return;
  const [metric, scale, split, each] = words.slice(0, 4).map(Number);
  if (metric >= study.metrics.length || scale >= Math.max(1, study.scales.length) || split >= study.axes.length) return;
  Object.assign(state, { metric, scale, split, each: each === 1 });
  words.slice(4).forEach((word, place) => {
    const values = place < study.axes.length ? [...study.axes[place].values.keys()] : study.seeds;
    word.split(".").filter(Boolean).forEach(each => chosen[place].delete(values[Number(each)]));
  });
}

function draw() {
  save_choices();
  set_looks();
  draw_curves();
  draw_ends();
  at("unzoom").hidden = !state.zoom;
  show_rows();
}

function filter_of(words, values, chosen) {  // values: [[value, text]]; chosen: a Set that the filter changes
  const change = (value, is_on) => { if (is_on) chosen.add(value); else chosen.delete(value); };
  const update = () => { state.zoom = null; draw(); };
  if (values.length > CHECKS_MAX) {
    const list = element("select", values.map(([value, text]) => element("option", text, { value, ...(chosen.has(value) ? { selected: "" } : {}) })), { multiple: "", size: 5 });
    list.addEventListener("change", () => {
      values.forEach(([value], place) => change(value, list.options[place].selected));
      update();
    });
    return element("fieldset", [element("legend", words), list]);
  }
  const boxes = values.map(([value, text]) => {
    const box = element("input", [], { type: "checkbox", ...(chosen.has(value) ? { checked: "" } : {}) });
    box.addEventListener("change", () => { change(value, box.checked); update(); });
    return element("label", [box, " ", text]);
  });
  return element("fieldset", [element("legend", words), ...boxes]);
}

function set_up_filters() {
  const filters = study.varied.map(axis => filter_of(study.axes[axis].label, [...study.axes[axis].values.entries()], study.chosen[axis]));
  if (study.seeds.length > 1) filters.push(filter_of("seed", study.seeds.map(seed => [seed, String(seed)]), study.chosen_seeds));
  at("filters").replaceChildren(...filters);
  const to_the_top = () => { for (const list of at("filters").querySelectorAll("select")) list.scrollTop = 0; };
  setTimeout(to_the_top, 50);  // after browsers have scrolled to the last selected value
}

function set_up_choices() {
  options(at("metric"), study.metrics.map((metric, number) => [number, metric.title]), state.metric);
  options(at("scale"), study.scales.map((scale, number) => [number, scale.label]), state.scale);
  const axes = study.varied.map(axis => [axis, study.axes[axis].label]);
  options(at("split"), [[-1, "one picture"], ...axes], state.split);
  for (const name of ["metric", "scale", "split"]) at(name).addEventListener("change", event => {
    state[name] = Number(event.target.value);
    if (name === "scale") state.zoom = null;
    draw();
  });
  at("each").checked = state.each;
  at("each").addEventListener("change", event => { state.each = event.target.checked; draw(); });
  at("unzoom").addEventListener("click", () => { state.zoom = null; draw(); });
}

function set_up_pointer() {
  const curves = at("curves"), ends = at("ends");
  curves.addEventListener("pointermove", hover);
  curves.addEventListener("pointerleave", () => { at("tip").hidden = true; curves.querySelectorAll(".cursor").forEach(each => each.remove()); });
  curves.addEventListener("pointerdown", drag);
  curves.addEventListener("dblclick", () => { state.zoom = null; draw(); });
  const open = event => {
    const found = event.target.closest("[data-run]");
    if (found && (event.type === "click" || event.key === "Enter")) show_run(Number(found.dataset.run), event);
  };
  document.addEventListener("keydown", event => { if (event.key === "Escape" && !at("run").hidden) at("run").closed(); });
  document.addEventListener("pointerdown", event => { if (!at("run").contains(event.target)) at("run").hidden = true; });
  ends.addEventListener("click", open);
  ends.addEventListener("keydown", open);
}

function set_up_downloads() {
  const name = () => study.metrics[state.metric].name.replaceAll(/[^\w-]/g, "-");
  const pictures = { curves: "curves", ends: "ends" };
  for (const [id, canvas] of Object.entries(pictures)) {
    at(`${id}-svg`).addEventListener("click", () => save(`${id}-${name()}.svg`, stand_alone(at(canvas)), "image/svg+xml"));
    at(`${id}-png`).addEventListener("click", () => save_png(`${id}-${name()}.png`, at(canvas)));
  }
  for (const button of document.querySelectorAll("button[data-file]")) {
    const file = button.dataset.file;
    button.addEventListener("click", () => save(file, study.files[file], file.endsWith(".csv") ? "text/csv" : "application/x-tex"));
  }
}

function show_rows() {  // hide the rows of groups that the filters exclude
  for (const row of document.querySelectorAll("tr[data-group]")) row.hidden = !study.shows(study.groups[Number(row.dataset.group)]);
  at("all-seeds").hidden = study.shows_all_seeds();
  if (at("all-runs").open) show_runs();
}

function show_runs() {
  const query = at("find").value, most = 200, metric = study.metrics[state.metric];
  const found = study.shown_groups().flatMap(group => study.shown_runs(group)).filter(run => matches(study.text(run), query));
  const rows = found.slice(0, most).map(run => {
    const one = study.runs[run], open = element("button", one.name, { type: "button", class: "link" });
    open.addEventListener("click", event => show_run(run, event));
    const cells = [study.label(study.groups[one.group]), String(one.seed), with_unit(one.ends[state.metric] ?? NaN, metric), one.warnings.length ? "†" : "", open];
    return element("tr", cells.map(cell => element("td", cell)));
  });
  const heads = ["runs", "seed", metric.title, "warnings", "folder"].map(head => element("th", head));
  at("runs-table").replaceChildren(element("thead", element("tr", heads)), element("tbody", rows));
  at("found").textContent = found.length > most ? `${most} of ${counted(found.length, "run")}` : counted(found.length, "run");
}

async function start() {
  const { facts, columns } = json("facts");
  study = new Study(facts, await unpacked(columns, at("data").textContent));
  const compares_by = study.by !== null && study.by !== study.compared && study.axes[study.by].values.length <= CHECKS_MAX;
  state.split = compares_by && study.axes[study.by].values.length > 1 ? study.by : -1;
  load_choices();
  set_up_filters();
  set_up_choices();
  set_up_pointer();
  set_up_downloads();
  at("all-runs").addEventListener("toggle", show_rows);
  at("find").addEventListener("input", show_runs);
  draw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  document.documentElement.dataset.ready = "yes";
}

const ready = start().catch(error => {
  at("failed").textContent = `The pictures could not be drawn: ${error.message}`;
  at("failed").hidden = false;
  throw error;
});

// The page: what is selected, and what follows from it. Texts of a run are set as text, never as markup.

const MOST_LANES = 9, MOST_PEERS = 12, MOST_ROWS = 200, RUN_TAKES_S = 40;
const still = matchMedia("(prefers-reduced-motion: reduce)");
// The page shows one run, or two that share a past. Each is a side: {run, actor, lanes, suffix}; the suffix makes the
// ids of its elements unique. `run`, `actor` and `time` are those of the side `here`, which is the first one outside of `on`.
let sides = [], here = null, run, actor = 0, time = 0, span = 1, playing = null;

function by_id(id) { return document.getElementById(id + here.suffix) ?? document.getElementById(id); }

// Call a function for a side. After the end of its run, the side stays at the end.
function on(side, act) {
  const before = [here, time];
  [here, run, actor, time] = [side, side.run, side.actor, Math.min(time, side.run.end)];
  try {
    return act();
  } finally {
    [here, time] = before;
    ({ run, actor } = here);
  }
}

function end_of_all() { return Math.max(...sides.map(side => side.run.end)); }

function element(kind, content = "", attributes = {}) {
  const made = document.createElement(kind);
  made.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

async function start() {
  for (const suffix of ["", "-2"]) {
    if (!document.getElementById("facts" + suffix)) continue;
    const { facts, columns } = json("facts" + suffix);
    const found = new Run(facts, await unpacked(columns, document.getElementById("data" + suffix).textContent));
    sides.push({ run: found, actor: 0, lanes: [], suffix });
  }
  [here] = sides;
  ({ run } = here);
  by_id("slider").max = end_of_all();
  for (const [place, name] of run.names.entries()) {
    by_id("names").append(element("option", "", { value: name }));
    if (run.names.length <= 200) by_id("client").append(element("option", name, { value: place }));
  }
  by_id("client").hidden = run.names.length > 200;
  by_id("play").textContent = still.matches ? "Next evaluation" : "Play";
  by_id("speed").parentElement.hidden = still.matches;
  for (const each of document.querySelectorAll("[data-needs]")) each.hidden = !sides.some(side => on(side, needs[each.dataset.needs]));
  for (const side of sides) on(side, () => {
    for (const each of by_id("side").querySelectorAll("[data-needs]")) each.hidden = !needs[each.dataset.needs]();
  });
  if (sides.length > 1) by_id("difference").textContent = difference_words(run);
  listen();
  from_address();
  document.body.classList.add("ready");
}

const needs = {
  messages: () => run.has_messages,
  weights: () => run.first_weight !== null,
  sources: () => run.sources !== null,
  no_sources: () => run.sources === null,
  clusters: () => run.clusters !== null,
  cuts: () => run.cuts.length > 0,
  moves: () => run.marks.length > 0,
};

function from_address() {
  const given = new URLSearchParams(location.hash.slice(1)), at = Number(given.get("t") ?? NaN), who = given.get("c");
  time = clipped(Number.isFinite(at) ? at : run.at);
  const number = who !== null && /^\d+$/.test(who) ? Number(who) : run.number.get(who);
  select(number < run.names.length ? number : run.client);
}

function clipped(at) { return Math.min(Math.max(at, 0), end_of_all()); }

function to_address() {
  const who = run.is_client(actor) ? actor : encodeURIComponent(run.names[actor]);
  try {
    history.replaceState(null, "", `#t=${Number(time.toFixed(4))}&c=${who}`);
  } catch { /* a frame without an origin has no address to change */ }
}

function select(chosen) {
  actor = chosen;
  for (const side of sides) side.actor = side.run.number.get(run.names[chosen]) ?? null;
  const { all } = run.of(actor);
  span = Math.min(run.end, Math.max(run.end / 5000, run.tick * 100, run.end * 80 / Math.max(80, all.length)));
  by_id("client").value = actor;
  by_id("name").value = run.names[actor];
  show();
}

function select_name(name) {
  const number = run.number.get(name);
  if (number !== undefined) select(number);
}

function go(at) { time = clipped(at); show(); }

// Show the selected time and client everywhere. While the page plays, sentences and tables for readers of the
// screen are left alone.
function show() {
  by_id("slider").value = time;
  by_id("slider").setAttribute("aria-valuetext", clock(time));
  by_id("clock").textContent = clock(time);
  draw_curve(by_id("curve"), sides, time);
  show_near();
  for (const side of sides) on(side, show_side);
  if (!playing) to_address();
}

function show_side() {
  const parts = by_id("side").querySelectorAll("section");
  for (const part of parts) if (!part.dataset.needs) part.hidden = actor === null;
  if (actor === null) {
    by_id("sentence").textContent = `${sides[0].run.names[sides[0].actor]} is not part of this run.`;
    return;
  }
  const spoken = sentence(run, actor, time);
  by_id("sentence").textContent = spoken;
  draw_graph(by_id("graph"), run, actor, time);
  show_overview();
  show_client();
  show_lanes();
  if (playing) return;
  by_id("said").textContent = spoken;
  for (const table of by_id("side").querySelectorAll("details.table[open]")) tables[table.dataset.table](table);
}

function show_overview() {
  const counts = overview(run, time);
  const words = ["waiting", "training", "down", "finished"];
  const parts = words.map((word, state) => `${counts[state].toLocaleString("en")} ${word}`).filter((_, state) => counts[state]);
  if (run.knows_messages(time)) parts.push(counted(run.on_their_way(time).length, "message") + " on the way");
  by_id("overview").textContent = parts.join(" · ");
}

function show_near() {
  const near = sides.flatMap(side => on(side, () => happenings(run, time - run.end / 200, time + run.end / 200)));
  by_id("near").textContent = [...new Set(near)].slice(0, 4).join(" · ");
}

function peers_of(models, row, shares) {  // the most important first
  const peers = new Set([...models.keys(), ...row.keys()]);
  if (shares) shares.forEach((share, peer) => { if (share > 0) peers.add(peer); });
  peers.delete(actor);
  const rank = peer => [row.get(peer) ?? 0, models.has(peer) ? 1 : 0, shares?.[peer] ?? 0, models.get(peer)?.end ?? 0];
  return [...peers].sort((one, other) => {
    const [a, b] = [rank(one), rank(other)], place = a.findIndex((value, each) => value !== b[each]);
    return place < 0 ? one - other : b[place] - a[place];
  });
}

function show_client() {
  const client = run.is_client(actor), place = run.graph_at(time), row = client ? run.row(actor, place) : new Map();
  const knows = run.knows_messages(time), models = knows ? run.last_models(actor, time) : new Map();
  const made = client ? run.made_of(actor, time) : null, peers = peers_of(models, row, made?.shares);
  by_id("title").textContent = run.names[actor] + (client && run.clusters ? `, cluster ${run.clusters[actor]}` : "");
  const facts = [["Now", activity(run, actor, time)]];
  if (run.chain(actor, time).length > 1) facts.push(["waits for", chain_words(run, actor, time)]);
  const found = client && run.measure ? result(run, actor, time) : null, done = client ? run.value("done", actor, time) : null;
  if (found) facts.push([run.measure.label, `${found.text} at ${clock(found.time)}${rank_words(found)}`]);
  if (done) facts.push(["iterations", `${done.value.toLocaleString("en")} at ${clock(done.time)}`]);
  if (client && knows && state_of(actor) !== DOWN) facts.push(["mailbox", mailbox_words(run, actor, time)]);
  if (made) facts.push(["contributions", made_of_words(run, actor, made)]);
  by_id("facts-list").replaceChildren(...facts.flatMap(([name, what]) => [element("dt", name), element("dd", what)]));
  const heads = ["peer", ...(run.clusters ? ["cluster"] : []), ...(place >= 0 && client ? ["weight"] : []), ...(made ? ["share"] : []), ...(knows ? ["last model message", "sent at", "arrived"] : [])];
  const rows = peers.slice(0, MOST_PEERS).map(peer => {
    const model = models.get(peer), cells = [link(peer)];
    if (run.clusters) cells.push(run.is_client(peer) ? String(run.clusters[peer]) : "");
    if (place >= 0 && client) cells.push(row.has(peer) ? String(Number(row.get(peer).toPrecision(3))) : "");
    if (made) cells.push(run.is_client(peer) ? percent(made.shares[peer]) : "");
    if (knows) cells.push(...(model ? [model.type, clock(model.sent), `${age(time - model.end)} ago`] : ["none", "", ""]));
    return cells;
  });
  fill(by_id("peers"), heads, rows);
  by_id("more-peers").textContent = peers.length > MOST_PEERS ? `The first ${MOST_PEERS} of ${peers.length} peers.` : "";
  by_id("rows-part").hidden = !needs.weights() || !client;
  if (!by_id("rows-part").hidden) draw_rows(by_id("rows"), run, actor, steady_peers(), time);
  by_id("made-part").hidden = !needs.sources() || !client;
  if (!by_id("made-part").hidden) draw_made_of(by_id("made"), run, actor, time);
}

function state_of(client) { return run.stretch(client, time).state; }

// Peers with the largest weights over the run, in an order that does not change with time.
function steady_peers() {
  if (here.steady?.actor !== actor) {
    const sums = new Map();
    for (const row of run.rows(actor))
      for (const [peer, given] of row) sums.set(peer, (sums.get(peer) ?? 0) + given);
    const best = [...sums].sort((one, other) => other[1] - one[1]).slice(0, MOST_PEERS).map(([peer]) => peer);
    here.steady = { actor, best: best.sort((one, other) => one - other) };
  }
  return here.steady.best;
}

function link(chosen) {
  const name = run.names[chosen], button = element("button", name, { type: "button", class: "link" });
  button.addEventListener("click", () => select_name(name));
  return button;
}

function shown_window() {
  const from = Math.min(Math.max(0, time - span / 2), Math.max(0, run.end - span));
  return [from, from + span];
}

function show_lanes() {
  if (!run.has_messages) return;
  const [from, to] = shown_window(), number = new Map(run.names.map((_, each) => [each, each]));
  const counts = new Map();
  for (const place of messages_between(run, actor, number, from, to)) {
    const peer = run.columns.from[place] === actor ? run.columns.to[place] : run.columns.from[place];
    counts.set(peer, (counts.get(peer) ?? 0) + 1);
  }
  counts.delete(actor);
  // Lanes keep their places while the same peers are shown.
  const kept = here.lanes.filter(each => each !== actor && counts.has(each));
  const others = [...counts].filter(([peer]) => !kept.includes(peer)).sort((one, other) => other[1] - one[1]).map(([peer]) => peer);
  const lanes = here.lanes = [actor, ...[...kept, ...others].slice(0, MOST_LANES - 1)];
  const { shown, dense } = draw_lanes(by_id("lanes"), run, actor, lanes, time, [from, to]);
  const part = `${clock(from)} to ${clock(to)}: ${counted(shown.length, "message")} of ${run.names[actor]} with ${counted(lanes.length - 1, "peer")}`;
  const left = counts.size - lanes.length + 1, more = left > 0 ? `; ${counted(left, "further peer")} not shown` : "";
  const missing = run.knows_messages(time) ? "" : " " + outside(from, to);
  by_id("window").textContent = part + more + (dense ? ", as numbers: zoom in to see each message." : ".") + missing;
}

function outside(from, to) {  // numbers of messages outside of the window that the page has in full
  const { bins } = run.messages, { sent_in, got_in, failed_in } = run.columns, count = run.names.length;
  let [sent, got, failed] = [0, 0, 0];
  for (let bin = 0; bins && bin < bins; bin++) {
    const start = run.end * bin / bins, end = run.end * (bin + 1) / bins, place = bin * count + actor;
    if (end < from || start > to) continue;
    sent += sent_in[place]; got += got_in[place]; failed += failed_in[place];
  }
  return `This page has messages in full only from ${clock(run.messages.from)} to ${clock(run.messages.to)}; about this time, ` +
    `${run.names[actor]} sent ${sent} and received ${got}, and ${failed} to it failed. To see them, write the page with --at.`;
}

// --- time that passes -----------------------------------------------------------------------------------------

function play() {
  if (still.matches) { next_evaluation(); return; }
  if (playing) { stop(); return; }
  if (time >= end_of_all()) time = 0;
  playing = { last: null };
  by_id("play").textContent = "Pause";
  requestAnimationFrame(frame);
}

function frame(now) {
  if (!playing) return;
  const passed = playing.last === null ? 0 : (now - playing.last) / 1000;
  playing.last = now;
  time = clipped(time + passed * end_of_all() / RUN_TAKES_S * Number(by_id("speed").value));
  if (time >= end_of_all()) { stop(); return; }
  show();
  requestAnimationFrame(frame);
}

function stop() {
  playing = null;
  by_id("play").textContent = "Play";
  show();
}

function next_evaluation() {
  const times = run.columns.measure_time ?? [], place = after(times, run.ticks(time));
  go(place < times.length ? times[place] * run.tick : end_of_all());
}

// --- input ----------------------------------------------------------------------------------------------------

const keys = {
  " ": () => play(),
  ArrowLeft: event => step(-1, event.shiftKey),
  ArrowRight: event => step(1, event.shiftKey),
  ArrowUp: () => select((actor + run.names.length - 1) % run.names.length),
  ArrowDown: () => select((actor + 1) % run.names.length),
  Home: () => go(0),
  End: () => go(end_of_all()),
  "[": () => to_mark(-1),
  "]": () => to_mark(1),
  "+": () => zoom(0.5),
  "-": () => zoom(2),
};

function step(sign, to_event) {
  go(to_event ? nearest(side => side.run.next_event(side.actor, time, sign < 0), sign) : time + sign * span / 20);
}

// Go to the next or previous arrival or departure.
function to_mark(sign) {
  go(nearest(side => side.run.next_mark(time, sign < 0), sign));
}

// The nearest of the times that a function finds for the sides; null for none.
function nearest(of, sign) {
  const found = sides.filter(side => side.actor !== null).map(of).filter(at => at !== null);
  if (!found.length) return time;
  return sign < 0 ? Math.max(...found) : Math.min(...found);
}

function zoom(factor) {
  span = Math.min(end_of_all(), Math.max(run.tick * 50, span * factor));
  show();
}

function listen() {
  by_id("slider").addEventListener("input", event => go(Number(event.target.value)));
  by_id("play").addEventListener("click", play);
  by_id("client").addEventListener("change", event => select(Number(event.target.value)));
  by_id("name").addEventListener("change", event => {
    const given = event.target.value, found = run.number.get(given) ?? run.number.get(`client-${given}`);
    if (found !== undefined) select(found); else event.target.value = run.names[actor];
  });
  const buttons = { back: () => step(-1, true), on: () => step(1, true), "last-move": () => to_mark(-1), "next-move": () => to_mark(1), differ: to_difference };
  for (const [id, act] of Object.entries(buttons)) by_id(id)?.addEventListener("click", act);
  for (const side of sides) on(side, () => listen_to(side));
  const drag = event => {
    const at = time_at(by_id("curve"), end_of_all(), event.clientX);
    if (event.buttons) go(at);
    by_id("values").textContent = values_words(sides, at);
  };
  by_id("curve").addEventListener("pointerdown", drag);
  by_id("curve").addEventListener("pointermove", drag);
  by_id("curve").addEventListener("pointerleave", () => { by_id("values").textContent = ""; });
  document.addEventListener("keydown", event => {
    const on = what => event.target.matches(what);
    if (on("input[type=search], input[list], select") || (on("summary, button") && event.key === " ")) return;
    const key = on("input[type=range]") ? { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" }[event.key] ?? event.key : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[key]) return;
    event.preventDefault();
    keys[key](event);
  });
  window.addEventListener("hashchange", from_address);
  window.addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours.clear(); show(); });
}

function listen_to(side) {
  const act_on = act => event => on(side, () => act(event));
  by_id("find").addEventListener("input", act_on(() => tables.everyone(by_id("everyone"))));
  by_id("wider").addEventListener("click", () => zoom(2));
  by_id("closer").addEventListener("click", () => zoom(0.5));
  by_id("graph").addEventListener("click", event => select_name(on(side, () => choose(event))));
  by_id("weights").addEventListener("pointermove", act_on(event => {
    const said = weight_words(run, run.graph_at(time), cell_at(by_id("weights"), run, event));
    if (said) by_id("matrix-said").textContent = said;
  }));
  by_id("weights").addEventListener("click", event => select_name(on(side, () => run.names[cell_at(by_id("weights"), run, event)?.[0]])));
  by_id("weights").addEventListener("pointerleave", act_on(() => tables.matrix()));
  for (const table of by_id("side").querySelectorAll("details.table"))
    table.addEventListener("toggle", act_on(() => { if (table.open && actor !== null) tables[table.dataset.table](table); }));
}

function to_difference() {
  const { difference } = run.pair;
  if (!difference) return;
  select_name(difference.actor);
  go(difference.time);
}

function choose(event) {  // the name of the actor that is drawn next to the mouse
  const canvas = by_id("graph"), box = canvas.getBoundingClientRect(), points = places_of(canvas, run);
  const far = ([x, y]) => Math.hypot(x - (event.clientX - box.left), y - (event.clientY - box.top));
  const nearest = points.reduce((best, point, each) => (far(point) < far(points[best]) ? each : best), 0);
  return far(points[nearest]) < radius_of(canvas, run) + 10 ? run.names[nearest] : null;
}

const ready = start();
ready.catch(error => {
  by_id("failed").hidden = false;
  by_id("failed").textContent = `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});

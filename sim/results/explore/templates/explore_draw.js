// Pictures of a run on canvases. Each function draws one picture at one time.

const MOST_EDGES = 2500, MOST_DOTS = 1200, MOST_SLANTED = 700;

const colours = new Map();  // cleared when the browser changes between light and dark

function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  return colours.get(name);
}

// Return the context of a canvas that is as sharp as the screen, cleared, with its width and height in CSS pixels.
function fresh(canvas) {
  const { width, height } = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `12px ${colour("font")}`;
  pen.lineWidth = 1;
  pen.globalAlpha = 1;
  pen.setLineDash([]);
  return { pen, width, height };
}

function line(pen, points, style, width = 1) {
  pen.beginPath();
  points.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.stroke();
}

function label(pen, text, x, y, style, align = "left") {
  pen.fillStyle = style;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

function state_colour(state) { return colour(["waiting", "training", "down", "half-weight"][state]); }

// --- the curve above ------------------------------------------------------------------------------------------

const CURVE_LEFT = 44, CURVE_RIGHT = 10;  // px; the slider has the same margins

function time_at(canvas, end, x) {
  const box = canvas.getBoundingClientRect(), width = box.width - CURVE_LEFT - CURVE_RIGHT;
  return Math.min(Math.max((x - box.left - CURVE_LEFT) / width, 0), 1) * end;
}

function draw_curve(canvas, sides, time) {
  const { pen, width, height } = fresh(canvas), bottom = height - 18, top = 8, [{ run }] = sides;
  const last = Math.max(...sides.map(side => side.run.end));
  const x = at => CURVE_LEFT + (width - CURVE_LEFT - CURVE_RIGHT) * (last ? at / last : 0);
  pen.fillStyle = colour("warning");
  for (const [start, end] of sides.flatMap(side => side.run.cuts)) pen.fillRect(x(start), top, Math.max(1, x(Math.min(end, last)) - x(start)), bottom - top);
  if (run.has_messages && (run.messages.from > 0 || run.messages.to < run.end)) {
    pen.fillStyle = colour("band");
    pen.fillRect(x(run.messages.from), bottom - 4, x(run.messages.to) - x(run.messages.from), 4);
  }
  line(pen, [[CURVE_LEFT, bottom], [width - CURVE_RIGHT, bottom]], colour("edge"));
  ticks(pen, last, x, bottom, width);
  if (run.measure) {
    const shown = sides.filter(side => side.run.measure?.name === run.measure.name), ranges = shown.map(side => side.run.range);
    const least = Math.min(...ranges.map(range => range[0]));
    let most = Math.max(...ranges.map(range => range[1]));
    if (run.measure.is_share) most = Math.max(0.01, ...shown.flatMap(side => [...means(side.run), ...series(side.run, side.actor)]).map(point => point[1]));
    const y = value => bottom - (bottom - top) * (most > least ? (value - least) / (most - least) : 0.5);
    label(pen, measured(run, most), CURVE_LEFT - 6, top + 8, colour("faint"), "right");
    label(pen, measured(run, least), CURVE_LEFT - 6, bottom, colour("faint"), "right");
    const place = ([at, value]) => [x(at), y(value)];
    shown.toReversed().forEach(side => {
      const second = side !== sides[0];
      pen.setLineDash(second ? [5, 4] : []);
      line(pen, means(side.run).map(place), colour("faint"), 1.5);
      pen.setLineDash([]);
      line(pen, series(side.run, side.actor).map(place), colour(second ? "purple" : "blue"), 2);
    });
  }
  const marks = new Map(sides.flatMap(side => side.run.marks.map(mark => [[mark[0], side.run.names[mark[1]], mark[2]].join(), [mark, side]])));
  for (const [[at, client, event], side] of marks.values()) {
    const comes = ["join", "rejoin", "restarted"].includes(event), size = client === side.actor ? 6 : 4;
    pen.fillStyle = colour(comes ? "green" : "orange");
    pen.beginPath();
    pen.moveTo(x(at) - size, comes ? bottom : bottom - 2 * size);
    pen.lineTo(x(at) + size, comes ? bottom : bottom - 2 * size);
    pen.lineTo(x(at), comes ? bottom - 2 * size : bottom);
    pen.fill();
  }
  if (run.pair?.difference) {
    const at = x(run.pair.difference.time), left = at > width / 2;
    pen.setLineDash([4, 3]);
    line(pen, [[at, top - 4], [at, bottom]], colour("red"), 1.5);
    pen.setLineDash([]);
    label(pen, "first difference", at + (left ? -5 : 5), top + 8, colour("red"), left ? "right" : "left");
  }
  line(pen, [[x(time), top - 4], [x(time), bottom + 4]], colour("ink"), 1.5);
}

function means(run) {
  if (!run.measure) return [];
  const { mean, measure_time } = run.columns;
  return Array.from(mean, (value, row) => [measure_time[row] * run.tick, value]).filter(([, value]) => Number.isFinite(value));
}

function series(run, actor) {
  if (!run.measure || actor === null || !run.is_client(actor)) return [];
  const { measure_time, measure } = run.columns, found = [];
  for (let row = 0; row < measure_time.length; row++) {
    const value = measure[row * run.clients + actor];
    if (Number.isFinite(value)) found.push([measure_time[row] * run.tick, value]);
  }
  return found;
}

function ticks(pen, last, x, y, width) {
  for (let part = 0; part <= 4; part++) {
    const at = last * part / 4, align = part === 0 ? "left" : part === 4 ? "right" : "center";
    if (width > 500 || part % 2 === 0) label(pen, age(at), x(at), y + 15, colour("faint"), align);
  }
}

// --- the graph ------------------------------------------------------------------------------------------------

function places_of(canvas, run) {
  const { width, height } = canvas.getBoundingClientRect(), margin = run.names.length > 60 ? 14 : 24;
  const reach = Math.min(width, height) / 2 - margin;
  return run.points.map(([x, y]) => [width / 2 + x * reach, height / 2 + y * Math.min(reach, height / 2 - margin)]);
}

function radius_of(canvas, run) {
  const { width, height } = canvas.getBoundingClientRect();
  return Math.max(3, Math.min(15, 0.42 * Math.min(width, height) / Math.sqrt(run.names.length) / 1.6));
}

function draw_graph(canvas, run, actor, time) {
  const { pen } = fresh(canvas), points = places_of(canvas, run), radius = radius_of(canvas, run);
  draw_edges(pen, run, actor, time, points);
  draw_chain(pen, run.chain(actor, time).map(each => points[each]));
  if (run.knows_messages(time)) draw_dots(pen, run, actor, time, points, radius);
  const small = radius < 8;
  for (let each = 0; each < run.names.length; each++) {
    const [x, y] = points[each], client = run.is_client(each), state = client ? run.stretch(each, time).state : null;
    pen.beginPath();
    if (client) pen.arc(x, y, radius, 0, 2 * Math.PI); else pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    pen.fillStyle = client ? state_colour(state) : colour("panel");
    pen.strokeStyle = colour("edge");
    pen.setLineDash(state === DOWN ? [2, 2] : []);
    pen.lineWidth = 1;
    pen.fill();
    pen.stroke();
    pen.setLineDash([]);
    if (client && state !== DOWN) draw_ring(pen, run, each, time, x, y, radius);
    if (each === actor) {
      pen.beginPath();
      pen.arc(x, y, radius + (small ? 4 : 8), 0, 2 * Math.PI);
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.stroke();
    }
    if (!small) {
      const style = state === TRAINS ? colour("page") : state === WAITS ? colour("page") : colour("ink");
      label(pen, client ? run.names[each].replace(/^client-/, "").slice(0, 4) : "S", x, y + 4, style, "center");
    }
  }
}

function draw_ring(pen, run, client, time, x, y, radius) {
  const found = run.measure ? run.value("measure", client, time) : null;
  if (!found || radius < 5) return;
  const turn = -Math.PI / 2, width = radius < 8 ? 1.5 : 3, reach = radius + width / 2 + 1.5;
  pen.lineWidth = width;
  for (const [share, style] of [[1, colour("grid")], [run.quality(found.value), colour("blue")]]) {
    pen.beginPath();
    pen.arc(x, y, reach, turn, turn + 2 * Math.PI * Math.min(1, Math.max(0, share)));
    pen.strokeStyle = style;
    pen.stroke();
  }
}

function draw_edges(pen, run, actor, time, points) {
  const place = run.graph_at(time);
  if (place < 0) {
    pen.globalAlpha = run.links.length > 600 ? 0.35 : 0.7;
    const shown = run.names.length > 300 ? [] : run.links.slice(0, MOST_EDGES);
    for (const [one, other] of shown) line(pen, [points[one], points[other]], colour("grid"));
    pen.globalAlpha = 1;
    for (const pair of run.links.filter(pair => pair.includes(actor))) line(pen, pair.map(each => points[each]), colour("edge"));
    return;
  }
  const { found, largest } = run.edges(place, MOST_EDGES);
  for (const [from, to, weight] of found) {
    pen.globalAlpha = 0.25 + 0.5 * weight / largest;
    line(pen, [points[from], points[to]], colour("edge"), 0.5 + 2 * weight / largest);
  }
  for (const [peer, given] of run.is_client(actor) ? run.row(actor, place) : []) {
    if (given <= 0) continue;
    pen.globalAlpha = 0.15 + 0.85 * given / largest;
    line(pen, [points[actor], points[peer]], colour("blue"), 1 + 4 * given / largest);
  }
  pen.globalAlpha = 1;
}

function draw_chain(pen, points) {  // from a client that waits to the one that ends its wait, and so on
  if (points.length < 2) return;
  pen.setLineDash([5, 4]);
  line(pen, points, colour("ink"), 1.5);
  pen.setLineDash([]);
}

function draw_dots(pen, run, actor, time, points, radius) {
  const way = run.on_their_way(time), step = Math.ceil(way.length / MOST_DOTS), size = Math.max(2, radius / 4);
  for (let each = 0; each < way.length; each += step) {
    const found = run.message(way[each]), share = (time - found.sent) / Math.max(found.end - found.sent, run.tick);
    const [[x, y], [u, v]] = [points[found.from], points[found.to]], mine = found.from === actor || found.to === actor;
    pen.beginPath();
    pen.arc(x + (u - x) * share, y + (v - y) * share, mine ? size * 1.5 : size, 0, 2 * Math.PI);
    pen.fillStyle = found.fails ? colour("red") : colour(mine ? "blue" : "faint");
    pen.fill();
  }
}

// --- weights of all clients ---------------------------------------------------------------------------------------

const MATRIX_LEFT = 56, MATRIX_TOP = 20;

function draw_matrix(canvas, run, actor, place) {  // one row per client that gives weights
  canvas.style.height = `${canvas.getBoundingClientRect().width - MATRIX_LEFT + MATRIX_TOP}px`;
  const { pen, width } = fresh(canvas), cell = (width - MATRIX_LEFT) / run.clients, [from, to, weight] = run.weights(place);
  const most = weight.reduce((a, b) => Math.max(a, b), 0) || 1, size = Math.max(1, cell > 6 ? cell - 1 : cell);
  pen.fillStyle = colour("panel");
  pen.fillRect(MATRIX_LEFT, MATRIX_TOP, width - MATRIX_LEFT, width - MATRIX_LEFT);
  pen.fillStyle = colour("full-weight");
  for (let each = 0; each < from.length; each++) {
    if (!(weight[each] > 0)) continue;
    pen.globalAlpha = 0.06 + 0.94 * weight[each] / most;
    pen.fillRect(MATRIX_LEFT + to[each] * cell, MATRIX_TOP + from[each] * cell, size, size);
  }
  pen.globalAlpha = 1;
  for (let client = 0; client < run.clients; client++) {
    if (cell < 11 && client !== actor) continue;
    const name = run.names[client].replace(/^client-/, "").slice(0, 7), style = colour(client === actor ? "ink" : "faint"), middle = (client + 0.5) * cell;
    label(pen, name, MATRIX_LEFT - 6, MATRIX_TOP + middle + 4, style, "right");
    if (cell >= 22 || client === actor) label(pen, name, MATRIX_LEFT + middle, MATRIX_TOP - 6, style, "center");
  }
  if (run.is_client(actor)) {
    pen.strokeStyle = colour("blue");
    pen.lineWidth = 1.5;
    pen.strokeRect(MATRIX_LEFT, MATRIX_TOP + actor * cell, width - MATRIX_LEFT, size);
  }
}

function cell_at(canvas, run, event) {  // [from, to] of the cell that the mouse points at, or null
  const box = canvas.getBoundingClientRect(), cell = (box.width - MATRIX_LEFT) / run.clients;
  const to = Math.floor((event.clientX - box.left - MATRIX_LEFT) / cell), from = Math.floor((event.clientY - box.top - MATRIX_TOP) / cell);
  return [from, to].every(each => each >= 0 && each < run.clients) ? [from, to] : null;
}

// --- one client -----------------------------------------------------------------------------------------------

function draw_rows(canvas, run, client, peers, time) {  // weights given to peers, over time
  const left = 84, row = 16;
  canvas.style.height = `${peers.length * row + 20}px`;
  const { pen, width, height } = fresh(canvas), times = run.columns.weight_time;
  const x = at => left + (width - left - 8) * (run.end ? at / run.end : 0), rows = run.rows(client);
  const most = Math.max(0, ...rows.flatMap(row => [...row.values()]));
  peers.forEach((peer, line_number) => {
    const y = line_number * row;
    label(pen, run.names[peer].slice(0, 12), left - 6, y + 12, colour("faint"), "right");
    rows.forEach((given, place) => {
      const end = place + 1 < times.length ? times[place + 1] * run.tick : run.end, start = x(times[place] * run.tick);
      pen.fillStyle = colour("full-weight");
      pen.globalAlpha = most ? Math.max(0, given.get(peer) ?? 0) / most : 0;
      pen.fillRect(start, y + 2, Math.max(1, x(end) - start), row - 3);
    });
    pen.globalAlpha = 1;
  });
  line(pen, [[x(time), 0], [x(time), height - 18]], colour("orange"), 1.5);
  ticks(pen, run.end, x, height - 19, 0);
}

function draw_made_of(canvas, run, client, time) {  // shares of recent training over the evaluations, stacked
  const left = 84, { pen, width, height } = fresh(canvas), bottom = height - 18;
  const x = at => left + (width - left - 8) * (run.end ? at / run.end : 0), y = share => bottom - (bottom - 4) * share;
  label(pen, "100%", left - 6, 12, colour("faint"), "right");
  label(pen, "0%", left - 6, bottom, colour("faint"), "right");
  const { times, recent } = run.sources;
  let drawn = 0;
  times.forEach((at, place) => {
    const made = run.made_of(client, at);
    if (!made || made.time !== at) return;
    drawn++;
    const start = at, end = place + 1 < times.length ? times[place + 1] : run.end;
    let sum = 0;
    run.groups(client, made.shares).forEach((share, group) => {
      pen.fillStyle = colour(["blue", "sky", "orange"][group]);
      pen.fillRect(x(start), y(sum + share), Math.max(5, x(end) - x(start) - 0.5), y(sum) - y(sum + share));
      sum += share;
    });
  });
  if (!drawn) label(pen, `No training of the last ${age(recent)} before an evaluation.`, left + 8, height / 2, colour("faint"));
  line(pen, [[x(time), 0], [x(time), bottom]], colour("ink"), 1.5);
  ticks(pen, run.end, x, bottom, 0);
}

// --- lanes ----------------------------------------------------------------------------------------------------

const LANE = 46, LANES_LEFT = 84;

function draw_lanes(canvas, run, actor, lanes, time, [from, to]) {
  canvas.style.height = `${lanes.length * LANE + 26}px`;
  const { pen, width, height } = fresh(canvas), number = new Map(lanes.map((each, place) => [each, place]));
  const x = at => LANES_LEFT + (width - LANES_LEFT - 10) * (at - from) / (to - from), y = each => number.get(each) * LANE + 22;
  for (const each of lanes) {
    label(pen, run.names[each].slice(0, 12), LANES_LEFT - 8, y(each) + 4, colour(each === actor ? "ink" : "faint"), "right");
    line(pen, [[x(from), y(each)], [x(to), y(each)]], colour("grid"));
    if (run.is_client(each)) for (const { state, since, until } of run.stretches(each, from, to)) {
      if (state === DOWN) continue;
      const high = state === WAITS ? 3 : 9;
      pen.fillStyle = state_colour(state);
      pen.fillRect(x(since), y(each) - high / 2, Math.max(0.5, x(until) - x(since)), high);
    }
  }
  const shown = messages_between(run, actor, number, from, to);
  pen.save();
  pen.beginPath();
  pen.rect(LANES_LEFT, 0, width - LANES_LEFT - 10, height);
  pen.clip();
  const dense = shown.length > MOST_SLANTED;
  if (dense) draw_density(pen, run, actor, shown, x, y, width);
  else for (const place of shown) draw_slanted(pen, run.message(place), actor, x, y);
  pen.restore();
  line(pen, [[x(time), 4], [x(time), height - 18]], colour("ink"), 1.5);
  for (let part = 0; part <= 2; part++)
    label(pen, clock(from + (to - from) * part / 2), x(from + (to - from) * part / 2), height - 4, colour("faint"), ["left", "center", "right"][part]);
  return { shown, dense };
}

function messages_between(run, actor, number, from, to) {  // of the actor with the other lanes
  const { all, sent } = run.of(actor), c = run.columns, found = [], end = after(sent, run.ticks(to)), least = run.ticks(from);
  for (let each = 0; each < end; each++) {
    const place = all[each];
    if (c.sent[place] + c.took[place] >= least && number.has(c.from[place]) && number.has(c.to[place])) found.push(place);
  }
  return found;
}

function draw_slanted(pen, found, actor, x, y) {
  pen.globalAlpha = 0.85;
  pen.setLineDash(found.fate === "delivered" ? [] : [4, 3]);
  const style = found.fails ? colour("red") : colour(found.from === actor ? "blue" : "purple");
  const [u, v] = [x(found.end), y(found.to)], [s, r] = [x(found.sent), y(found.from)];
  line(pen, [[s, r], [u, v]], style, 1.2);
  pen.setLineDash([]);
  if (found.fails) {
    line(pen, [[u - 4, v - 4], [u + 4, v + 4]], style, 1.5);
    line(pen, [[u - 4, v + 4], [u + 4, v - 4]], style, 1.5);
  } else if (found.fate === "delivered") {
    pen.beginPath();
    pen.arc(u, v, 2.5, 0, 2 * Math.PI);
    pen.fillStyle = style;
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function draw_density(pen, run, actor, shown, x, y, width) {  // numbers of messages by 4 px, above and below the lanes
  const counts = new Map(), bar = 4;
  for (const place of shown) {
    const found = run.message(place), mine = found.from === actor, peer = mine ? found.to : found.from;
    const key = [peer, Math.floor(x(found.sent) / bar), found.fails ? 2 : mine ? 0 : 1].join();
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(1, ...counts.values());
  for (const [key, count] of counts) {
    const [peer, column, kind] = key.split(",").map(Number), high = 16 * count / most;
    pen.fillStyle = kind === 2 ? colour("red") : colour(kind ? "purple" : "blue");
    pen.fillRect(column * bar, kind ? y(peer) + 6 : y(peer) - 6 - high, bar - 1, high);
  }
}

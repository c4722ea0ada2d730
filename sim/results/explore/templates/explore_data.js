// Columns of a run and look-ups in them. Times are in seconds of virtual time; clients and servers are numbers.

const [WAITS, TRAINS, DOWN, FINISHED] = [0, 1, 2, 3];
const FIRST_SENDER = 3;  // state_end: 0 a timer, 1 cut short, 2 unknown, then 3 + number of the sender

// The number of entries from `first` to before `end` that are at most `value`, in an ascending array, plus `first`.
function after(values, value, first = 0, end = values.length) {
  while (first < end) {
    const middle = (first + end) >> 1;
    if (values[middle] <= value) first = middle + 1; else end = middle;
  }
  return first;
}

class Run {
  constructor(facts, columns) {
    Object.assign(this, facts);
    this.columns = columns;
    this.first_state = starts(columns.state_count);
    this.first_weight = columns.weight_count ? starts(columns.weight_count) : null;
    this.has_messages = facts.messages !== null;
    this.number = new Map(this.names.map((name, place) => [name, place]));
  }

  ticks(time) { return Math.round(time / this.tick); }

  is_client(actor) { return actor < this.clients; }

  stretch(client, time) {  // {state, since, until, end, type}: until is null for the last one
    const c = this.columns, first = this.first_state[client], end = this.first_state[client + 1];
    const place = Math.max(first, after(c.state_start, this.ticks(time), first, end) - 1);
    const until = place + 1 < end ? c.state_start[place + 1] * this.tick : null;
    const since = c.state_start[place] * this.tick;
    return { state: c.state[place], since, until, end: c.state_end[place], type: c.state_type[place] };
  }

  stretches(client, from, to) {  // [{state, since, until}], clipped
    const c = this.columns, end = this.first_state[client + 1], found = [];
    let place = Math.max(this.first_state[client], after(c.state_start, this.ticks(from), this.first_state[client], end) - 1);
    for (; place < end && c.state_start[place] * this.tick < to; place++) {
      const until = place + 1 < end ? c.state_start[place + 1] * this.tick : this.end;
      found.push({ state: c.state[place], since: Math.max(from, c.state_start[place] * this.tick), until: Math.min(to, until) });
    }
    return found;
  }

  // The last known value of a panel ("measure", "done"): {value, time}, or null.
  value(panel, client, time) {
    const times = this.columns[panel + "_time"], values = this.columns[panel];
    if (!times) return null;
    for (let row = after(times, this.ticks(time)) - 1; row >= 0; row--) {
      const value = values[row * this.clients + client];
      if (Number.isFinite(value)) return { value, time: times[row] * this.tick };
    }
    return null;
  }

  get range() {  // of the measure, from the worst to the best value
    if (!this._range) {
      let [least, most] = this.measure?.is_share ? [0, 1] : [Infinity, -Infinity];
      if (!this.measure?.is_share) for (const value of this.columns.measure ?? []) if (Number.isFinite(value)) {
        least = Math.min(least, value); most = Math.max(most, value);
      }
      this._range = least <= most ? [least, most] : [0, 1];
    }
    return this._range;
  }

  quality(value) {  // 0 for the worst, 1 for the best
    const [least, most] = this.range, share = most > least ? (value - least) / (most - least) : 1;
    return this.measure.higher_is_better ? share : 1 - share;
  }

  // The place of the last recorded graph, -1 before the first one.
  graph_at(time) {
    return this.first_weight ? after(this.columns.weight_time, this.ticks(time)) - 1 : -1;
  }

  weights(place) {  // [from, to, weight] of a recorded graph
    if (place < 0) return [[], [], []];
    const c = this.columns, part = [this.first_weight[place], this.first_weight[place + 1]];
    return [c.weight_from.subarray(...part), c.weight_to.subarray(...part), c.weight.subarray(...part)];
  }

  // The largest weights of a recorded graph that are edges, as [from, to, weight], and the largest weight.
  edges(place, most) {
    if (this._edges?.place === place) return this._edges;
    const [from, to, weight] = this.weights(place), largest = new Float32Array(this.clients), found = [];
    weight.forEach((value, each) => { largest[from[each]] = Math.max(largest[from[each]], value); });
    weight.forEach((value, each) => {
      if (value > this.edge * (this.edge_is_share ? largest[from[each]] : 1)) found.push([from[each], to[each], value]);
    });
    found.sort((one, other) => other[2] - one[2]);
    this._edges = { place, found: found.slice(0, most), largest: largest.reduce((a, b) => Math.max(a, b), 0) || 1 };
    return this._edges;
  }

  rows(client) {  // for each recorded graph, a Map of peers to the weights that the client gives them
    if (this._rows?.client === client) return this._rows.found;
    const found = [];
    for (let place = 0; this.first_weight && place + 1 < this.first_weight.length; place++) {
      const [from, to, weight] = this.weights(place), row = new Map();
      for (let each = 0; each < from.length; each++) if (from[each] === client) row.set(to[each], weight[each]);
      found.push(row);
    }
    this._rows = { client, found };
    return found;
  }

  row(client, place) { return this.rows(client)[place] ?? new Map(); }

  // Clients that wait for each other: the actor, the sender of the message that ends its wait, and so on.
  chain(actor, time) {
    const found = [actor];
    while (this.is_client(found.at(-1))) {
      const { state, until, end } = this.stretch(found.at(-1), time);
      if (state !== WAITS || until === null || end < FIRST_SENDER || found.includes(end - FIRST_SENDER)) break;
      found.push(end - FIRST_SENDER);
    }
    return found;
  }

  knows_messages(time) {
    return this.has_messages && time >= this.messages.from && time <= this.messages.to;
  }

  message(place) {
    const c = this.columns, sent = c.sent[place] * this.tick, [fate, why] = this.messages.fates[c.fate[place]];
    return {
      sent, end: sent + c.took[place] * this.tick, from: c.from[place], to: c.to[place], type: this.messages.types[c.type[place]],
      bytes: c.bytes[place], fate, why, fails: fate === "lost" || fate === "dropped",
    };
  }

  on_their_way(time) {  // places of messages
    if (!this.has_messages) return [];
    const { sent, took } = this.columns, now = this.ticks(time), end = after(sent, now), found = [];
    for (let place = 0; place < end; place++) if (sent[place] + took[place] > now) found.push(place);
    return found;
  }

  // Messages of an actor: places by time of sending, and the received ones by time of arrival.
  of(actor) {
    if (this._of?.actor === actor) return this._of;
    const c = this.columns, all = [], got = [];
    for (let place = 0; this.has_messages && place < c.sent.length; place++) {
      if (c.from[place] === actor || c.to[place] === actor) all.push(place);
      if (c.to[place] === actor && this.messages.fates[c.fate[place]][0] === "delivered") got.push(place);
    }
    const ended = place => c.sent[place] + c.took[place];
    got.sort((one, other) => ended(one) - ended(other) || one - other);
    this._of = { actor, all, sent: all.map(place => c.sent[place]), got, ended: got.map(ended) };
    return this._of;
  }

  // Map of peers to the last large message that the actor received from them.
  last_models(actor, time) {
    const { got, ended } = this.of(actor), c = this.columns, found = new Map();
    for (let each = after(ended, this.ticks(time)) - 1; each >= 0; each--) {
      const place = got[each];
      if (this.messages.large[c.type[place]] && !found.has(c.from[place])) found.set(c.from[place], this.message(place));
      if (found.size >= this.names.length - 1) break;
    }
    return found;
  }

  next_event(actor, time, back) {  // the time of the next change of state or delivery; null without any
    const now = this.ticks(time), times = [];
    if (this.is_client(actor)) {
      const states = this.columns.state_start, [first, end] = [this.first_state[actor], this.first_state[actor + 1]];
      times.push(neighbor(states, now, first, end, back));
    }
    const { ended } = this.of(actor);
    times.push(neighbor(ended, now, 0, ended.length, back));
    const known = times.filter(each => each !== null);
    return known.length ? (back ? Math.max(...known) : Math.min(...known)) * this.tick : null;
  }

  next_mark(time, back) {  // the time of the next arrival or departure; null without any
    const times = this.marks.map(([at]) => at).filter(at => (back ? at < time - this.tick : at > time + this.tick));
    return times.length ? (back ? Math.max(...times) : Math.min(...times)) : null;
  }

  // Shares of all clients in a model: {shares, time, since}, or null.
  made_of(client, time) {
    if (!this.sources) return null;
    const { times, since } = this.sources;
    for (let place = after(times, time + this.tick / 2) - 1; place >= 0; place--) {
      const first = (place * this.clients + client) * this.clients;
      const shares = Array.from(this.columns.made_of.subarray(first, first + this.clients), each => each / 65535);
      if (shares.some(each => each > 0)) return { shares, time: times[place], since: since[place] };
    }
    return null;
  }

  // [own, cluster, others] of shares; cluster is 0 if clusters are unknown.
  groups(client, shares) {
    const sums = [0, 0, 0];
    shares.forEach((share, source) => {
      const same = this.clusters && this.clusters[source] === this.clusters[client];
      sums[source === client ? 0 : same ? 1 : 2] += share;
    });
    return sums;
  }
}

function starts(counts) {
  const found = new Uint32Array(counts.length + 1);
  counts.forEach((count, place) => { found[place + 1] = found[place] + count; });
  return found;
}

function neighbor(values, now, first, end, back) {
  const place = back ? after(values, now - 1, first, end) - 1 : after(values, now, first, end);
  return place >= first && place < end ? values[place] : null;
}

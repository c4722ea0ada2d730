// Sentences about a run.

const STATE_WORDS = ["waits", "trains", "is down", "has finished"];
const SINCE_WORDS = ["has been waiting", "is training, without a pause", "has been down", "has been finished"];

function clock(seconds) {
  const digits = Math.abs(seconds) < 1 ? 4 : 2, sign = seconds < 0 ? "-" : "";
  let rest = Number(Math.abs(seconds).toFixed(digits));  // rounded first: never 1 min 60 s
  const parts = [];
  for (const [unit, length] of [["h", 3600], ["min", 60]]) {
    if (rest >= length) { parts.push(`${Math.floor(rest / length)} ${unit}`); rest %= length; }
  }
  const last = rest.toFixed(digits).replace(/\.?0+$/, "");
  if (last !== "0" || !parts.length) parts.push(`${last} s`);
  return sign + parts.join(" ");
}

function age(seconds) {
  const ms = seconds < 0.001 ? Number((seconds * 1000).toPrecision(2)) : Math.round(seconds * 1000);
  return seconds > 0 && ms < 1000 ? `${ms} ms` : clock(Number(seconds.toPrecision(3)));
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let place = 0;
  while (bytes >= 999.5 && place < 3) { bytes /= 1000; place++; }
  return `${Number(bytes.toPrecision(3))} ${units[place]}`;
}

function percent(share) { return `${(100 * share).toFixed(1)}%`; }

function counted(count, noun) { return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`; }

function measured(run, value) { return run.measure.is_share ? percent(value) : String(Number(value.toPrecision(4))); }

function difference(run, value) {
  const sign = value < 0 ? "\u2212" : "+", size = Math.abs(value);
  return sign + (run.measure.is_share ? `${(100 * size).toFixed(1)} points` : Number(size.toPrecision(3)));
}

// The activity of an actor at a time, without its name: "has been waiting since 3 s".
function activity(run, actor, time) {
  if (!run.is_client(actor)) return "is a server; its activity is not recorded";
  const { state, since, until, end, type } = run.stretch(actor, time);
  let said = `${SINCE_WORDS[state]} since ${clock(since)}`;
  if (state === FINISHED) said += ", when its budget was exhausted";
  if (state === WAITS && until !== null) {
    const how = end >= FIRST_SENDER ? `with ${run.wait_types[type]} from ${run.names[end - FIRST_SENDER]}`
      : ["with a time limit or a pause", "without training", "for a reason that was not recorded"][end];
    said += `; the wait ends at ${clock(until)} ${how}`;
  } else if (state === WAITS) said += " until the end of the run";
  else if (until !== null) said += `, until ${clock(until)}`;
  return said;
}

// Whom the sender waits for that ends the actor's wait, and so on; empty if it does not wait.
function chain_words(run, actor, time) {
  const chain = run.chain(actor, time), last = chain.at(-1);
  if (chain.length < 2) return "";
  const waits = chain.slice(1).map(each => `which waits for ${run.names[each]}`).join(", ").replace("which ", "");
  return `${run.names[actor]} ${waits}${run.is_client(last) ? `, which ${activity(run, last, time)}` : ""}.`;
}

// The state in one word for tables.
function state_word(run, actor, time) {
  return run.is_client(actor) ? run.states[run.stretch(actor, time).state] : "server";
}

// What the recorded messages tell about a client's mailbox. They do not tell when a message is handled.
function mailbox_words(run, client, time) {
  const { since } = run.stretch(client, time), { got, ended } = run.of(client);
  const end = after(ended, run.ticks(time)), count = end - after(ended, run.ticks(since) - 1);
  const last = end ? run.message(got[end - 1]) : null;
  const said = [count ? `${counted(count, "message")} ${count === 1 ? "has" : "have"} arrived since ${clock(since)}` : `no message has arrived since ${clock(since)}`];
  if (last) said.push(`the last one, ${last.type} from ${run.names[last.from]}, ${age(time - last.end)} ago`);
  return `${said.join("; ")}. coterie explore does not record which messages are unread. To list them, run coterie explain.`;
}

function weight_words(run, place, cell) {  // of one cell of the matrix of weights
  if (!cell || place < 0) return "";
  const [from, to] = cell, given = run.row(from, place).get(to), at = clock(run.columns.weight_time[place] * run.tick);
  return `${run.names[from]} gives ${run.names[to]} ${given === undefined ? "no weight" : Number(given.toPrecision(3))} at ${at}.`;
}

function result(run, client, time) {  // {text, time, rank, of} or null
  const found = run.value("measure", client, time);
  if (!found) return null;
  let better = 0, of = 0;
  for (let other = 0; other < run.clients; other++) {
    const value = run.value("measure", other, time);
    if (!value || value.time !== found.time) continue;
    of++;
    if (run.measure.higher_is_better ? value.value > found.value : value.value < found.value) better++;
  }
  const before = run.value("measure", client, found.time - 2 * run.tick);
  const text = measured(run, found.value) + (before ? ` (${difference(run, found.value - before.value)} since ${clock(before.time)})` : "");
  return { text, time: found.time, rank: better + 1, of };
}

// The rank among the clients that were evaluated at the same time; none for a client that was alone.
function rank_words(found) {
  return found.of > 1 ? `, rank ${found.rank} of ${found.of}` : "";
}

function sentence(run, actor, time) {
  const said = [`At ${clock(time)}, ${run.names[actor]} ${activity(run, actor, time)}.`];
  if (run.chain(actor, time).length > 2) said.push(`Chain: ${chain_words(run, actor, time)}`);
  const found = run.is_client(actor) && run.measure ? result(run, actor, time) : null;
  if (found) said.push(`Its ${run.measure.label} at ${clock(found.time)} was ${found.text}${rank_words(found)}.`);
  if (run.knows_messages(time)) {
    const way = run.on_their_way(time), { from, to } = run.columns;
    const [coming, going] = [to, from].map(column => way.filter(place => column[place] === actor).length);
    said.push(`${counted(coming, "message")} ${coming === 1 ? "is" : "are"} on the way to it, and ${going} from it.`);
  }
  const made = run.is_client(actor) ? run.made_of(actor, time) : null;
  if (made) said.push(made_of_words(run, actor, made));
  return said.join(" ");
}

function made_of_words(run, client, made) {
  const [own, cluster, others] = run.groups(client, made.shares).map(percent);
  const by = run.clusters ? `${own} from the client, ${cluster} from the rest of its cluster, and ${others} from other clusters` : `${own} from the client, and ${others} from other clients`;
  return `Contributions to its model at ${clock(made.time)}, counting training since ${clock(made.since)}: ${by}.`;
}

function overview(run, time) {
  const counts = [0, 0, 0, 0];
  for (let client = 0; client < run.clients; client++) counts[run.stretch(client, time).state]++;
  return counts;
}

function happenings(run, from, to) {  // sentences about arrivals, departures and cuts
  const said = run.marks.filter(([time]) => time >= from && time <= to)
    .map(([time, client, event, state]) => `${clock(time)}: ${run.names[client]}, ${event}${state ? ` (${state})` : ""}`);
  for (const [start, end] of run.cuts)
    if (start <= to && end >= from) said.push(`${clock(start)} to ${clock(end)}: the network is cut`);
  return said;
}

// Values of the curve at a time, which the mouse points at: those of the last evaluation.
function values_words(sides, time) {
  return sides.map(({ run, actor }, place) => {
    const known = means(run).filter(([at]) => at <= time + run.tick / 2).at(-1);
    if (!known) return "";
    const own = actor !== null && run.is_client(actor) ? run.value("measure", actor, time) : null;
    const words = `mean ${measured(run, known[1])}` + (own ? `, ${run.names[actor]} ${measured(run, own.value)}` : "");
    return `${place ? "second run" : `${clock(time)}, evaluated at ${clock(known[0])}`}: ${words}`;
  }).filter(words => words).join("; ");
}

function difference_words(run) {
  const { difference, runs } = run.pair;
  if (!difference) return `All events of ${runs[0]} and ${runs[1]} are equal.`;
  return `The runs are equal until ${clock(difference.time)}. The next event of ${runs[0]}: ${difference.events[0]}. The next event of ${runs[1]}: ${difference.events[1]}.`;
}

// Runs of a study and their curves: filters, means and intervals over seeds.

const POINTS = 101;  // of a mean curve, over the visible part of the axis

class Study {
  constructor(facts, columns) {
    Object.assign(this, facts);
    this.columns = columns;
    this.first = [0];
    for (const count of columns.count) this.first.push(this.first.at(-1) + count);
    this.chosen = this.axes.map(axis => new Set(axis.values.keys()));
    this.chosen_seeds = new Set(this.seeds);
    this.groups.forEach((group, number) => {
      group.number = number;
      group.runs = [...this.runs.keys()].filter(run => this.runs[run].group === number);
    });
  }

  get varied() { return [...this.axes.keys()].filter(axis => this.axes[axis].values.length > 1); }

  shows_all_seeds() { return this.chosen_seeds.size === this.seeds.length; }

  shows(group) { return group.values.every((value, axis) => this.chosen[axis].has(value)); }

  shown_groups() { return this.groups.filter(group => this.shows(group)); }

  shown_runs(group) { return group.runs.filter(run => this.chosen_seeds.has(this.runs[run].seed)); }

  // The label of a group without the axes in `but`.
  label(group, but = []) {
    const axes = this.varied.filter(axis => !but.includes(axis));
    const words = axes.map(axis => {
      const value = this.axes[axis].values[group.values[axis]];
      return !/^[-\d.]+$/.test(value) ? value : `${this.axes[axis].label} ${value}`;
    });
    return words.join(", ") || "all runs";
  }

  part(name, run) { return this.columns[name].subarray(this.first[run], this.first[run + 1]); }

  xs(scale, run) { return this.part("scale" + scale, run); }

  ys(metric, run) { return this.part("metric" + metric, run); }

  end(scale, run) { return this.first[run] < this.first[run + 1] ? this.xs(scale, run).at(-1) : 0; }

  // The last value of a run at or before x; NaN before the first, and after the end of a run that was cut short.
  at(scale, metric, run, x) {
    const xs = this.xs(scale, run), place = up_to(xs, x) - 1;
    if (place < 0 || (!this.runs[run].held && x > xs.at(-1) * (1 + 1e-6))) return NaN;
    return this.ys(metric, run)[place];
  }

  // Mean and interval over the shown seeds of a group: [{x, mean, low, high}].
  curve(scale, metric, group, [from, to]) {
    const runs = this.shown_runs(group), found = [];
    const cut = Math.min(...runs.filter(run => !this.runs[run].held).map(run => this.end(scale, run)));
    for (let point = 0; point < POINTS; point++) {
      const x = from + (to - from) * point / (POINTS - 1);
      if (x > cut * (1 + 1e-6)) break;
      const made = this.interval(runs.map(run => this.at(scale, metric, run, x)), metric);
      if (made) found.push({ x, ...made });
    }
    return found;
  }

  interval(values, metric) {
    const known = values.filter(Number.isFinite), count = known.length, [least, most] = this.metrics[metric].bounds;
    if (!count) return null;
    const mean = known.reduce((a, b) => a + b, 0) / count;
    if (count < 2) return { mean, low: NaN, high: NaN };
    const spread = Math.sqrt(known.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (count - 1));
    const half = this.quantiles[count - 2] * spread / Math.sqrt(count);
    return { mean, low: Math.max(least ?? -Infinity, mean - half), high: Math.min(most ?? Infinity, mean + half) };
  }

  // Mean and interval at the end: the table's figures if all seeds are shown.
  final(metric, group) {
    if (this.shows_all_seeds()) return this.lines[metric][group.number];
    return this.interval(this.shown_runs(group).map(run => this.runs[run].ends[metric]), metric);
  }

  // The least and the largest x of the shown runs.
  range(scale) {
    const ends = this.shown_groups().flatMap(group => this.shown_runs(group)).map(run => this.end(scale, run));
    return [0, Math.max(...ends, 0) || 1];
  }

  text(run) {  // of a run, for a search
    const { group, seed, name, warnings } = this.runs[run], { values } = this.groups[group];
    const settings = this.axes.map((axis, place) => `${axis.label} = ${axis.values[values[place]]}`);
    return [this.label(this.groups[group]), ...settings, `seed ${seed}`, name, ...warnings].join(" ");
  }

  command(run) {  // that writes the page of a run, from any folder if this page is a file
    const { name, place } = this.runs[run];
    if (location.protocol !== "file:") return `coterie report ${in_shell(name)}`;
    const path = decodeURIComponent(new URL(place.split("/").map(encodeURIComponent).join("/"), location.href).pathname);
    return `coterie report ${in_shell(path.replace(/^\/(?=[A-Za-z]:)/, ""))}`;
  }

  page(run) {  // the address of a run's page; null without one
    const { place, pages } = this.runs[run];
    return pages.length ? [...place.split("/"), pages[0]].map(encodeURIComponent).join("/") : null;
  }
}

// Whether a text contains all words of a query, in any order and in any case; numbers only as a whole: 1 is not in 10.
function matches(text, query) {
  const lower = text.toLowerCase(), tokens = new Set(lower.split(/[\s,;=]+/));
  return query.toLowerCase().split(/\s+/).every(word => /^-?[\d.]+$/.test(word) ? tokens.has(word) : lower.includes(word));
}

function counted(count, noun) { return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`; }

function in_shell(path) { return /^[\w.\/:+~-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`; }

function up_to(values, x) {  // the number of values that are at most x, in an ascending array
  let first = 0, end = values.length;
  while (first < end) {
    const middle = (first + end) >> 1;
    if (values[middle] <= x * (1 + 1e-9)) first = middle + 1; else end = middle;
  }
  return first;
}

// --- texts ---------------------------------------------------------------------------------------------------

function shown_value(value, metric) {
  if (!Number.isFinite(value)) return "–";
  if (metric.scale === 100) return (100 * value).toFixed(1);
  const is_whole = 999.5 <= Math.abs(value) && Math.abs(value) < 1e6;  // as in the tables
  return Number(is_whole ? Math.round(value) : value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 21 });
}

function with_unit(value, metric) { return shown_value(value, metric) + (metric.unit ? " " + metric.unit : ""); }

function shown_interval(found, metric) {
  if (!found || found.mean === null) return "–";
  const mean = with_unit(found.mean, metric);
  if (!Number.isFinite(found.low)) return mean;
  return `${mean} (${shown_value(found.low, metric)} to ${shown_value(found.high, metric)})`;
}

const UNITS = {
  seconds: [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]],
  joules: [[1e9, "GJ"], [1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"]],
  bytes: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
};
const COUNTS = [[1e15, "10¹⁵"], [1e12, "10¹²"], [1e9, "10⁹"], [1e6, "10⁶"], [1, ""]];

function unit_of(kind, largest) {  // [factor, name], for the ticks of an axis
  const units = UNITS[kind] ?? COUNTS;
  return units.find(([factor]) => largest >= 2 * factor) ?? units.at(-1);
}

function shown_x(value, kind) {
  const [factor, unit] = unit_of(kind, value);
  return `${Number((value / factor).toPrecision(3)).toLocaleString("en")} ${unit}`.trim();
}

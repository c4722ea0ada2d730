// Tables of the side `here`, which are filled while they are open.

function fill(table, heads, rows) {
  const head = element("tr", heads.map(name => element("th", name, { scope: "col" })));
  const body = rows.map(cells => element("tr", cells.map(cell => element("td", cell))));
  table.replaceChildren(element("thead", head), element("tbody", body));
}

const tables = {
  matrix() {
    const place = run.graph_at(time), canvas = by_id("weights");
    canvas.hidden = place < 0;
    by_id("matrix-said").textContent = place < 0 ? "No weights were recorded up to this time."
      : `Weights at ${clock(run.columns.weight_time[place] * run.tick)}: each row has the weights that one client gives. Point at a cell to see it.`;
    if (place >= 0) draw_matrix(canvas, run, actor, place);
  },
  everyone(details) {
    const wanted = by_id("find").value.toLowerCase(), rows = [];
    let left = 0;
    for (let each = 0; each < run.names.length; each++) {
      const words = [run.names[each], state_word(run, each, time)];
      if (wanted && !words.some(word => word.toLowerCase().includes(wanted))) continue;
      if (rows.length >= MOST_ROWS) { left++; continue; }
      const found = run.is_client(each) && run.measure ? result_only(each) : "";
      rows.push([link(each), activity(run, each, time), found]);
    }
    fill(details.querySelector("table"), ["client", "activity", run.measure?.label ?? ""], rows);
    by_id("found").textContent = left ? `${left.toLocaleString("en")} more` : counted(rows.length, "row");
  },
  letters(details) {
    const number = new Map(here.lanes.map(each => [each, each])), all = run.has_messages ? messages_between(run, actor, number, ...shown_window()) : [];
    const rows = all.slice(0, MOST_ROWS).map(run.message, run).map(found => [
      clock(found.sent), run.names[found.from], run.names[found.to], found.type, size(found.bytes),
      found.fate + (found.why ? ` (${found.why})` : ""), clock(found.end),
    ]);
    fill(details.querySelector("table"), ["sent", "from", "to", "type", "size", "fate", "ended"], rows);
  },
  moves(details) {
    fill(details.querySelector("table"), ["arrivals, departures and cuts of the network"], happenings(run, 0, run.end).map(text => [text]));
  },
};

function result_only(client) {
  const found = run.value("measure", client, time);
  return found ? `${measured(run, found.value)} at ${clock(found.time)}` : "";
}

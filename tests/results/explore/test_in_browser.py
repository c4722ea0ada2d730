"""The page of a run in a real browser: it looks up the states that Python computed, and says them."""

from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from sim.results.explore.page import SecondRun, write_page
from sim.results.explore.states import STATES, client_states, state_at
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from tests.results.explore.test_states import small_run
from tests.results.report.test_browser import BROWSER, ask
from tests.results.synthetic import END_S, with_messages, write_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine"),
]

LOOKED_UP = """
return PAIRS.map(([client, time]) => {
  select(client); go(time);
  const said = document.getElementById("said").textContent;
  return [run.states[run.stretch(client, time).state], said, location.hash];
});
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    directory = write_run(tmp_path_factory.mktemp("explored"), evaluations=5, steps=20)
    directory.write_events(with_messages(directory))
    return directory


def test_the_page_shows_the_states_of_the_tables(directory: RunDirectory) -> None:
    random, states = Random(3), client_states(RunView(directory))
    pairs = [(random.randrange(12), round(random.uniform(0, END_S), 3)) for _ in range(100)]
    found = ask(write_page(directory, ""), LOOKED_UP.replace("PAIRS", str([list(pair) for pair in pairs])))
    for (client, time_s), (state, said, address) in zip(pairs, found, strict=True):
        assert state == STATES[state_at(states[client], time_s).state]
        assert f"client-{client} {'is ' * (state == 'down')}{state}" in said
        assert address == f"#t={time_s:g}&c={client}"


def test_a_chain_of_waits_is_told(tmp_path: Path) -> None:
    script = "go(12); select(0); go(12); return document.getElementById('said').textContent;"
    said = ask(write_page(small_run(tmp_path), ""), script)
    assert "client-0 waits since 10 s; the wait ends at 14 s with Pull from client-1" in said


def test_keys_move_in_time_and_among_clients(directory: RunDirectory) -> None:
    script = """
    const event = (key, shiftKey) => new KeyboardEvent("keydown", {key, shiftKey, bubbles: true});
    const press = (key, shiftKey = false) => document.body.dispatchEvent(event(key, shiftKey));
    select(0); go(100);
    press("ArrowRight"); const later = time > 100;
    press("Home"); const first = time;
    press("ArrowRight", true); const change = time;
    press("ArrowDown"); const next = actor;
    for (const each of document.querySelectorAll("details")) each.open = true;
    tables.everyone(document.getElementById("everyone"));
    return [later, first, change > 0, next, document.querySelectorAll("#everyone tbody tr").length];
    """
    assert ask(write_page(directory, ""), script) == [True, 0, True, 1, 12]


def test_two_runs_are_shown_in_step(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (small_run(folder) for folder in folders)
    events = pl.read_parquet(two.table_path("events"))
    crash = (pl.col("event") == "crash") & (pl.col("actor") == "client-0")
    events.with_columns(pl.when(crash).then(pl.lit("leave")).otherwise("event").alias("event")).write_parquet(
        two.table_path("events")
    )
    difference = (50.0, ("crash of client-0 at 50 s", "leave of client-0 at 50 s"), "client-0")
    script = """
    const said = suffix => document.getElementById("sentence" + suffix).textContent;
    const click = id => document.getElementById(id).click();
    select(1); go(7); const before = [said(""), said("-2")];
    click("differ"); const at = [time, run.names[actor], sides[1].run.names[sides[1].actor]];
    document.querySelector("#peers-2 button.link").click();
    const chosen = sides.map(side => side.run.names[side.actor]);
    click("next-move"); const later = time; click("last-move");
    document.getElementById("closer-2").click();
    for (const each of document.querySelectorAll("details")) each.open = true;
    for (const side of sides) on(side, () => tables.everyone(by_id("everyone")));
    const rows = ["", "-2"].map(suffix => document.querySelectorAll(`#everyone${suffix} tbody tr`).length);
    return [before, at, chosen, [later, time], rows, document.getElementById("difference").textContent];
    """
    page = write_page(one, "", second=SecondRun(two, "", difference=difference))
    before, at, chosen, times, rows, told = ask(page, script)
    assert before[0] == before[1] and "client-1 is training, without a pause since 5 s" in before[0]
    assert at == [50, "client-0", "client-0"]
    assert chosen[0] == chosen[1] != "client-0"
    assert times == [100, 50]
    assert rows == [3, 3]
    assert "equal until 50 s" in told and "leave of client-0" in told
    narrow = (
        "const boxes = [...document.querySelectorAll('.side')].map(side => side.getBoundingClientRect());"
    )
    narrow += "return [boxes[1].top >= boxes[0].bottom, document.documentElement.scrollWidth];"
    below, width = ask(page, narrow, "--window-size=420,900")
    assert below and width <= 500  # some browsers have no narrower window


def test_weights_and_values_are_told_under_the_mouse(directory: RunDirectory) -> None:
    script = """
    select(2); go(END);
    const matrix = document.getElementById("matrix"), canvas = document.getElementById("weights");
    const point = (of, x, y, kind = "pointermove") => {
      const box = of.getBoundingClientRect();
      of.dispatchEvent(new PointerEvent(kind, {clientX: box.left + x(box), clientY: box.top + y(box)}));
    };
    matrix.open = true; tables.matrix();
    const told = [];
    for (const [from, to] of [[0, 1], [2, 2], [11, 3]]) {
      const place = number => box => (number + 0.5) * (box.width - MATRIX_LEFT) / run.clients;
      point(canvas, box => MATRIX_LEFT + place(to)(box), box => MATRIX_TOP + place(from)(box));
      told.push(document.getElementById("matrix-said").textContent);
    }
    point(canvas, () => 0, () => 0, "pointerleave");
    told.push(document.getElementById("matrix-said").textContent);
    const middle = box => CURVE_LEFT + (box.width - CURVE_LEFT - CURVE_RIGHT) / 2;
    point(document.getElementById("curve"), middle, () => 50);
    return [told, document.getElementById("values").textContent];
    """
    view = RunView(directory)
    told, values = ask(write_page(directory, ""), script.replace("END", str(END_S)))
    source, target, weight = view.snapshot(END_S)
    given = dict(zip(zip(source.tolist(), target.tolist(), strict=True), weight.tolist(), strict=True))
    for (one, other), said in zip([(0, 1), (2, 2), (11, 3)], told[:3], strict=True):
        value = given.get((one, other)) if one != other else None
        if value:
            assert float(said.split(f"client-{one} gives client-{other} ")[1].split()[0]) == pytest.approx(
                value, rel=5e-3
            )
        else:
            assert said.startswith(f"client-{one} gives client-{other} no weight")
    assert told[3].startswith("Weights at 10 min: each row")
    assert view.measure is not None
    panel = view.measure[1]
    row = int(np.searchsorted(panel.times, END_S / 2, side="right")) - 1
    assert f"client-2 {100 * panel.values[row, 2]:.1f}%" in values
    assert values.startswith("5 min, evaluated at 5 min: mean ")


def test_a_mailbox_is_told_as_far_as_it_is_known(tmp_path: Path) -> None:
    script = """
    select(0);
    return [12, 13, 19, 60].map(at => { go(at); return document.getElementById("facts-list").textContent; });
    """
    told = ask(write_page(small_run(tmp_path), ""), script)
    assert "mailbox1 message has arrived since 10 s; the last one, Model from client-1, 0 s ago" in told[0]
    assert "1 message has arrived since 10 s; the last one, Model from client-1, 1 s ago" in told[1]
    assert (
        "2 messages have arrived since 14 s" in told[2]
        and "does not record which messages are unread" in told[2]
    )
    assert "mailbox" not in told[3], "the client is down"

"""The report in a real browser: what it says under the mouse, in the dark, and when its tables are used."""

import json
import re
import shutil
import subprocess
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.results.palette import DARK, LIGHT
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory
from tests.results.synthetic import END_S, seconds_within, with_messages, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine"),
]
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")

# Moves the mouse over points of the timeline, one after the other, and notes what the tooltip says.
HOVER = """
const div = document.getElementById("timeline"), said = [];
const area = div.querySelector(".nsewdrag"), box = area.getBoundingClientRect();
const {xaxis, yaxis} = div._fullLayout;
for (const [x, row] of POINTS) {
  const at = {clientX: box.left + xaxis.d2p(x), clientY: box.top + yaxis.d2p(row), bubbles: true};
  area.dispatchEvent(new MouseEvent("mousemove", at));
  await new Promise(done => setTimeout(done, 150));
  said.push([...div.querySelectorAll(".hoverlayer .hovertext text")].map(
    text => text.textContent));
}
return said;
"""
# Whether the timeline fades at the edge, has its last button on the screen, and fades where it ends, too.
NARROW = """
const box = document.getElementById("timeline").parentElement;
const wait = () => new Promise(done => setTimeout(done, 100));
await wait();
const fades = getComputedStyle(box).maskImage !== "none";
const button = [...box.querySelectorAll(".modebar-btn")].pop().getBoundingClientRect();
const there = button.width > 0 && button.left >= 0 && button.right <= document.documentElement.clientWidth;
box.scrollLeft = box.scrollWidth;
await wait();
return [fades, there, getComputedStyle(box).maskImage !== "none"];
"""
COLOURS = """
const {data, layout} = document.getElementById("timeline");
return [getComputedStyle(document.body).backgroundColor, data[0].colorscale[1][1], layout.plot_bgcolor];
"""
TABLES = """
const table = document.querySelector("section details:has(.find) table.sortable");
const column = name => [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent === name);
const rows = () => [...table.tBodies[0].rows].filter(row => !row.hidden);
const shown = at => rows().map(row => row.cells[at].textContent);
const click = name => table.tHead.rows[0].cells[column(name)].firstElementChild.click();
const found = {};
click("client"); found.ascending = shown(column("client"));
click("client"); found.descending = shown(column("client"));
click("alone"); found.numbers = shown(column("alone"));
const input = table.closest("details").querySelector("input");
input.value = "Client-1"; input.dispatchEvent(new Event("input"));
click("client"); found.searched = shown(column("client"));
found.count = table.closest("details").querySelector("output").textContent;
return found;
"""

KEY = """
const legend = document.querySelector("#timeline .legend"), key = document.querySelector(".key");
const inside = box => box.width > 0 && box.left >= 0 && box.right <= document.documentElement.clientWidth;
return [getComputedStyle(legend).display !== "none", getComputedStyle(key).display !== "none",
  [...key.children].filter(mark => inside(mark.getBoundingClientRect())).map(mark => mark.textContent)];
"""


FITS = """
const fits = id => {
  const div = document.getElementById(id), room = div.parentElement.clientWidth;
  return div.parentElement.scrollWidth <= room && div._fullLayout.width <= room;
};
const {yaxis, yaxis2} = document.getElementById("learned-graph")._fullLayout;
const rows = {};  // of tiles, by where they begin; all the room of each row is used
for (const tile of document.querySelectorAll(".tile")) {
  const {top, left, right} = tile.getBoundingClientRect();
  rows[top] = [Math.min(left, (rows[top] || [left])[0]), right];
}
const ends = Object.values(rows).map(([left, right]) => Math.round(right - left));
return [fits("graph"), fits("learned-graph"), yaxis.domain[0] > yaxis2.domain[1], new Set(ends).size];
"""
SVG = """
const asked = [];
Plotly.downloadImage = (div, how) => asked.push([div.id, how.format, how.filename]);
for (const div of pictures) div.querySelector('[data-title*="SVG"]').dispatchEvent(new MouseEvent("click"));
return [asked, pictures.map(div => div.id)];
"""
SLIDER = """
const div = document.getElementById("PICTURE");
const times = div.layout.sliders[0].steps.length, shown = [];
const rail = () => div.querySelector(".slider-rail-touch-rect").getBoundingClientRect();
for (const share of [0.01, 0.5, 0.99]) {
  const at = {clientX: rail().left + share * rail().width, clientY: rail().top + 5, bubbles: true};
  div.querySelector(".slider-rail-touch-rect").dispatchEvent(new MouseEvent("mousedown", at));
  document.dispatchEvent(new MouseEvent("mouseup", at));
  await new Promise(done => setTimeout(done, 300));
  const visible = div.data.flatMap((trace, i) => trace.visible === false ? [] : [i]);
  shown.push([div.layout.sliders[0].active, visible]);
}
return [times, shown];
"""
CLIENT = """
const of = id => document.getElementById(id).data.filter(trace => trace.meta && trace.visible).map(
  trace => trace.meta);
const at = () => [...new Set([...of("course"), ...of("waited-for")])].concat(chooser.value);
const found = [at()];
chooser.value = "client-4"; chooser.dispatchEvent(new Event("change")); found.push(at());
[...document.querySelectorAll("td.client")].find(cell => cell.textContent === "client-7").click();
found.push(at());
const div = document.getElementById("timeline"), box = div.querySelector(".nsewdrag").getBoundingClientRect();
const {xaxis, yaxis} = div._fullLayout;
const point = {clientX: box.left + xaxis.d2p(4.01), clientY: box.top + yaxis.d2p(2), bubbles: true};
const area = div.querySelector(".nsewdrag");
area.dispatchEvent(new MouseEvent("mousemove", point));
await new Promise(done => setTimeout(done, 300));
area.dispatchEvent(new MouseEvent("mousedown", point));
document.dispatchEvent(new MouseEvent("mouseup", point));
await new Promise(done => setTimeout(done, 600));
found.push(at());
return found;
"""
ZOOM = """
const div = document.getElementById("timeline"), said = [];
await Plotly.relayout(div, {"xaxis.range[0]": LOW, "xaxis.range[1]": HIGH});
await new Promise(done => setTimeout(done, 300));
const near = [div.data[0].x, div.data[0].customdata, div.data[0].z, div.data[0].hovertemplate];
await Plotly.relayout(div, {"xaxis.range": [0, 10]});
await new Promise(done => setTimeout(done, 300));
return [...near, div.data[0].customdata];
"""
CSV = "return Object.fromEntries(pictures.map(div => [div.id, csvOf(div)]));"


def ask(report: Path, script: str, *options: str) -> Any:
    """What a script returns when it is run in the loaded page, on which there is no complaint."""
    page = report.with_name("asked.html")
    asked = (
        "<script>addEventListener('load', () => setTimeout(async () => {"
        "window.requestAnimationFrame = call => setTimeout(call, 16);"  # no frame is drawn that nobody sees
        "await ready; const answer = await (async () => {" + script + "})().catch(error => String(error));"
        "const pre = document.body.appendChild(document.createElement('pre'));"
        "pre.id = 'answer'; pre.textContent = JSON.stringify(answer); }, 500))</script>"
    )
    page.write_text(
        report.read_text(encoding="utf-8").replace("</body>", asked + "</body>"), encoding="utf-8"
    )
    profile = report.with_name("profile")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *QUIET, f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", "--window-size=1400,1000", "--virtual-time-budget=30000", *options]
    command += ["--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer, done.stderr[-2000:]
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(answer[1]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = write_run(tmp_path_factory.mktemp("browser"), evaluations=5, steps=20)
    run.write_events(with_messages(run))
    write_report(run)
    return run


def test_hovering_over_the_timeline_says_what_intervals_parquet_says(run):
    bins = 300
    places = [(column, row) for row in range(12) for column in (10, 111, 200, 290)]  # far from marks
    points = [[(column + 0.5) * END_S / 60 / bins, row] for column, row in places]
    said = ask(run.path / "report.html", HOVER.replace("POINTS", json.dumps(points)))
    intervals = run.scan("intervals").collect()
    width_s = END_S / bins
    states = set()
    for (column, row), labels in zip(places, said, strict=True):
        assert len(labels) == 1, labels
        name = f"client-{row}"
        assert labels[0].startswith(f"{name} at ")
        training, down = (
            seconds_within(intervals, name, state, column * width_s, (column + 1) * width_s) / width_s
            for state in ("busy", "down")
        )
        truth = [100 * share for share in (training, 1 - training - down, down)]
        shares = [float(share) for share in re.findall(r"([\d.]+)%", labels[0])]
        assert shares == pytest.approx(truth, abs=0.06), labels[0]
        states.add(shares.index(max(shares)))
    assert states == {0, 1, 2}, "training, waiting and down were all seen"


def test_on_a_narrow_screen_a_picture_that_goes_on_fades_and_keeps_its_toolbar(run):
    said = ask(run.path / "report.html", NARROW, "--window-size=500,1000")
    assert said == [True, True, False]


@pytest.mark.parametrize(("option", "scheme"), [("1", LIGHT), ("0", DARK)])
def test_the_page_and_its_pictures_follow_the_scheme_of_the_reader(run, option, scheme):
    settings = f"--blink-settings=preferredColorScheme={option}"
    ground, training, down = ask(run.path / "report.html", COLOURS, settings)
    page = ", ".join(str(int(scheme["page"][start : start + 2], 16)) for start in (1, 3, 5))
    assert (ground, training, down) == (f"rgb({page})", scheme["training"], scheme["down"])


@pytest.mark.parametrize(
    ("size", "seen"),
    [
        ("1400,1000", [True, False, []]),
        ("390,844", [False, True, ["arrives", "departs", "training", "waiting", "down"]]),
    ],
)
def test_the_timeline_has_one_legend_which_a_phone_shows_whole(run, size, seen):
    assert ask(run.path / "report.html", KEY, f"--window-size={size}") == seen


@pytest.mark.parametrize("alone", [True, False])  # five tiles, or four
def test_the_graph_the_heat_map_and_the_tiles_fit_on_a_phone(tmp_path, alone):
    report = write_report(write_run(tmp_path, evaluations=5, steps=20, alone=alone))
    if not alone:
        summary = re.compile(
            r'<div class="tile"><div class="label">Better than alone.*?</div></div>', re.DOTALL
        )
        page = summary.sub("", report.read_text(encoding="utf-8"))
        report.write_text(page, encoding="utf-8")
    assert ask(report, FITS, "--window-size=420,900") == [True, True, True, 1]
    assert ask(report, FITS)[2] is False, "side by side, where there is room"


def test_each_picture_is_to_be_had_as_svg(run):
    asked, names = ask(run.path / "report.html", SVG)
    assert asked == [[name, "svg", name] for name in names]


def test_tables_are_sorted_and_searched(run):
    found = ask(run.path / "report.html", TABLES)
    names = [f"client-{number}" for number in (*range(5), *range(6, 12))]  # client 5 has left
    assert found["ascending"] == names, "by their numbers"
    assert found["descending"] == names[::-1]
    numbers = [float(number.rstrip("%")) for number in found["numbers"]]
    assert numbers == sorted(numbers) and len(set(numbers)) > 5
    assert found["searched"] == ["client-1", "client-10", "client-11"]
    assert found["count"] == "3 of 11"


@pytest.mark.parametrize("picture", ["graph", "learned-graph"])
def test_sliders_show_the_graph_at_another_time(run, picture):
    times, shown = ask(run.path / "report.html", SLIDER.replace("PICTURE", picture))
    assert (times, [active for active, _ in shown]) == (5, [0, 2, 4])
    assert len({tuple(traces) for _, traces in shown}) == 3
    assert len({len(traces) for _, traces in shown}) == 1, "as many each time, others"


def test_a_client_is_chosen_from_the_list_or_by_a_click(run):
    worst, *others = ask(run.path / "report.html", CLIENT)
    assert len(worst) == 2 and worst[0] == worst[1]
    assert others == [["client-4"] * 2, ["client-7"] * 2, ["client-2"] * 2]


def test_the_timeline_from_close_by_is_what_the_devices_did(run):
    low, high = 4.9, 5.2  # minutes; client 0 crashed at 5
    script = ZOOM.replace("LOW", str(low)).replace("HIGH", str(high))
    x, near, z, hover, far = ask(run.path / "report.html", script)
    intervals = run.scan("intervals").collect()
    edges = np.linspace(60 * low, 60 * high, len(x) + 1)
    assert x == pytest.approx(((edges[1:] + edges[:-1]) / 120).tolist())
    assert "<br>of 0.06 s<" in hover
    for row in (0, 3, 7):
        for column in range(0, len(x), 13):
            ends = edges[column], edges[column + 1]
            training, down = (
                seconds_within(intervals, f"client-{row}", state, *ends) / (ends[1] - ends[0])
                for state in ("busy", "down")
            )
            assert near[row][column] == pytest.approx([training, 1 - training - down, down], abs=1e-6)
            assert (z[row][column] is None) is bool(down > 0.5)
    assert [cell for cell in far[3] if cell[0] < 0.99] == [], "all of it again: the slow one never waits"


def test_each_picture_gives_its_numbers_as_csv(run):
    said = ask(run.path / "report.html", CSV)
    tables = {name: pl.read_csv(StringIO(csv)) for name, csv in said.items()}
    assert all(len(table) for table in tables.values())
    progress = tables["progress-over-time"]
    assert progress.columns == ["series", "virtual time (min)", "test accuracy", "value", "label"]
    accuracy = run.scan("metrics").filter(pl.col("name") == "accuracy").collect()
    means = accuracy.group_by("time").agg(pl.mean("value")).sort("time")["value"]
    mean = progress.filter(pl.col("series") == "mean")
    assert mean["test accuracy"].to_list() == pytest.approx(means.to_list())
    heat = tables["learned-graph"].filter(pl.col("series").is_null() | (pl.col("series") != "true clusters"))
    assert len(heat) >= 12 * 12
    nodes = tables["graph"].filter(pl.col("label").is_not_null())
    assert sorted(nodes["label"]) == sorted(f"client-{number}" for number in range(12))
    assert set(tables["course"]["series"].unique()) >= {"mean of all"}


def test_a_page_of_many_clients_and_events_is_small_enough(tmp_path):
    run = write_run(tmp_path, clients=100, clusters=10, evaluations=100, steps=1000)
    run.write_events(with_messages(run))
    report = write_report(run)
    assert report.stat().st_size < 20_000_000
    assert ask(report, "return pictures.filter(div => div.data).length === pictures.length;") is True

"""The report in a real browser: what it says under the mouse, in the dark, and when its tables are used."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from sim.results.report import write_report
from sim.results.store import RunDirectory
from sim.results.style import DARK, LIGHT
from tests.results.synthetic import END_S, seconds_within, write_run

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


def ask(report: Path, script: str, *options: str) -> object:
    """What a script returns when it is run in the loaded page."""
    page = report.with_name("asked.html")
    asked = (
        "<script>addEventListener('load', () => setTimeout(async () => {"
        "const answer = await (async () => {" + script + "})().catch(error => String(error));"
        "const pre = document.body.appendChild(document.createElement('pre'));"
        "pre.id = 'answer'; pre.textContent = JSON.stringify(answer); }, 500))</script>"
    )
    page.write_text(
        report.read_text(encoding="utf-8").replace("</body>", asked + "</body>"), encoding="utf-8"
    )
    profile = report.with_name("profile")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *QUIET, f"--user-data-dir={profile}"]
    command += ["--window-size=1400,1000", "--virtual-time-budget=30000", *options, "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer, done.stderr[-2000:]
    return json.loads(unescape(answer[1]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = write_run(tmp_path_factory.mktemp("browser"), evaluations=5, steps=20)
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


def test_tables_are_sorted_and_searched(run):
    found = ask(run.path / "report.html", TABLES)
    names = [f"client-{number}" for number in (*range(5), *range(6, 12))]  # client 5 has left
    assert found["ascending"] == names, "by their numbers"
    assert found["descending"] == names[::-1]
    numbers = [float(number.rstrip("%")) for number in found["numbers"]]
    assert numbers == sorted(numbers) and len(set(numbers)) > 5
    assert found["searched"] == ["client-1", "client-10", "client-11"]
    assert found["count"] == "3 of 11"

"""comparison.html: its figures are those of the tables, and texts of strangers stay texts."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.results.store.output_dir import REPORT
from sim.studies import page_data
from sim.studies.cells import Plan, plan
from sim.studies.comparison import Comparison
from sim.studies.pages import study_page, write_comparison
from sim.studies.study import StudiedRun, Study, load_study
from sim.studies.sweep import SweepResult, run_sweep
from tests.results.explore.unpacked import facts_and_columns
from tests.results.report.test_browser import BROWSER, ask
from tests.results.synthetic import write_run
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

Small = tuple[Plan, SweepResult]


def number(text: str | None) -> float | None:
    return None if text is None else float(text)


def page(comparison: Comparison, folder: Path) -> str:
    return study_page(comparison, folder, pictures={}, texts={})


@pytest.fixture(scope="module")
def written(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sim.studies.pages.write_pictures", lambda *_: {})
        write_comparison(Comparison(load_study([small[1].directory])), folder)
    return folder


def test_figures_equal_the_table(written: Path) -> None:
    facts, _ = facts_and_columns((written / "comparison.html").read_text())
    table = pl.read_csv(written / "table.csv", infer_schema=False).to_dicts()
    names = [metric["name"] for metric in facts["metrics"]]
    assert len(table) == len(names) * len(facts["groups"])
    for row in table:
        keys = [axis["key"] for axis in facts["axes"]]
        values = [axis["values"].index(str(row[axis["key"]])) for axis in facts["axes"]]
        [group] = [n for n, each in enumerate(facts["groups"]) if each["values"] == values]
        line = facts["lines"][names.index(row["metric"])][group]
        assert keys == ["method", "network.loss"]
        assert all(line[name] == number(row[name]) for name in ("mean", "low", "high"))
        assert line["seeds"] == int(row["seeds"])
        assert (line["difference"] or [None])[0] == number(row["difference"])
    assert facts["files"]["table.csv"] == (written / "table.csv").read_text()
    assert facts["files"]["table.tex"] == (written / "table.tex").read_text()


def test_each_run_has_its_curve_and_its_end(small: Small, written: Path) -> None:
    facts, columns = facts_and_columns((written / "comparison.html").read_text())
    runs = {run.directory.name: run for run in load_study([small[1].directory]).runs}
    first = 0
    assert [scale["kind"] for scale in facts["scales"]] == ["seconds", "bytes", "steps", "FLOPs"]
    for row, count in zip(facts["runs"], columns["count"].astype(int), strict=True):
        series = runs[row["name"]].curve("distance")
        np.testing.assert_allclose(columns["scale0"][first : first + count], series.times, rtol=1e-6)
        np.testing.assert_allclose(columns["metric0"][first : first + count], series.values, rtol=1e-6)
        assert row["ends"][0] == runs[row["name"]].number("distance")
        first += count
    assert first == columns["scale0"].size


def test_curves_of_many_runs_are_thinned_and_keep_their_ends(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_data, "_POINTS_TOTAL", 0)
    monkeypatch.setattr(page_data, "_POINTS_MIN", 3)
    comparison = Comparison(load_study([small[1].directory]), metrics=["distance"])
    _, columns = facts_and_columns(page(comparison, tmp_path))
    assert columns["count"].tolist() == [3] * 8
    assert columns["scale0"][:3].tolist() == [0.0, 2.0, 4.0]


def test_runs_link_their_pages_by_relative_paths(small: Small, tmp_path: Path) -> None:
    result = small[1]
    folder = result.directory / "comparison"
    report = load_study([result.directory]).runs[0].directory / REPORT
    report.write_text("<p>report</p>")
    try:
        facts, _ = facts_and_columns(page(Comparison(load_study([result.directory])), folder))
    finally:
        report.unlink()
    [linked] = [run for run in facts["runs"] if run["pages"]]
    assert (folder / linked["place"] / linked["pages"][0]).resolve() == report.resolve()
    assert not linked["place"].startswith("/")


def test_texts_of_strangers_stay_texts(small: Small, tmp_path: Path) -> None:
    loaded = load_study([small[1].directory])
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    named = Study(hostile, hostile, loaded.axes, {"method": hostile}, loaded.runs, {hostile: hostile})
    found = page(Comparison(named), tmp_path)
    assert "<script>alert" not in found and "<img" not in found
    assert found.count("<script") == found.count("</script>") == 3
    assert "innerHTML" not in found and "insertAdjacentHTML" not in found
    assert facts_and_columns(found)[0]["title"] == hostile
    assert "default-src 'none'" in found


@pytest.mark.long
def test_forks_stand_beside_their_parents(tmp_path: Path) -> None:
    text = STUDY.replace("[sweep]\n", "[sweep]\nforks = true\n").replace("network.loss = [0, 0.2]", "")
    text = text.replace(
        '"protocol.name=gossip", "protocol.period=500 ms"',
        "'change=[{at=\"2 s\", training.learning_rate=0.01}]'",
    )
    text = text[: text.index("[sweep.full]")]
    try:
        planned = plan(study(tmp_path, text))
    except Exception as error:
        pytest.fail(str(error))
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    comparison = Comparison(load_study([result.directory]), metrics=["distance"])
    found = page(comparison, tmp_path)
    facts, _ = facts_and_columns(found)
    forks = [run for run in facts["runs"] if run["fork"]]
    assert len(forks) == 2 and all(run["fork"][0].endswith(" at 2 s") for run in forks)
    for run in forks:
        assert facts["runs"][run["fork"][1]]["seed"] == run["seed"]
    assert "Forks beside their parents" in found


@pytest.mark.long
def test_labels_are_stated_in_words(small: Small, tmp_path: Path) -> None:
    words = ["compare", str(small[1].directory), "--label", "network.loss=share of lost messages"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and "share of lost messages" in done.stdout.splitlines()[0]
    facts, _ = facts_and_columns((tmp_path / "out" / "comparison.html").read_text())
    assert facts["answer"] and set(facts["answer"]) <= set(done.stdout.splitlines())
    assert [axis["label"] for axis in facts["axes"]] == ["method", "share of lost messages"]
    refused = CliRunner().invoke(app, [*words[:2], "--label", "loss=x"])
    assert refused.exit_code == 2 and "--label loss=x: must be" in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
def test_the_page_in_a_browser(written: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    address = (written / "comparison.html").as_uri()
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert 'data-ready="yes"' in done.stdout
    assert done.stdout.count('class="mean"') == 4 and done.stdout.count('class="dot"') == 8
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)


SEARCHED = """
at("all-runs").open = true;
return QUERIES.map(query => { at("find").value = query; show_runs(); return at("found").textContent; });
"""
CLICKED = """
const found = [];
for (const dot of document.querySelectorAll("#ends [data-run]")) {
  const { left, top, width, height } = dot.getBoundingClientRect();
  const point = { clientX: left + width / 2, clientY: top + height / 2 };
  dot.dispatchEvent(new MouseEvent("click", { bubbles: true, ...point }));
  const box = at("run").getBoundingClientRect(), said = at("run").querySelector(".command code").textContent;
  const aside = Math.max(box.left - point.clientX, point.clientX - box.right);
  const far = Math.max(aside, box.top - point.clientY, point.clientY - box.bottom);
  found.push([Number(dot.dataset.run), said, far, document.activeElement.id, Boolean(at("copy"))]);
}
document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
return [found, at("run").hidden];
"""
LOOKS = """
return [...document.querySelectorAll("#curves .entry")].map(entry => {
  const line = entry.querySelector("line");
  const words = entry.querySelector("text").lastChild.textContent;
  return [words, line.getAttribute("stroke"), line.getAttribute("stroke-dasharray")];
});
"""


def many(folder: Path, methods: int, speeds: int) -> Path:
    """Write the page of a study with a run for each method and speed."""
    path = write_run(folder / "run", clients=3, clusters=1, evaluations=3, steps=5).finalise()
    axes = {"method": tuple([f"m{n}" for n in range(methods)]), "speed": tuple(range(speeds))}
    pairs = itertools.product(*axes.values())
    runs = tuple([StudiedRun(path, dict(zip(axes, pair, strict=True))) for pair in pairs])
    comparison = Comparison(Study("many", "", axes, {}, runs), metrics=["accuracy"], by="method")
    written = folder / "comparison.html"
    written.write_text(page(comparison, folder), encoding="utf-8")
    return written


def test_headings_and_footnotes_count_in_singular(small: Small, tmp_path: Path) -> None:
    one = load_study([load_study([small[1].directory]).runs[0].directory])
    assert not re.search(r"\b1 (runs|seeds|others|comparisons)\b", page(Comparison(one), tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
def test_a_search_finds_all_words_in_any_order(written: Path) -> None:
    queries = [
        "",
        "GOSSIP 0.2",
        "0.2 gossip",
        "gossip nothing",
        "seed 3 alone",
    ]
    counts = ask(written / "comparison.html", SEARCHED.replace("QUERIES", json.dumps(queries)))
    assert counts == ["8 runs", "2 runs", "2 runs", "0 runs", "2 runs"]
    assert ask(written / "comparison.html", SEARCHED.replace("QUERIES", '["alone seed 3 0.2"]')) == ["1 run"]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
def test_a_click_shows_the_command_of_a_run_at_the_click(written: Path) -> None:
    facts, _ = facts_and_columns((written / "comparison.html").read_text())
    found, is_closed = ask(written / "comparison.html", CLICKED)
    assert len(found) == len(facts["runs"]) and is_closed
    for run, said, far, focused, has_button in found:
        folder = (written / facts["runs"][run]["place"]).resolve()
        assert said == f"coterie report {folder}" and folder.is_dir()
        assert far <= 20 and focused == "run" and has_button


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
@pytest.mark.parametrize(
    ("methods", "speeds", "entries", "last"),
    [(7, 2, 14, "m6, speed 1"), (12, 1, 12, "m11"), (7, 10, 7, "m6 (10 settings)"), (50, 1, 13, "38 others")],
)
def test_series_have_different_looks_until_they_are_grouped(
    tmp_path: Path, methods: int, speeds: int, entries: int, last: str
) -> None:
    found = ask(many(tmp_path, methods, speeds), LOOKS)
    assert len(found) == entries and found[-1][0] == last
    assert len({(stroke, dash) for _, stroke, dash in found}) == entries

"""What comparisons look like: the palette everywhere, links to pictures, and intervals that can be."""

import itertools
import re
from pathlib import Path

import polars as pl
import pytest
from scipy import stats

from sim.results.palette import HUES, LIGHT
from sim.studies.cells import Plan
from sim.studies.comparison import Comparison
from sim.studies.pages import write_comparison
from sim.studies.pictures import write_pictures
from sim.studies.study import StudiedRun, Study, load_study
from sim.studies.sweep import SweepResult
from sim.studies.tables import interval_text
from tests.results.synthetic import write_run

Small = tuple[Plan, SweepResult]


def single(folder: Path) -> Comparison:
    """Of two seeds of one scenario, whose accuracies at the end are near 100%."""
    runs = []
    for seed in (1, 2):
        path = write_run(
            folder / str(seed), clients=3, clusters=1, evaluations=3, steps=5, seed=seed
        ).finalise()
        runs.append(StudiedRun(path, {"method": "cobo"}))
    return Comparison(
        Study("one", "", {"method": ("cobo",)}, {}, tuple(runs)),
        metrics=["accuracy", "accuracy.worst_decile"],
    )


@pytest.mark.long
@pytest.mark.parametrize("panels", [1, 2])
def test_lines_have_the_colours_of_the_palette(small: Small, tmp_path: Path, panels: int) -> None:
    comparison = single(tmp_path) if panels == 1 else Comparison(load_study([small[1].directory]))
    write_comparison(comparison, tmp_path / "out")
    for file in (tmp_path / "out").glob("curves-*.svg"):
        drawn = set(re.findall(r"fill: none; stroke: (#\w+)", file.read_text()))
        named = {LIGHT[name] for name in HUES} | {LIGHT["grid"], "#000000"}
        assert drawn & {LIGHT[name] for name in HUES} and drawn <= named


@pytest.mark.long
def test_the_page_links_its_pictures(small: Small, tmp_path: Path) -> None:
    page = write_comparison(Comparison(load_study([small[1].directory])), tmp_path).read_text(
        encoding="utf-8"
    )
    linked = set(re.findall(r'href="([\w-]+\.(?:svg|png))"', page))
    assert linked == {path.name for path in tmp_path.iterdir() if path.suffix in (".svg", ".png")} != set()


@pytest.mark.parametrize("by", [None, "speed"])
def test_pictures_of_many_methods_have_room_for_their_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, by: str | None
) -> None:
    monkeypatch.setattr("sim.studies.pictures._save", lambda figure, _: figure.draw_without_rendering())
    path = write_run(tmp_path, clients=3, clusters=1, evaluations=3, steps=5).finalise()
    axes = {"method": tuple([f"method {n} with a long name" for n in range(50)])}
    axes |= {"speed": ("slow", "fast")} if by else {}
    pairs = itertools.product(*axes.values())
    runs = tuple([StudiedRun(path, dict(zip(axes, pair, strict=True))) for pair in pairs])
    comparison = Comparison(Study("many", "", axes, {}, runs), metrics=["accuracy"], by=by)
    drawn = write_pictures(comparison, tmp_path)
    assert {"curves-accuracy", "profile"} | ({"by-accuracy"} if by else set()) == drawn.keys()
    assert not [each for each in recwarn if "constrained_layout" in str(each.message)]


@pytest.mark.long
@pytest.mark.parametrize(("values", "high"), [((0.9, 0.99), 1.0), ((0.05, 0.01), None), ((0.5, 0.51), None)])
def test_intervals_of_shares_end_at_none_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[float, float], high: float | None
) -> None:
    monkeypatch.setattr(StudiedRun, "number", lambda run, metric: values[run.seed - 1])
    comparison = single(tmp_path)
    mean = sum(values) / 2
    low, most = stats.t.interval(0.95, 1, loc=mean, scale=stats.sem(values))
    found = comparison.lines[0].estimate
    assert (found.low, found.high) == pytest.approx((max(low, 0), min(most, 1)))
    shown = interval_text(found, "accuracy")
    if low < 0 or most > 1:
        assert shown == f"{100 * mean:.1f} ({100 * max(low, 0):.1f} to {100 * min(most, 1):.1f})"
    else:
        assert shown == f"{100 * mean:.1f} \N{PLUS-MINUS SIGN} {100 * (most - mean):.1f}"
    write_comparison(comparison, tmp_path / "out")
    table = pl.read_csv(tmp_path / "out" / "table.csv")
    assert table["low"].min() >= 0 and table["high"].max() <= 1
    assert high is None or table["high"].max() == high


@pytest.mark.parametrize(("metric", "high"), [("graph.l1", None), ("graph.edge_recall", 1.0)])
def test_no_error_of_a_graph_is_below_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, high: float | None
) -> None:
    values = (0.05, 0.7)
    monkeypatch.setattr(StudiedRun, "number", lambda run, metric: values[run.seed - 1])
    study = single(tmp_path).study
    found = Comparison(study, metrics=[metric]).lines[0].estimate
    low, most = stats.t.interval(0.95, 1, loc=0.375, scale=stats.sem(values))
    assert low < 0 and most > 1
    assert (found.low, found.high) == pytest.approx((0.0, most if high is None else high))


@pytest.mark.long
def test_curves_stay_within_what_there_can_be(tmp_path: Path) -> None:
    comparison = single(tmp_path)
    times, [(group, mean, _)] = comparison.curves("accuracy")
    comparison.curves = lambda metric: (times, [(group, mean, mean + 1)])  # type: ignore[method-assign]
    write_comparison(comparison, tmp_path / "out")
    curves = pl.read_csv(tmp_path / "out" / "curves.csv")
    assert curves["low"].min() == 0 and curves["high"].max() == 1

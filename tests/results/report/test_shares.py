"""A measure that is a share is shown as accuracy is, whatever its name."""

import polars as pl
import pytest

from sim.results import measures, outcome, view
from sim.results.measures import MEASURES, Measure
from sim.results.report import page
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory
from sim.studies import study, tables
from tests.results.report.test_page import SMALL, words
from tests.results.synthetic import write_run

HITS = Measure("hits", "hit rate", higher_is_better=True, is_share=True)


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDirectory:
    """A run whose clients are judged by a share that is not the accuracy."""
    for module in (measures, outcome, view, page):
        monkeypatch.setattr(module, "MEASURES", (*MEASURES, HITS))
    run = write_run(tmp_path, **SMALL)
    named = pl.col("name").str.replace("accuracy", "hits", literal=True)
    run.scan("metrics").with_columns(named).collect().write_parquet(run.path / "metrics.parquet")
    found = {
        "measure": "hits",
        "hits": {"mean": 0.8125, "clients": 11},
        "accuracy": {"clients": 0, "mean": None},
    }
    run.write_summary(run.summary() | found | {"target": {"hits": 0.7, "seconds": 60.0, "bytes": 1000}})
    return run


def test_all_numbers_show_it_in_percent(run):
    numbers = words(write_report(run).read_text()).split("All numbers")[1]
    assert "<h3>Hits</h3>" in numbers
    assert "<td>mean</td><td class=number>81.2%</td>" in numbers
    assert "<td>hits</td><td class=number>70.0%</td>" in numbers, "the target, too"


def test_all_numbers_show_groups_that_no_list_names(run):
    run.write_summary(run.summary() | {"my_counts": {"seen": 4321, "unseen": None}, "words": {"a": "b"}})
    numbers = words(write_report(run).read_text()).split("All numbers")[1]
    assert "<h3>My counts</h3>" in numbers and "<td>seen</td><td class=number>4,321</td>" in numbers
    assert "<h3>Words</h3>" not in numbers


def test_the_page_opens_with_its_mean_and_shows_when_levels_were_reached(run):
    text = words(write_report(run).read_text())
    assert "Mean hit rate" in text and "Time to hits" in text
    assert text.split("Mean hit rate")[1].split("at the end")[0].count("%") == 1
    assert "70.0%" in text.split("Time to hits")[1].split("</table>")[0], "the target is a level"


def test_one_that_should_fall_has_no_levels(run, monkeypatch):
    misses = Measure("hits", "miss rate", higher_is_better=False, is_share=True)
    for module in (measures, outcome, view, page):
        monkeypatch.setattr(module, "MEASURES", (*MEASURES, misses))
    assert "Time to" not in words(write_report(run).read_text())


@pytest.mark.parametrize(
    "metric", ["hits", "hits_alone", "hits_of_shared", "hits.worst_decile", "accuracy", "accuracy_alone"]
)
def test_studies_show_it_in_percent(monkeypatch, metric):
    monkeypatch.setattr(measures, "MEASURES", (*MEASURES, HITS))
    assert tables.value_text(0.8125, metric) == "81.2" and tables.metric_unit(metric) == "%"
    assert study.metric_bounds(metric) == (0.0, 1.0)


def test_what_is_no_share_is_not_shown_in_percent():
    assert not any(map(study.is_share, ("loss", "f1", "auc.worst_decile", "accuracy_gap", "graph.l1")))


def test_a_variant_of_a_measure_has_its_direction_and_bounds():
    assert not any(
        map(study.higher_is_better, ("loss_alone", "loss_of_shared", "loss.worst_decile", "energy.joules"))
    )
    assert study.higher_is_better("accuracy_alone") and study.metric_bounds("auc_alone") == (0.0, 1.0)

"""Pictures in words, and what they become in a page."""

import json
import subprocess
import sys

import numpy as np
import pytest

from sim.results.report.figure import Figure, Trace
from sim.results.report.page import write_report
from sim.results.report.style import blank_figure
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import write_run


def picture(trace: Trace) -> Figure:
    figure = blank_figure(100)
    figure.add(trace)
    return figure


def test_a_picture_is_written_as_plotly_writes_it():
    figure = picture(
        {
            "type": "scatter",
            "y": np.array([[1.0, np.nan], [0.5, -np.inf]], dtype=np.float32),
            "x": np.linspace(0, 1, 3),
            "ids": np.array([]),
            "customdata": [1.5, np.nan, np.inf, None],
            "name": "</script>\N{MIDDLE DOT}NaN",
            "line": {"width": 2, "dash": None, "color": "var(--blue)"},
            "text": None,
        }
    )
    figure.update(xaxis={"range": [0, np.float64(2)], "title": {"font": {"size": 9}}})
    figure.update(xaxis={"title": {"text": "t"}})
    figure.mark("shapes", {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1})
    said, by_plotly = figure.to_json(), as_plotly(figure).to_json()
    assert json.loads(said) == json.loads(by_plotly)
    assert said.partition('"layout"')[0] == by_plotly.partition('"layout"')[0], "the keys in the same order"
    assert json.loads(said)["data"][0]["customdata"] == [1.5, None, None, None]
    assert "<" not in said


@pytest.mark.parametrize("values", [np.arange(3), np.array(["a"]), np.float32(1), {1, 2}])
def test_what_the_script_would_not_read_is_refused(values: object):
    with pytest.raises(TypeError, match="cannot be drawn"):
        picture({"type": "scatter", "x": values}).to_json()


@pytest.mark.parametrize(("place", "value"), [("curves.BLUE", 12), ("graph._STRENGTHS", (2, 2, 2, 2))])
def test_tests_of_pages_have_plotly_check_each_picture(place, value, tmp_path, monkeypatch):
    run = write_run(tmp_path)
    monkeypatch.setattr(f"sim.results.report.{place}", value)
    with pytest.raises(ValueError, match="Invalid value"):
        write_report(run)


def test_a_page_needs_none_of_plotlys_classes():
    """Their import and checks took longer than all else of a page."""
    program = "import sys, sim.results.report.page; sys.exit('plotly.graph_objs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""What a method observes is drawn, by name and for each client, and nothing is said that is not known."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.results.report.one_client import class_counts_figure, weights_by_peer_figure
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from tests.own.data_worlds import load
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import END_S, as_if_written, write_run

SMALL: dict[str, Any] = {"evaluations": 5, "steps": 20}
CLIENTS = [f"client-{i}" for i in range(12)]
METHOD = """
from protocols import Client

class Mine(Client):
    async def step(self):
        update = await self.train(1)
        self.params = self.params + update
        self.observe("norm", self.params.norm())
        self.observe("a <b>name</b> of several words", 1)
"""


def figures(page: str) -> dict[str, Any]:
    found = re.findall(
        r'<script type="application/json" id="([\w-]+)-figure">(.*?)</script>', page, re.DOTALL
    )
    return {name: json.loads(figure) for name, figure in found}


def titled(page: str, title: str) -> dict[str, Any]:
    """The pictures whose y axis has a title."""
    of = {name: figure["layout"].get("yaxis", {}).get("title", {}) for name, figure in figures(page).items()}
    return {name: figures(page)[name] for name, axis in of.items() if axis.get("text") == title}


def test_each_name_has_a_curve_and_each_client_its_own(tmp_path: Path) -> None:
    observed = {"helped": CLIENTS, "kept": CLIENTS[3:5], "accepted": ["server-0", "server-1"]}
    page = write_report(write_run(tmp_path, **SMALL, observed=observed)).read_text(encoding="utf-8")
    assert "<h2>Observations of the method</h2>" in page
    assert set(titled(page, "helped")) == {"observed-0", "course-1"}
    of_each = figures(page)["course-1"]
    assert {trace.get("meta") for trace in of_each["data"]} == {None, *CLIENTS}
    assert set(titled(page, "kept")) == {"observed-1", "course-2"}
    assert set(titled(page, "accepted (servers)")) == {"observed-2"}  # no client has it
    assert "servers" in json.dumps(figures(page)["observed-2"])


def test_the_curve_is_the_mean(tmp_path: Path) -> None:
    from sim.results.report.curves import observation_curve

    run = write_run(tmp_path, **SMALL, observed={"helped": CLIENTS, "accepted": ["server-0", "server-1"]})
    for name, least in (("helped", 5.5), ("accepted", 0.5)):
        view = RunView(run)
        [(who, panel)] = view.observations(name)
        figure = as_plotly(observation_curve(view, name, who, panel))
        [mean] = [trace for trace in figure.data if trace.name == "mean"]
        times = np.linspace(0, END_S, 5)[1:]
        np.testing.assert_allclose(mean.x, times / 60)
        np.testing.assert_allclose(mean.y, least + times / END_S)


@pytest.mark.long
def test_what_servers_observe_is_shown_under_any_name(tmp_path: Path) -> None:
    """Also under one that clients use, and as "staleness", which has a picture of its own for clients."""
    observed = {"staleness": ["server-0"], "kept": [*CLIENTS[3:5], "server-0"]}
    page = write_report(write_run(tmp_path, **SMALL, staleness=False, observed=observed)).read_text("utf-8")
    [of_servers] = titled(page, "staleness (servers)").values()
    [mean] = [trace for trace in of_servers["data"] if trace["name"] == "mean"]
    assert len(mean["customdata"]) == 4
    assert "Not recorded: the method does not observe" in page
    assert len(titled(page, "kept (servers)")) == 1 and len(titled(page, "kept")) == 2
    both = write_run(tmp_path / "both", **SMALL, observed={"staleness": ["server-0"]})
    page = write_report(both).read_text("utf-8")
    assert {"staleness", "observed-0"} <= set(figures(page)) and "Not recorded" not in page


def test_what_the_observer_measures_is_no_observation_of_the_method(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, **SMALL)).read_text(encoding="utf-8")
    assert "Observations of the method" not in page and "observed-0" not in figures(page)
    assert "staleness" in figures(page)


@pytest.mark.long
def test_a_run_of_ones_own_method_shows_what_it_observes(tmp_path: Path) -> None:
    (tmp_path / "method.py").write_text(METHOD, encoding="utf-8")
    code = "def load():\n    x = np.arange(60.0)[:, None] / 60\n    return x, (x[:, 0] > 0.5).astype(int)"
    scenario = load(
        tmp_path, 'name = "mine.py:load"\npartition = "iid"', 'protocol.name="method.py:Mine"', code=code
    )
    result = run_scenario(scenario, RunOptions(out=tmp_path / "out", device="cpu"))
    assert result.directory is not None
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert set(titled(page, "norm")) == {"observed-0", "course-1"}
    assert len(titled(page, "a <b>name</b> of several words")) == 2
    assert "model was used" not in page and "Not recorded: the method does not observe" in page
    assert {"measure-loss", "course-0", "classes"} <= set(figures(page))
    counts = result.summary["class_counts"]
    assert np.array(counts).sum() == 48 and np.array(counts).shape == (3, 2)


@pytest.mark.parametrize("clusters", [4, None])
def test_one_client_says_whom_it_listens_to_and_who_to_it(tmp_path: Path, clusters: int | None) -> None:
    view = RunView(write_run(tmp_path, **SMALL, clusters=clusters, churn=False))
    source, target, weight = view.snapshot(view.graph_times[-1])
    for others in (False, True):
        figure = as_plotly(weights_by_peer_figure(view, others=others))
        assert figure is not None
        bars = next(trace for trace in figure.data if trace.type == "bar" and trace.meta == "client-4")
        mine, peers = (target, source) if others else (source, target)
        given = [pair for pair in zip(-weight[mine == 4], peers[mine == 4], strict=True) if pair[0] < 0]
        own = sorted(given)[:8]
        np.testing.assert_allclose(bars.x, [-given for given, _ in own])
        assert [label.split(":")[0] for label in bars.text] == [f"client-{peer}" for _, peer in own]
        right = [clusters is None or peer // 3 == 4 // 3 for _, peer in own]
        assert list(bars.marker.color) == ["var(--blue)" if same else "var(--orange)" for same in right]


@pytest.mark.parametrize("others", [False, True])
def test_who_has_gone_is_shown_as_it_was_when_it_was_there(tmp_path: Path, others: bool) -> None:
    """It is often the one that fared worst, by which the page begins."""
    view = RunView(write_run(tmp_path, **SMALL))
    last = [view.measure[1].of(client).times[-1] for client in range(12)]  # type: ignore[index]
    gone = int(np.argmin(last))
    assert last[gone] < view.graph_times[-1]
    figure = as_plotly(weights_by_peer_figure(view, others=others))
    assert figure is not None
    source, target, weight = view.snapshot(view.graph_times[view.graph_times <= last[gone]][-1])
    ends = target if others else source
    bars = next(trace for trace in figure.data if trace.type == "bar" and trace.meta == f"client-{gone}")
    np.testing.assert_allclose(bars.x, -np.sort(-weight[(ends == gone) & (weight > 0)])[:8])


def test_one_client_has_its_classes(tmp_path: Path) -> None:
    run = write_run(tmp_path, **SMALL)
    folder = run.finalise()
    summary = json.loads((folder / "summary.json").read_text())
    summary["class_counts"] = [[place, 0, 7] for place in range(12)]
    (folder / "summary.json").write_text(json.dumps(summary))
    as_if_written(folder)
    figure = as_plotly(class_counts_figure(RunView(RunDirectory.load(folder))))
    assert figure is not None
    bars = next(trace for trace in figure.data if trace.type == "bar" and trace.meta == "client-5")
    assert list(bars.text) == ["class 0: 5", "class 2: 7"] and list(bars.x) == [5, 7]
    assert figure.layout.height < 200 and figure.layout.yaxis.range[0] == 2, (
        "no room for rows that nobody has"
    )
    assert class_counts_figure(RunView(write_run(tmp_path / "other", **SMALL))) is None

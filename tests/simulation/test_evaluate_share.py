"""Evaluations of a random share of the clients: what clients do is the same, and the last one is of all."""

from pathlib import Path

import numpy as np
import pytest

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from tests.resume.same import require_same
from tests.resume.test_resume import went_on
from tests.simulation.worlds import DIGITS, load, run, simulation

SHARE = "run.evaluate_share=0.34"  # of 6: 2; of 5: 2
OFTEN = ("run.duration=3 s", "run.evaluate_every=250 ms")
PARTS = ("1 s", "3 s")
GOES = "churn=[{at='1.1 s', event='crash', clients=[2]}, {at='2.1 s', event='rejoin', clients=[2]}]"
TWO = """\
from protocols.decentralized.gossip import Gossip

class Two(Gossip):
    "Is judged by an average, and has another model beside."

    def evaluated(self):
        return {"mine": [(1.0, self.params), (1.0, 0.5 * self.params)], "other": 0.9 * self.params}
"""


def measured(built: Simulation, name: str = "accuracy") -> dict[float, dict[str, float]]:
    """The values by time and client."""
    found: dict[float, dict[str, float]] = {}
    for row in built.observer.metrics.to_table().to_pylist():
        if row["name"] == name:
            assert row["actor"] not in found.setdefault(row["time"], {}), "measured twice"
            found[row["time"]][row["actor"]] = row["value"]
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("protocol.name=cobo", "protocol.sampling=none"),
        ("protocol.name=fedavg", "protocol.fraction=0.5"),
        ("protocol.name=local", "model={name='decoupled', backbones=['small-mlp', 'deep-mlp']}"),
        ("protocol.name=two.py:Two",),
    ],
)
def test_a_share_is_measured_and_the_run_is_the_same(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    (tmp_path / "two.py").write_text(TWO)
    with simulation(tmp_path, DIGITS, *overrides, *OFTEN, GOES) as of_all:
        of_all.run()
    with simulation(tmp_path, DIGITS, *overrides, *OFTEN, GOES, SHARE) as of_some:
        of_some.run()
    assert not of_some.supervisor.failures
    assert of_some.trace.hash() == of_all.trace.hash()
    for name in ("accuracy", "loss"):
        some, everyone = measured(of_some, name), measured(of_all, name)
        assert list(some) == list(everyone) and len(some) == 13
        assert [len(each) for each in some.values()] == [2] * 12 + [6]
        for time_s, values in some.items():
            expected = [everyone[time_s][client] for client in values]
            np.testing.assert_allclose(list(values.values()), expected, rtol=1e-5)
    draws = {tuple(sorted(each)) for each in measured(of_some).values()}
    assert len(draws) > 6, "a new draw for each"
    assert measured(of_some, "iterations") == measured(of_all, "iterations")
    assert of_some.observer.models == of_all.observer.models


def test_the_draw_is_of_those_that_are_up(tmp_path: Path) -> None:
    with simulation(tmp_path, DIGITS, *OFTEN, GOES, "run.evaluate_share=0.999") as built:
        built.run()
    up = {time_s: 5 if 1.1 < time_s < 2.1 else 6 for time_s in measured(built)}
    assert {time_s: len(values) for time_s, values in measured(built).items()} == up
    with simulation(tmp_path, DIGITS, *OFTEN, GOES, "run.evaluate_share=0.001") as built:
        built.run()
    assert [len(each) for each in measured(built).values()] == [1] * 12 + [6]


def test_the_last_evaluation_is_of_all_where_it_falls_on_another(tmp_path: Path) -> None:
    ends = ("run.iterations=4", "run.evaluate_every=2 iterations", "run.duration=60 s")
    with simulation(tmp_path, DIGITS, *ends, SHARE) as built:
        built.run()
    assert [len(each) for each in measured(built).values()] == [2, 2, 6]
    for name in ("iterations", "loss"):
        assert len(list(measured(built, name).values())[-1]) == 6


def test_a_run_that_goes_on_draws_the_same(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir()
    short, whole = [
        run(tmp_path / part, DIGITS, SHARE, *OFTEN, f"run.duration={part}").directory for part in PARTS
    ]
    assert short is not None and whole is not None
    longer = went_on(short, "--until", PARTS[1])
    require_same(longer, whole)
    assert len(RunDirectory.load(longer).scan("metrics").filter(name="accuracy", time=1.0).collect()) == 2
    assert len(RunDirectory.load(short).scan("metrics").filter(name="accuracy", time=1.0).collect()) == 6


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "nan", "'all'"])
def test_what_is_no_share_is_refused(tmp_path: Path, share: str) -> None:
    with pytest.raises(UserError, match=r"run\.evaluate_share = .*: must be "):
        load(tmp_path, DIGITS, f"run.evaluate_share={share}")


def test_convergence_needs_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.evaluate_share = 0\.34.*: must be 1 with run\.converged"):
        load(tmp_path, DIGITS, SHARE, "run.converged.patience=1 s")


@pytest.mark.report
def test_the_report_has_the_means_of_who_was_measured_and_leaves_out_what_is_not_known(
    tmp_path: Path,
) -> None:
    directory = run(tmp_path, DIGITS, *OFTEN, GOES, SHARE).directory
    assert directory is not None
    view = RunView(RunDirectory.load(directory))
    assert view.evaluate_share == 0.34 and view.population is None and view.get("population") is None
    assert view.get("accuracy", "clients") == 6 and not np.isnan(view.at_the_end).any()
    page = (directory / "report.html").read_text()
    assert "Each evaluation measures a random 34.0% of them; the last evaluation measures all." in page
    assert "Arrivals and departures" in page and "Catch-up" not in page and "Time to accuracy" not in page
    assert view.measure is not None
    for client in range(6):
        assert len(view.measure[1].of(client).times) >= 1

"""Live runs of all kinds of scenarios: their parts work in other processes."""

from pathlib import Path

import pytest

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from tests.live.test_runs import accounted, live
from tests.simulation.kinds import KINDS


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_clients_in_other_processes_exchange_the_messages_of_the_simulation(
    kind: str, tmp_path: Path
) -> None:
    file, stated = KINDS[kind](tmp_path)
    wanted = load_scenario(file, [*stated, "run.duration=3 s", "run.compare_alone=false"])
    summary = live(wanted, tmp_path / "live").summary
    simulated = run_scenario(wanted, RunOptions(out=tmp_path / "simulated")).summary
    assert summary["failures"] == [] and summary["live"]["refused"] == 0
    assert accounted(summary) and summary["live"]["messages_between"] > 0
    found, expected = [each["bytes_by_type"] for each in (summary, simulated)]
    assert set(found) & set(expected) - {"Ready", "MembershipMessage"}
    assert set(summary["client_names"]) == set(simulated["client_names"])

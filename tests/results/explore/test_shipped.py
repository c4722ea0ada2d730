"""The page's states of shipped scenarios, and of runs with a past, are those that `explain` reports."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import tomli_w

from sim.results.explore.states import STATES
from sim.results.store.run_directory import load_checked
from sim.results.view import RunView
from sim.run.options import RunOptions
from sim.run.resume.explain import start_replay_of_run
from sim.run.resume.exploring import explore_run
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.results.explore.unpacked import facts_and_columns, state_in
from tests.results.report.test_browser import BROWSER, ask
from tests.resume.test_resume import coterie
from tests.simulation.worlds import QUADRATIC, run, write

pytestmark = pytest.mark.slow

PAIRS = 100
LOOKED_UP = "return PAIRS.map(([client, time]) => run.states[run.stretch(client, time).state]);"


def ran(folder: Path, name: str, *overrides: str) -> Path:
    """Results of the short form of a shipped scenario."""
    table = short(name)
    table["run"] |= {"compare_alone": False, "name": name}
    file = write(folder, tomli_w.dumps(table), f"{name}.toml")
    options = RunOptions(out=folder / "runs", device="cpu", checkpoints_s=[1.0])
    path = run_scenario(load_scenario(file, overrides), options).directory
    assert path is not None
    return path


@pytest.mark.parametrize("name", SHORT)
def test_states_are_those_that_explain_reports(tmp_path: Path, name: str) -> None:
    require_explained(ran(tmp_path, name))


def a_fork(folder: Path) -> Path:
    ran(folder, "gossip")
    return after(folder, "fork", "--at", "1 s", "--without", "3")


def a_resumed_run(folder: Path) -> Path:
    ran(folder, "quickstart")
    return after(folder, "resume", "--until", "4 s")


def after(folder: Path, command: str, *options: str) -> Path:
    """The results that a command adds to the only run of a folder."""
    [path] = (folder / "runs").iterdir()
    done = coterie(command, path, *options, "--quiet")
    assert done.exit_code == 0, done.output
    [added] = [each for each in (folder / "runs").iterdir() if each != path]
    return added


def a_thousand_clients(folder: Path) -> Path:
    changes = ("clients.count=1000", "protocol.name=gossip", "run.duration=2 s", "run.evaluate_every=1 s")
    path = run(folder, QUADRATIC, *changes).directory
    assert path is not None
    return path


@pytest.mark.parametrize("made", [a_fork, a_resumed_run, a_thousand_clients])
def test_so_are_those_of_other_runs(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    require_explained(made(tmp_path))


def require_explained(path: Path) -> None:
    """Compare states at random times, with the content of the page and, if there is one, in a browser."""
    view = RunView(load_checked(path))
    page = explore_run(path)
    facts, columns = facts_and_columns(page.read_text())
    random = Random(65)
    pairs = [(random.randrange(len(view.clients)), random.uniform(0, view.end_s)) for _ in range(PAIRS)]
    pairs.sort(key=lambda pair: pair[1])
    shown = [state_in(facts, columns, *pair) for pair in pairs]
    assert shown == explained(path, pairs)
    if BROWSER is not None:
        assert ask(page, LOOKED_UP.replace("PAIRS", str([list(pair) for pair in pairs]))) == shown


def explained(path: Path, pairs: list[tuple[int, float]]) -> list[str]:
    """The states of pairs of client and time, in the words of the page, from the rows of `explain`."""
    states = []
    with start_replay_of_run(path) as replay:
        for client, time_s in pairs:
            replay.run_until(time_s)
            rows = dict(replay.described(replay.client(client)))
            if "activity" not in rows:
                assert ", down at " in rows["client"]
                states.append("down")
            else:
                first = rows["activity"].replace(":", ";").partition(";")[0]
                states.append(first if first in ("trains", "finished") else "waits")
    assert set(states) <= set(STATES)
    return states

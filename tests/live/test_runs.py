"""Whole runs on the wall clock, in processes of their own, held against the simulation of the same."""

import multiprocessing
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from actors.tcp.outgoing import Address
from sim.core.run_hook import RunHook
from sim.errors import UserError
from sim.live import coordinator
from sim.live.placement import COORDINATOR, place_actors
from sim.live.running import LiveOptions, run_live
from sim.live.worker import ProcessOrder
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import LIFECYCLE_EVENTS
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario, load_scenario
from sim.studies.study import load_study
from tests.live.watching import ended_when, has_trained, hidden

TWO = place_actors(["client-0", "client-1"], [], [], 2)
ORDER = ProcessOrder(Path("none.toml"), "", None, True, TWO, bytes(32))
SMALL = ("clients.count=6", "clients.topology.degree=2", "run.evaluate_every=2 s", "run.compare_alone=false")


def scenario(*overrides: str) -> Scenario:
    """Gossip of six clients for some seconds."""
    return load_scenario("gossip", (*SMALL, *overrides))


def live(
    wanted: Scenario, folder: Path, notice: Callable[[str], None] | None = None, **more: Any
) -> RunResult:
    options = RunOptions(out=folder, notice=notice)
    result = run_live(wanted, options, LiveOptions(processes=2, **more))
    assert result.directory is not None and not result.unwritten
    assert workers() == []  # no process is left behind
    return result


def workers() -> list[int]:
    """The processes of live runs that this one has started, in the order of their start."""
    return sorted(each.pid for each in multiprocessing.active_children() if each.pid is not None)


def accounted(summary: dict[str, Any]) -> bool:
    """Whether every message has one fate."""
    counts = summary["messages"]
    return bool(
        counts["sent"] == counts["delivered"] + counts["lost"] + counts["dropped"] + counts["in_flight"]
    )


def at(time_s: float, action: Callable[[], object]) -> Callable[[float], None]:
    """What calls `action` once, when the run has come so far."""
    left = [action]

    def progress(now_s: float) -> None:
        if left and now_s >= time_s:
            left.pop()()

    return progress


@pytest.mark.long
@pytest.mark.report
def test_a_run_on_sockets_is_the_simulated_one(tmp_path: Path) -> None:
    """Each client does the same steps and sends the same messages; the report says how far they are apart."""
    wanted = scenario("run.duration=4 s", "network.loss=0.1")
    result = live(wanted, tmp_path, held_against=True)
    summary = result.summary
    simulated = run_scenario(wanted, RunOptions(out=tmp_path)).summary
    held = {what: holds for what, _, holds in summary["verdicts"]}
    if not summary["live"]["stalls"]:  # no process of a busy machine stood still for half a second
        for key in ("sent", "bytes"):
            assert summary["messages"][key] == simulated["messages"][key]
        assert summary["work"]["steps"] == simulated["work"]["steps"]
        assert held.get("iterations of all clients within 1%", summary["live"]["too_busy"])
    assert accounted(summary)
    assert summary["against"]["wrong_sizes"] == 0
    assert summary["live"]["messages_between"] > 0
    assert summary["live"]["refused"] == 0
    assert result.directory is not None
    page = (result.directory / "report.html").read_text()
    for part in ("Comparison with the simulation", "Live run on sockets", "wall-clock time"):
        assert part in page
    beside = load_study([result.directory, next(tmp_path.glob("gossip-1-*"))], None)
    assert [run.values for run in beside.runs] == [{"live": True}, {"live": False}]
    directory = RunDirectory.load(result.directory)
    events = directory.scan("events").collect()
    sent = events.filter(pl.col("event") == "sent")
    assert sent["message"].n_unique() == sent.height == summary["messages"]["sent"]


@pytest.mark.long
def test_mistakes_of_a_method_are_told_as_by_a_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import random\n"
        "from coterie import Client\n"
        "class Own(Client):\n"
        "    async def step(self) -> None:\n"
        "        random.random()\n"
        "        await self.train(1)\n"
    )
    own = f"protocol.name={tmp_path / 'own.py'}:Own"
    wanted = scenario("run.duration=60 s", "clients.count=2", "clients.topology=complete", own)

    def both_have_trained() -> bool:
        return all(has_trained(hidden(tmp_path), f"process-{number}") for number in range(2))

    result = live(wanted, tmp_path, on_progress=ended_when(both_have_trained))
    told, simulated = (
        result.summary["warnings"],
        run_scenario(wanted, RunOptions(out=tmp_path)).summary["warnings"],
    )
    assert len(told) == 2 and told[1] == simulated[1] and "no client's model changed" in told[1]
    start, place, end = re.split(r"[()]", told[0])
    assert simulated[0] == f"{start}({tmp_path / 'own.py'}:5){end}"
    assert result.directory is not None
    assert (result.directory / place.removesuffix(":5")).read_text() == (tmp_path / "own.py").read_text()


@pytest.mark.long
def test_a_crash_is_the_end_of_a_process_and_who_comes_back_is_another(tmp_path: Path) -> None:
    churn = [
        "{ at = '2 s', event = 'crash', clients = [1, 2] }",
        "{ at = '3 s', event = 'rejoin', clients = [2], state = 'fresh' }",
        "{ at = '3 s', event = 'join', clients = [3] }",
    ]
    wanted = scenario("run.duration=3 min", f"churn=[{', '.join(churn)}]")
    seen: set[int] = set()

    def all_is_over() -> bool:
        seen.update(workers())
        own = {2: ("process-3", 1), 3: ("process-4", 0)}
        return all(has_trained(hidden(tmp_path), *process) for process in own.values())

    def ready(line: str) -> None:
        assert "6 actors in 5 processes" in line
        seen.update(workers())

    result = live(wanted, tmp_path, ready, on_progress=ended_when(all_is_over))
    summary = result.summary
    assert len(seen) == 6  # two that are shared, one of each of the three clients, and one for the rejoin
    assert len(summary["live"]["processes"]) == 5
    found = summary["clients"]
    assert accounted(summary)
    assert [found[key] for key in ("joined", "crashed", "rejoined", "alive")] == [1, 2, 1, 5]
    assert set(summary["loss_reasons"]) <= {"down", "unknown", "loss", "sender crashed"}
    assert result.directory is not None
    events = RunDirectory.load(result.directory).scan("events").collect()
    lives = [event for event in LIFECYCLE_EVENTS if event != "stop"]
    for client, happened in {1: "start crash", 2: "start crash rejoin", 3: "join"}.items():
        rows = events.filter(pl.col("actor") == f"client-{client}", pl.col("event").is_in(lives))
        assert " ".join(rows["event"]) == happened
    crash_s = events.filter(pl.col("actor") == "client-1", pl.col("event") == "crash")["time"].item()
    sent = events.filter(pl.col("actor") == "client-1", pl.col("event") == "sent")
    assert not (sent["time"] > crash_s).any()
    steps = dict(zip(summary["client_names"], summary["work"]["steps"]["clients"], strict=True))
    assert steps["client-2"] > 0 and steps["client-3"] > 0


@pytest.mark.long
def test_who_stands_still_loses_that_time_and_nobody_else_does(tmp_path: Path) -> None:
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(workers()[1])
        os.kill(stopped[0], signal.SIGSTOP)

    def go_on() -> None:
        os.kill(stopped[0], signal.SIGCONT)

    first, then = at(0.5, stop), at(3.0, go_on)

    def progress(now_s: float) -> None:
        first(now_s)
        then(now_s)

    own = ("clients.count=6", "run.duration=6 s", "run.evaluate_every=3 s", "devices.override=[]")
    wanted = load_scenario("dpsgd_asynchronous", own)
    summary = live(wanted, tmp_path, on_progress=progress).summary
    assert any(lost_s > 1.5 for _, lost_s in summary["live"]["stalls"])
    assert accounted(summary)
    assert "cut off" not in summary["loss_reasons"]  # no connection was given up
    simulated = run_scenario(wanted, RunOptions(out=tmp_path)).summary["work"]["steps"]["clients"]
    steps = summary["work"]["steps"]["clients"]
    ours, theirs = steps[0::2], steps[1::2]
    if len(summary["live"]["stalls"]) == 1:  # nobody else stood still on a busy machine
        assert all(abs(one - other) <= 1 for one, other in zip(ours, simulated[0::2], strict=True))
    lost = [other - one for one, other in zip(theirs, simulated[1::2], strict=True)]
    assert min(lost) > 0


@dataclass
class Ended:
    code: int | None
    last_words: str = "the coordinator has ended, or is not reachable"


def test_a_machine_that_takes_part_says_why_its_processes_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them may have ended by the time of the first look."""
    monkeypatch.setattr(coordinator, "start", lambda order: Ended(1))
    monkeypatch.setattr(coordinator, "end", lambda processes, patience_s: None)
    with pytest.raises(coordinator.ProcessFailed, match="process-0 ended: the coordinator has ended"):
        coordinator.run_processes_for_coordinator(ORDER, ["process-0", "process-1"])


def test_a_port_that_is_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address(*other.getsockname())
        order = replace(ORDER, addresses={COORDINATOR: taken, "process-0": taken, "process-1": taken})
        with pytest.raises(
            UserError, match=rf"127\.0\.0\.1:{taken.port}: cannot listen at this address: .*in use"
        ):
            coordinator.LiveRun(order, 1.0).run()


def test_the_same_is_refused_in_all_places(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sim.cli.live import app

    def refused(*arguments: str) -> str:
        found = CliRunner().invoke(app, ["live", "gossip", "--out", str(tmp_path), *arguments])
        assert found.exit_code == 2, found.output
        return found.output

    assert "run.duration: is required" in refused("--unset", "run.duration", "--set", "run.iterations=3")
    hosts = tmp_path / "hosts.toml"
    hosts.write_text("[[host]]\nname = 'a'\naddress = '127.0.0.1'\n")
    assert "--host x: must be one of a" in refused("--hosts", str(hosts), "--host", "x")
    assert "--certificates" in refused("--hosts", str(hosts), "--host", "a")
    assert "name the file of machines with --hosts" in refused("--host", "a")
    certified = ("--hosts", str(hosts), "--host", "a", "--certificates", str(tmp_path / "none"))
    assert f"--processes 3: must be 1 or left out, as {hosts} sets" in refused(*certified, "--processes", "3")
    assert "has no valid token" in refused(*certified, "--processes", "1")
    nothing = str(tmp_path / "none")
    assert "has no valid token" in refused("--hosts", str(hosts), "--host", "a", "--certificates", nothing)
    assert Counter(path.name for path in tmp_path.iterdir()) == {"hosts.toml": 1}
    assert workers() == []  # nothing was started


@pytest.mark.parametrize("what", ["again", "not empty"])
def test_certificates_are_made_once(tmp_path: Path, what: str) -> None:
    pytest.importorskip("cryptography")
    from sim.live.certificates import make_certificates
    from sim.live.tokens import read_token, tls_settings

    folder = tmp_path / "certificates"
    make_certificates(folder, ["coordinator", "process-0"])
    assert len(read_token(folder)) == 32
    assert tls_settings(folder, "process-0").server is not None
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    with pytest.raises(UserError, match="no valid files for process-9"):
        tls_settings(folder, "process-9")
    with pytest.raises(UserError, match="must be empty or new"):
        make_certificates(folder if what == "again" else tmp_path, ["coordinator"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"hooks": [RunHook()]}, "hooks is an option of simulations, not of live runs; remove it"),
        ({"on_evaluation": print}, "on_evaluation is an option of simulations"),
        ({"checkpoints_s": [1.0]}, "checkpoints_s is an option of simulations"),
        ({"report": False}, "report is an option of simulations"),
        ({"checkpoint_at_end": False}, "checkpoint_at_end is an option of simulations"),
        ({"device": "cuda"}, "--device cuda: live runs compute on CPUs; must be auto or cpu"),
    ],
)
def test_options_of_simulations_are_refused(option: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run_live(load_scenario("gossip"), RunOptions(out=tmp_path, **option), LiveOptions())
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True, kw_only=True)
class MoreOptions(RunOptions):
    label: str = ""


def test_a_new_option_is_refused_until_live_runs_use_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^label is an option of simulations"):
        run_live(load_scenario("gossip"), MoreOptions(out=tmp_path, label="mine"), LiveOptions())

"""Hooks see a run and change nothing of it; one that fails is removed and named, or ends the run."""

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest

import coterie
from sim.core.hooks import MessageEvent
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from tests.simulation.worlds import QUADRATIC, load


class Noted(RunHook):
    """Notes each call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.messages: dict[str, int] = {}

    def started(self, simulation: Simulation) -> None:
        assert simulation.loop.time() == 0.0
        self.calls.append("started")

    def message(self, event: MessageEvent) -> None:
        self.messages[event.kind] = self.messages.get(event.kind, 0) + 1

    def evaluated(self, simulation: Simulation) -> None:
        self.calls.append(f"evaluated at {simulation.loop.time():g}")

    def paused(self, simulation: Simulation) -> None:
        self.calls.append(f"paused at {simulation.loop.time():g}")

    def ended(self, simulation: Simulation) -> None:
        self.calls.append("ended")

    def closed(self, simulation: Simulation) -> None:
        self.calls.append("closed")


def ran(folder: Path, *hooks: RunHook, **options: Any) -> RunResult:
    keys = ("protocol.name=gossip", "run.duration=2 s", "run.evaluate_every=1 s")
    scenario = load(folder, QUADRATIC, *keys)
    return run_scenario(scenario, RunOptions(out=folder / "runs", device="cpu", hooks=hooks, **options))


def test_hooks_are_called_at_their_moments_and_change_nothing(tmp_path: Path) -> None:
    noted = Noted()
    watched = ran(tmp_path, noted, checkpoints_s=[1.5])
    assert watched.summary["trace_hash"] == ran(tmp_path).summary["trace_hash"]
    evaluated = ["evaluated at 0", "evaluated at 1"]
    assert noted.calls == ["started", *evaluated, "paused at 1.5", "ended", "evaluated at 2", "closed"]
    messages = watched.summary["messages"]
    assert noted.messages == {name: messages[name] for name in noted.messages}
    assert noted.messages["sent"] > 0
    assert watched.summary["warnings"] == []


def test_the_event_of_a_message_has_all_that_the_trace_is_told() -> None:
    """A new argument of `Trace.message` is a new field, which hooks of users may ignore."""
    told = inspect.signature(Trace.message).parameters
    where = "MessageEvent in sim/core/hooks.py, in the order of Trace.message in sim/results/trace.py"
    assert len(told) - 1 == len(MessageEvent._fields), f"add the missing field to {where}: {[*told][1:]}"


@pytest.mark.parametrize("name", ["started", "message", "evaluated", "ended"])
def test_a_hook_that_fails_is_named_and_removed(tmp_path: Path, name: str) -> None:
    calls = []

    def fail(self: RunHook, *arguments: object) -> None:
        calls.append(name)
        raise ValueError("mine")

    result = ran(tmp_path, type("Failing", (RunHook,), {name: fail})())
    assert calls == [name]
    assert result.summary["warnings"] == [
        f"the hook Failing failed in {name}() and was removed: ValueError: mine"
    ]
    assert result.summary["finished"]
    assert result.summary["trace_hash"] == ran(tmp_path).summary["trace_hash"]


@pytest.mark.parametrize("name", ["evaluated", "message"])
def test_a_hook_may_end_the_run_whose_results_stay(tmp_path: Path, name: str) -> None:
    """Also where it is called inside the task of a client, whose failure that is not."""
    times: list[float] = []

    class Decisive(RunHook):
        ends_run: ClassVar[bool] = True

        def evaluated(self, simulation: Simulation) -> None:
            times.append(simulation.loop.time())
            if name == "evaluated" and times[-1] == 1.0:
                raise ValueError("enough")

        def message(self, event: MessageEvent) -> None:
            if name == "message" and event.kind == "sent" and event.time_s > 1.0:
                raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        ran(tmp_path, Decisive())
    [directory] = (tmp_path / "runs").iterdir()
    summary = RunDirectory.load(directory).summary()
    assert summary["ended_by"] == "a hook raised ValueError: enough"
    assert summary["failures"] == [] and summary["finished"] is False
    assert 1.0 <= summary["virtual_seconds"] < 2.0


def test_a_hook_sees_failures_of_clients(tmp_path: Path) -> None:
    lines: list[str] = []

    class Failures(coterie.RunHook):
        def failed(self, line: str) -> None:
            lines.append(line)

    (tmp_path / "own.py").write_text(
        "from coterie import Client\n\n\nclass Fails(Client):\n"
        "    async def step(self):\n        raise ValueError('mine')\n"
    )
    scenario = load(tmp_path, QUADRATIC, f"protocol.name={tmp_path}/own.py:Fails")
    run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu", hooks=[Failures()]))
    assert lines[0].startswith("client-0 failed at 0 s in step (")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hooks": 5}, "hooks: must be a list of objects of RunHook"),
        ({"hooks": [Noted]}, "hooks: must be a list of objects of RunHook"),
        ({"device": "tpu"}, "--device tpu: must be one of auto, cpu, cuda"),
        ({"checkpoint_every_s": 0.0}, "checkpoint_every_s: must be above 0"),
        ({"checkpoints_s": [float("nan")]}, "checkpoints_s: must be times of at least 0, not nan"),
        ({"on_evaluation": 5}, "on_evaluation: must be a function"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RunOptions(**options)

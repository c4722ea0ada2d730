"""A run whose parts of batches are computed on a Ray cluster is the run here, also where a node dies."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.run import on_ray
from sim.run.on_ray import RayWorkers, workers_on_ray
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario
from tests.simulation.worlds import DIGITS, load

slow = pytest.mark.slow

NET = '''
from torch import nn


class Net(nn.Module):
    """A convolution, whose clients are trained one after the other; in the user's own file."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, wide: int = 4) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, wide, 3, padding=1)
        self.norm = nn.GroupNorm(2, wide)
        self.head = nn.Linear(64 * wide, classes)

    def forward(self, x):
        return self.head(self.norm(self.convolution(x.reshape(-1, 1, 8, 8))).relu().flatten(1))
'''


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "own_net.py").write_text(NET)
    more = ("clients.count=16", "model.name=own_net.py:Net", "training.momentum=0.5", "engine.workers=2")
    return load(tmp_path, DIGITS, "protocol.name=gossip", "training.batch_size=8", *more)


def ran(scenario: Scenario, out: Path, **more: Any) -> RunResult:
    return run_scenario(scenario, RunOptions(out=out, device="cpu", checkpoint_at_end=False, **more))


def require_same(result: RunResult, other: RunResult) -> None:
    assert result.summary["trace_hash"] == other.summary["trace_hash"]
    assert result.directory is not None and other.directory is not None
    metrics = [
        RunDirectory.load(each).scan("metrics").collect() for each in (result.directory, other.directory)
    ]
    assert len(metrics[0]) and metrics[0].equals(metrics[1])


def counting(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None] = lambda count: None) -> list[int]:
    """What was sent is counted in the list's only number; `then` is told it when one more has been sent."""
    counts, real = [0], RayWorkers._sent

    def sent(self: RayWorkers, *arguments: Any) -> Any:
        there = real(self, *arguments)
        counts[0] += 1
        then(counts[0])
        return there

    monkeypatch.setattr(RayWorkers, "_sent", sent)
    return counts


@slow
def test_two_nodes_give_the_trace_and_the_metrics_of_this_process(
    scenario: Scenario, tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "_LARGE_BYTES", 100)  # these vectors count as large ones
    counts = counting(monkeypatch)
    with workers_on_ray(nodes.address) as workers:
        there = ran(scenario, tmp_path / "there", workers=workers)
    assert counts[0] > 100
    require_same(there, ran(scenario, tmp_path / "here"))


@slow
def test_a_node_that_dies_costs_time_and_nothing_else(
    scenario: Scenario, tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(count: int) -> None:
        if count == 50:
            nodes.remove_node(nodes.second, allow_graceful=False)

    counts = counting(monkeypatch, kill)
    with workers_on_ray(nodes.address) as workers:
        there = ran(scenario, tmp_path / "there", workers=workers)
    assert counts[0] > 100
    require_same(there, ran(scenario, tmp_path / "here"))


@slow
def test_what_no_node_computes_is_computed_here(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    here = os.getpid()
    with workers_on_ray() as make:
        engine = build(scenario, device="cpu", workers=make).engine
        workers = engine.workers
        assert isinstance(workers, RayWorkers) and workers.count == 2
        dies = f"__import__('os').getpid() == {here} or __import__('os')._exit(1)"
        assert workers.call(eval, dies) is True
        assert workers.call(eval, f"__import__('os').getpid() == {here}") is False
        with pytest.raises(ZeroDivisionError):
            workers.call(divmod, 1, 0)
        with pytest.raises(UserError, match=r"drawn from the generator of numpy\.random that all code"):
            workers.call(eval, "float(__import__('numpy').random.rand())")
        monkeypatch.setattr(on_ray, "_LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(workers, "_cores_of_nodes", list)
        waits = f"__import__('os').getpid() == {here} or __import__('time').sleep(600)"
        assert workers.call(eval, waits) is True


@slow
def test_nodes_that_would_compute_something_else_are_refused(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")

    def refusal(scenario: Scenario = scenario) -> str:
        with pytest.raises(UserError) as refused, workers_on_ray() as make:
            build(scenario, device="cpu", workers=make)
        return str(refused.value)

    conditions = on_ray._result_conditions()
    with monkeypatch.context() as patched:
        patched.setattr(on_ray, "_result_conditions", lambda: conditions | {"torch": "1.0"})
        values = f"{conditions['torch']} on a node of the cluster, 1.0 on the run's machine"
        assert refusal().startswith(f"--on ray: torch differs: {values}; ")
    with monkeypatch.context() as patched:  # a folder that hides the package of these names
        patched.setattr(on_ray, "_write_code", lambda scenario, to: (to / "sim.py").write_text(""))
        assert refusal().startswith("--on ray: coterie does not work on the cluster's nodes: ")
    with monkeypatch.context() as patched:
        patched.setattr(RayWorkers, "_cores_of_nodes", lambda self: [0.0])
        assert refusal() == "engine.threads = 1: no node of the Ray cluster has this many cores"


@slow
def test_a_model_that_a_node_cannot_load(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setattr(on_ray, "_write_code", lambda scenario, folder: None)
    with workers_on_ray() as make:
        simulation = build(scenario, device="cpu", workers=make)
        kernel = simulation.clients[0].compute.kernel  # type: ignore[union-attr]
        with pytest.raises(UserError, match="cannot load the model: ModuleNotFoundError: No module"):
            simulation.engine.workers.call(id, kernel)


def test_what_cannot_be_is_said_before_the_run(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "quickstart", "--out", str(tmp_path), "--quiet", "--on", "ray"]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "ray", None)
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 2
        assert "--on ray needs the package ray; run pip install 'coterie[ray]'" in refused.output
    pytest.importorskip("ray", reason="Ray is not installed")
    for address, why in (("127.0.0.1:1", "refused"), ("a b", "Invalid address")):
        refused = CliRunner().invoke(app, [*command, "--address", address])
        assert refused.exit_code == 2
        assert f"no Ray cluster at {address}: " in refused.output and why in refused.output
    assert not list(tmp_path.glob("quickstart*"))

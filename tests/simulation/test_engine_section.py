"""The section [engine] in whole runs: the way that is taken and named, precision, memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine import ClientData
from sim.learning.engine.autotune import TimedTrainingStep, usable_cores
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.devices import DeviceWorkers
from sim.learning.engine.graph import sampler
from sim.learning.engine.workers import Workers
from sim.results.store.run_directory import RunDirectory
from sim.run.on_ray import workers_on_ray
from sim.run.options import RunOptions
from sim.run.process import cores, shared_cores
from sim.run.running import run_scenario
from sim.run.setup import engine as engine_of
from sim.run.setup.builder import build
from sim.run.setup.checking import check
from sim.scenario.scenario import Scenario, load_scenario
from tests.learning.engines import client_data
from tests.simulation.worlds import DIGITS, QUADRATIC, load, run, write

FASTEST = "engine.way=fastest"


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("way", ["vmap", "loop", "dense"])
def test_the_results_name_the_fastest_way(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedTrainingStep, "fastest_backend", lambda *arguments: way)
    first = run(tmp_path, DIGITS, FASTEST, "run.compare_alone=true")
    assert first.summary["engine"]["ways"] == [way]
    monkeypatch.delattr(TimedTrainingStep, "fastest_backend")  # nothing is measured again
    again = load_scenario(first.directory / "scenario.toml")
    assert again.engine.way == way
    second = run_scenario(again, RunOptions(out=tmp_path / "again", device="cpu"))
    assert second.summary["trace_hash"] == first.summary["trace_hash"]
    assert second.directory.name == first.directory.name


def test_a_real_measurement(tmp_path: Path) -> None:
    assert run(tmp_path, QUADRATIC, FASTEST).summary["engine"]["ways"][0] in ("vmap", "loop")


def test_checking_a_scenario_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TimedTrainingStep, "fastest_backend")
    check(load(tmp_path, DIGITS, FASTEST, "engine.precision=bfloat16"))


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Torch would use three threads, as it does by itself on a machine with three cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3, "a run leaves the number as it was"
    torch.set_num_threads(before)


def threads_of(monkeypatch: pytest.MonkeyPatch, *owners: tuple[type, str]) -> set[int]:
    """The numbers of threads with which these methods are called, from now on."""
    seen: set[int] = set()
    for owner, name in owners:
        method = getattr(owner, name)

        def watched(*arguments: Any, method: Any = method, **named: Any) -> Any:
            seen.add(torch.get_num_threads())
            return method(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)
    return seen


@pytest.mark.long
@pytest.mark.usefixtures("three_threads")
def test_one_thread_unless_another_number_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threads_of(
        monkeypatch, (ModelKernel, "descend"), (ModelKernel, "outputs"), (Architecture, "initial")
    )
    result = run(tmp_path, DIGITS, "run.compare_alone=true")
    assert seen == {1}
    assert load_scenario(result.directory / "scenario.toml").engine.threads == 1
    assert result.summary["engine"]["threads"] == 1
    seen.clear()
    run(tmp_path, DIGITS, "engine.threads=2")
    assert seen == {2}


@pytest.mark.long
def test_the_way_is_measured_with_the_threads_that_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def fastest_way(*arguments: object) -> str:
        seen.append(torch.get_num_threads())
        return "vmap"

    monkeypatch.setattr(TimedTrainingStep, "fastest_backend", fastest_way)
    run(tmp_path, DIGITS, "engine.threads=2", FASTEST)
    assert seen == [2]


@pytest.mark.long
@pytest.mark.usefixtures("three_threads")
def test_measured_threads_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_of, "fastest_threads", lambda steps, device: 2 * len(steps))
    seen = threads_of(monkeypatch, (ModelKernel, "outputs"))
    result = run(tmp_path, DIGITS, "engine.threads=fastest")
    assert seen == {2}
    assert result.summary["engine"]["threads"] == 2
    monkeypatch.delattr(engine_of, "fastest_threads")  # nothing is measured again
    again = run_scenario(
        load_scenario(result.directory / "scenario.toml"), RunOptions(out=tmp_path / "again")
    )
    assert again.summary["trace_hash"] == result.summary["trace_hash"]
    check(load(tmp_path, DIGITS, "engine.threads=fastest"))


def test_threads_are_measured_for_real(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS, "engine.threads=fastest")
    assert 1 <= result.summary["engine"]["threads"] <= usable_cores()


# Products whose sums torch cuts up among its threads: more terms than it gives to one of them.
WIDE = DIGITS.replace('name = "logistic-regression"', 'name = "mlp"\nhidden = [4096]')


@pytest.mark.slow
def test_a_run_is_the_same_on_any_number_of_cores(tmp_path: Path) -> None:
    """In processes of their own, in which torch picks the number by itself."""
    file = write(tmp_path, WIDE)
    hashes = set()
    for count in ("1", "2", "7"):
        out = str(tmp_path / count)
        command = [sys.executable, "-m", "sim", "run", str(file), "--quiet", "--out", out]
        subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": count}, check=True, capture_output=True)
        [directory] = (tmp_path / count).iterdir()
        hashes.add(RunDirectory.load(directory).summary()["trace_hash"])
    assert len(hashes) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_tf32_needs_cuda(tmp_path: Path) -> None:
    scenario = load(tmp_path, QUADRATIC, "engine.precision=tf32")
    before = flags()
    for attempt in (check, build, lambda asked: run_scenario(asked, RunOptions(out=tmp_path / "runs"))):
        with pytest.raises(UserError, match=r'engine\.precision = "tf32": .*CUDA.*"float32" or "bfloat16"'):
            attempt(scenario)
    assert flags() == before
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_float32_is_float32_during_the_run_only(
    tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def descend(self: ModelKernel, flat: torch.Tensor, *others: torch.Tensor) -> None:
        seen.append(flags())
        if fails:
            raise KeyboardInterrupt

    monkeypatch.setattr(ModelKernel, "descend", descend)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = flags()
    if fails:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, QUADRATIC)
    else:
        run(tmp_path, QUADRATIC)
    assert set(seen) == {(False, False)}
    assert flags() == before


def test_bfloat16_learns_as_well_and_is_another_run(tmp_path: Path) -> None:
    exact, rounded = (run(tmp_path, DIGITS, f"engine.precision={p}").summary for p in ("float32", "bfloat16"))
    assert exact["trace_hash"] != rounded["trace_hash"]
    assert rounded["accuracy"]["mean"] == pytest.approx(exact["accuracy"]["mean"], abs=0.05)


def test_memory_and_device_are_reported(tmp_path: Path) -> None:
    engine = run(tmp_path, DIGITS).summary["engine"]
    assert engine["device"] == "cpu"
    assert engine["memory"] >= 6 * 4 * (64 * 10 + 10)  # bytes: six models at least
    assert engine["memory_per_client"] == pytest.approx(engine["memory"] / 6)


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("descend", "a training step of logistic-regression.*, 650 numbers per vector, on 8 samples"),
        ("outputs", "an evaluation of all models"),
    ],
)
def test_what_does_not_fit_ends_the_run(
    tmp_path: Path, method: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(ModelKernel, method, fail)
    with pytest.raises(UserError, match=f"out of memory on cpu: no room for {what}; use"):
        run(tmp_path, DIGITS)
    assert list((tmp_path / "runs").iterdir()) == []


def test_data_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sim.run.setup.builder.load_learning", fail)
    with pytest.raises(UserError, match="no room for the data and the models at the start"):
        build(load(tmp_path, DIGITS), device="cpu")


@pytest.mark.long
@pytest.mark.parametrize("way", ["dense", "loop", "vmap"])
def test_a_run_is_the_same_with_any_number_of_workers(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_CHUNK_BYTES", 1)  # a client in each part
    own = (f"engine.way={way}", "training.momentum=0.5", "run.compare_alone=true")
    runs = [run(tmp_path, DIGITS, *own, f"engine.workers={workers}") for workers in (1, 2, 5)]
    assert len({result.summary["trace_hash"] for result in runs}) == 1
    first, *others = [RunDirectory.load(result.directory).scan("metrics").collect() for result in runs]
    assert all(first.equals(other) for other in others)


# --- several devices ---

TWO = 'engine.devices=["cuda:0", "cuda:1"]'


@pytest.mark.parametrize("way", ["dense", "loop"])
def test_a_run_is_the_same_on_any_number_of_devices(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_CHUNK_BYTES", 1)  # a client in each part
    scenario = load(tmp_path, DIGITS, f"engine.way={way}", "training.momentum=0.5", "run.compare_alone=true")
    found = []
    for count in (1, 2, 3):

        def make(scenario: Scenario, data: ClientData, count: int = count) -> Workers:
            return DeviceWorkers([data.train.x.device] * count, data)

        result = run_scenario(scenario, RunOptions(out=tmp_path / str(count), device="cpu", workers=make))
        metrics = RunDirectory.load(result.directory).scan("metrics").collect()
        found.append((result.summary["trace_hash"], metrics))
    assert all(found[0][0] == trace and found[0][1].equals(metrics) for trace, metrics in found)


def test_a_scenario_names_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    scenario = load(tmp_path, DIGITS, TWO)
    assert engine_of.first_device(scenario.engine.devices, "auto") == torch.device("cuda:0")
    monkeypatch.setattr(engine_of, "DeviceWorkers", lambda devices, data: devices)
    assert engine_of.local_workers(scenario, client_data()) == [
        torch.device("cuda:0"),
        torch.device("cuda:1"),
    ]
    check(scenario)


@pytest.mark.parametrize(
    "stated",
    [
        '["cuda:0"]',
        '["cuda:0", "cuda:0"]',
        '["cuda:0", "cpu"]',
        '["cuda:00", "cuda:1"]',
        '"cuda:0"',
        "[0, 1]",
    ],
)
def test_devices_that_cannot_be(tmp_path: Path, stated: str) -> None:
    says = r'toml: engine.devices = .*: must be two or more different GPUs, such as \["cuda:0", "cuda:1"\]'
    with pytest.raises(UserError, match=says):
        load(tmp_path, f"{DIGITS}[engine]\ndevices = {stated}\n")


def test_devices_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = 'engine.devices = ["cuda:0", "cuda:1"]'

    def refusal(device: str = "auto") -> str:
        with pytest.raises(UserError) as raised:
            build(load(tmp_path, DIGITS, TWO), device=device)
        return str(raised.value).removeprefix(f"{stated}: ")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    none = "no cuda:0 on this machine, which has no CUDA device that torch can use"
    assert refusal() == none
    with pytest.raises(UserError, match=none):
        check(load(tmp_path, DIGITS, TWO))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert refusal() == "no cuda:1 on this machine, which has cuda:0"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    assert (
        refusal()
        == "the GPUs are GPU cuda:0 and GPU cuda:1; they must be of the same kind; otherwise, results would "
        "differ"
    )
    for device in ("cpu", "cuda"):
        assert refusal(device).startswith(f"{stated} cannot be combined with --device {device}; remove one")


def test_devices_are_not_for_a_cluster(tmp_path: Path) -> None:
    with (
        workers_on_ray() as make,
        pytest.raises(UserError, match=r"engine.devices = .* cannot be combined with --on ray"),
    ):
        make(load(tmp_path, DIGITS, TWO), None)


@pytest.mark.parametrize(("stated", "there", "workers"), [("auto", 4, 4), ("auto", 1, 1), ("3", 1, 3)])
def test_as_many_workers_as_cores_unless_another_number_is_stated(
    tmp_path: Path, stated: str, there: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_of, "cores", lambda: there)
    simulation = build(load(tmp_path, DIGITS, f"engine.workers={stated}"), device="cpu")
    assert simulation.engine.workers.count == workers
    simulation.close()
    simulation = build(load(tmp_path, DIGITS, f"engine.workers={stated}", "engine.threads=2"), device="cpu")
    assert simulation.engine.workers.count == (max(1, there // 2) if stated == "auto" else workers)
    simulation.close()


def test_runs_of_a_sweep_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.run.process.usable_cores", lambda: 8)
    assert cores() == 8
    with shared_cores(3):
        assert cores() == 2
        with shared_cores(100):
            assert cores() == 1
    assert cores() == 8

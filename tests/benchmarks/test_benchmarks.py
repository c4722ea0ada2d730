"""The contenders of a benchmark do the same work, and what is made of their measurements is right."""

import asyncio
import gc
import json
import multiprocessing
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier

import pytest
import torch

from benchmarks import (
    bytecodes,
    engine,
    event_loop,
    gossipy,
    growth,
    launches,
    profiling,
    utilisation,
    whole_run,
)
from benchmarks.gpu import speed
from benchmarks.gpu.__main__ import DOCS, FOUND, PARTS
from benchmarks.measuring import interleaved, median_ratio, peak_memory_bytes
from sim.kernel.clock import VirtualLoop
from sim.kernel.task import sleep
from sim.learning import evaluation
from sim.learning.engine.execution import Execution
from sim.scenario.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_contenders_take_turns_and_their_first_time_does_not_count() -> None:
    turns: list[str] = []

    def contender(name: str) -> int:
        turns.append(name)
        return len(turns)

    measured = interleaved({name: partial(contender, name) for name in "ab"}, 3)
    assert turns == list("abababab")
    assert measured == {"a": [3, 5, 7], "b": [4, 6, 8]}


def test_ratio_is_the_median_of_the_ratios_of_each_turn() -> None:
    # The machine was ten times slower in the second turn: the rates tell nothing, the ratios of a turn do.
    assert median_ratio([200.0, 20.0, 300.0], [100.0, 10.0, 100.0]) == 2.0


# Wakeups after LEAD_S = 2 and up to 11.9 s: 15 - 2 of the first actor, 9 - 1 of the second.
@pytest.mark.parametrize(
    ("loop", "pause"),
    [(VirtualLoop, sleep), (VirtualLoop, asyncio.sleep), (event_loop.Patched, asyncio.sleep)],
)
def test_event_loops_count_the_same_wakeups(loop: type, pause: Callable[[float], Awaitable[None]]) -> None:
    assert event_loop.on_asyncio(loop, pause, [0.75, 1.25], 9.9)[0] == 21
    if find_spec("simpy") is not None:  # which `make bench` installs
        assert event_loop.on_simpy([0.75, 1.25], 9.9)[0] == 21


@pytest.mark.parametrize("model", engine.MODELS_MEASURED[:2], ids=lambda model: model.name)
def test_every_way_of_lockstep_training_takes_a_step_for_each_client(model: engine.Model) -> None:
    for name, train_all in engine.contenders(model, 3).items():
        assert train_all() == 3, name


@pytest.mark.parametrize("clients", [2, 8, 32])
def test_a_flush_gives_a_device_as_much_to_do_however_many_clients_train(clients: int) -> None:
    """And no call waits for it: on tensors without numbers that would be an error."""
    assert launches.counts(engine.MODELS_MEASURED[1], clients) == (20, 3)


def test_convolutions_of_some_clients_are_given_to_a_device_at_once() -> None:
    [cnn] = [model for model in engine.MODELS_MEASURED if model.name == "cnn"]
    one_call = launches.counts(cnn, 4)
    assert launches.counts(cnn, 8) == one_call
    assert one_call[1] == 3


@pytest.mark.parametrize("deferred", [True, False])
def test_whole_run_trains_and_only_deferral_makes_batches(deferred: bool) -> None:
    chosen = whole_run.scenario("logistic-regression", 21, 2, deferred=deferred)
    found = whole_run.run(chosen)
    assert found.updates_per_s > 0
    assert 0 < found.outside < 1
    assert (found.mean_batch > 1) is deferred


@pytest.mark.skipif(not gossipy.is_installed(), reason="gossipy is installed by make bench only")
def test_gossipy_takes_about_one_step_per_client_and_period() -> None:
    steps = 0
    update = gossipy._modules().handler.TorchModelHandler._update

    def counted(handler: object, data: object) -> object:
        nonlocal steps
        steps += 1
        return update(handler, data)

    gossipy._modules().handler.TorchModelHandler._update = counted
    try:
        assert gossipy.updates_per_s("logistic-regression", 21, 4) > 0
    finally:
        gossipy._modules().handler.TorchModelHandler._update = update
    assert 3 * 21 <= steps - 21 <= 4 * 21  # one step of each when it is made, and what has arrived by the end


@pytest.mark.long
def test_peak_memory_is_that_of_the_process_and_not_of_who_started_it() -> None:
    before = peak_memory_bytes()
    held = b"1" * (before + 2**28)
    now = peak_memory_bytes()
    assert now >= len(held)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(peak_memory_bytes) < 0.75 * now


def test_growth_counts_all_steps_and_memory() -> None:
    try:
        cost = growth.run(
            5, torch.get_num_threads()
        )  # elsewhere in a process of its own, without collections
    finally:
        gc.enable()
    assert 0.5 * growth.STEPS * growth.PERIODS < cost.updates / 5 <= growth.STEPS * growth.PERIODS
    assert 0 < cost.run_s < cost.wall_s
    assert cost.vectors_bytes < cost.peak_bytes


@pytest.mark.parametrize(
    ("module", "part"),
    {
        "sim/kernel/clock.py": "event loop and tasks",
        "sim/kernel/event.py": "event loop and tasks",
        "sim/world/devices/device.py": "devices",
        "sim/world/network.py": "network, random numbers, membership",
        "sim/learning/engine/handles.py": "jobs and the pending graph",
        "sim/core/client_training.py": "jobs and the pending graph",
        "actors/codec.py": "sizes of messages",
        "actors/mailbox.py": "actors and mailboxes",
        "protocols/decentralized/gossip.py": "the protocol itself",
        "sim/results/trace.py": "trace and observer",
    }.items(),
)
def test_a_profile_tells_the_parts_of_the_program_apart(module: str, part: str) -> None:
    file = profiling.ROOT / module
    assert file.is_file()
    assert profiling.part_of_file(str(file)) == part
    assert profiling.part_of_file(json.__file__) is None


@pytest.mark.long
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecodes are counted for Python 3.11")
@pytest.mark.skipif(sys.gettrace() is not None, reason="somebody else traces")
def test_an_update_takes_no_more_bytecodes_and_frames_than_it_did() -> None:
    bytecodes.count(bytecodes.CLIENTS, 1)  # fills caches, which other tests may have filled
    counts = bytecodes.count(bytecodes.CLIENTS, 5)
    assert 400 < counts.updates < 500
    assert 3_000 < counts.bytecodes_per_update < 3_700
    assert 100 < counts.frames_per_update < 132
    assert counts.bytecodes["jobs and the pending graph"] > 500 * counts.updates


def test_a_sample_in_a_flush_is_tensor_work_and_one_in_an_evaluation_does_not_count() -> None:
    found: list[tuple[str, str | None]] = []
    run = Execution.run
    measure_models = evaluation.measure_models

    def look(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def looked(*args: object, **more: object) -> object:
            found.append((name, profiling.part_of(sys._getframe())))
            return function(*args, **more)

        return looked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Execution, "run", look("level", run))
        patch.setattr("sim.core.observer.measure_models", look("models", measure_models))
        with closing(whole_run.built(whole_run.scenario("mlp", 10, 2))) as simulation:
            simulation.run()
    assert set(found) == {("level", profiling.TENSORS), ("models", None)}


def test_the_projection_is_of_the_scenario() -> None:
    scenario = load_scenario(SCENARIOS / "cobo_cross_device.toml")
    expected = scenario.clients.count, scenario.run.iterations, scenario.training.batch_size
    assert expected == (utilisation.CLIENTS, utilisation.ITERATIONS, utilisation.BATCH)
    chosen = utilisation.CROSS_DEVICE.model_dump(include={"mode", "sampling", "constant_iterations", "decay"})
    assert scenario.protocol.settings.model_dump(include=set(chosen)) == chosen
    assert scenario.model.name == utilisation.RESNET.name


def test_the_projection_counts_two_gradients_for_each_expected_update_of_a_pair() -> None:
    # 4 clients have 6 pairs; a pair's probability is 1/4 for 40 iterations, then 1/41 and 1/42.
    assert utilisation.pair_gradients(4, 42) == pytest.approx(2 * 6 * (40 / 4 + 1 / 41 + 1 / 42))
    text = utilisation.projection(1e15, "float32", 64)
    steps = 80 * 20_000 + utilisation.pair_gradients(80, 20_000)
    hours = steps * 128 * utilisation.flops_per_sample(utilisation.RESNET) / 1e15 / 3600
    assert f" {hours:,.1f} hours" in " ".join(text.split())


def test_runs_that_share_a_card_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the table beside them; torch alone would give convolutions TF32."""
    found: list[bool] = []

    def rate(train: Callable[[], int], seconds: float, device: torch.device) -> float:
        found.append(torch.backends.cudnn.allow_tf32)
        return 1.0

    monkeypatch.setattr(speed, "steps_per_second", rate)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    speed._one_of_them(speed.MLP.name, 2, "cpu", 0.0, Barrier(1), SimpleQueue())  # type: ignore[arg-type]
    assert found == [False]


def test_the_page_on_gpus_has_every_part_and_what_was_found_by_hand() -> None:
    text = (DOCS / "gpu.md").read_text(encoding="utf-8")
    assert all(f"\n## {part.title}\n\n{part.text}\n" in text for part in PARTS.values())
    assert text.endswith(FOUND.read_text(encoding="utf-8"))

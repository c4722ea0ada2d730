"""Training steps per second of engine and plain loop on the device, and of the engine on the CPU."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import Queue

import torch

from benchmarks.engine import BATCH_SIZE, MODELS_MEASURED, SAMPLES, Model, plain_loop, with_engine
from benchmarks.gpu.parts import Effort, Row, in_gb, peak_bytes
from benchmarks.measuring import CPU, interleaved, median_ratio, steps_per_second
from sim.learning.engine.backends.precision import allowing_tf32

TITLE = "Engine"
TEXT = f"""\
The table gives training steps of single clients per second, as in [the benchmarks](benchmarks.md): N clients,
{BATCH_SIZE} of {SAMPLES} samples per step (in the last rows, all samples). *Plain* runs one PyTorch module
after the other on the device. The CPU uses one thread, as in a run. *Peak* is the memory of the engine on the
device, in GB."""

SECONDS, REPETITIONS = 0.3, 3
_, MLP, CNN, RESNET = MODELS_MEASURED
ON_CPU_MAX = {MLP: 100, CNN: 8, RESNET: 8}
COUNTS = (8, 32, 100)


def rows(effort: Effort) -> Iterator[Row]:
    for model in (MLP, CNN, RESNET):
        for clients in COUNTS if effort.share == 1 else COUNTS[:1]:
            yield _row(effort, model, clients, BATCH_SIZE, "float32", beside=True)
    for precision in ("float32", "tf32", "bfloat16") if effort.device.type == "cuda" else ("float32",):
        for way in ("auto", "loop"):
            clients = 80 if effort.share == 1 else 2
            yield _row(effort, RESNET, clients, SAMPLES, precision, beside=False, way=way)


def _row(
    effort: Effort,
    model: Model,
    clients: int,
    batch: int,
    precision: str,
    *,
    beside: bool,
    way: str = "auto",
) -> Row:
    device, seconds = effort.device, SECONDS * effort.share
    peak_bytes(device)
    with allowing_tf32(precision):
        engine = with_engine(model, clients, way, device, precision, batch)
        contenders = {"engine": partial(steps_per_second, engine, seconds, device)}
        found = interleaved(contenders, 1)  # alone, to measure its memory
        peak = peak_bytes(device)
        if beside:
            plain = plain_loop(model, clients, device)
            contenders["plain"] = partial(steps_per_second, plain, seconds, device)
        found = interleaved(contenders, REPETITIONS)
    row = {
        "model": model.label,
        "clients": clients,
        "batch": batch,
        "precision": precision,
        "way": way,
        "engine": statistics.median(found["engine"]),
        "plain": statistics.median(found["plain"]) if beside else None,
        "to plain": median_ratio(found["engine"], found["plain"]) if beside else None,
        "peak": in_gb(peak),
    }
    if not beside or clients > ON_CPU_MAX[model]:
        return row | {"engine, CPU": None, "to CPU": None}
    on_cpu = steps_per_second(with_engine(model, clients, "auto", CPU), seconds, CPU)
    return row | {"engine, CPU": on_cpu, "to CPU": row["engine"] / on_cpu}


# --- two runs on one card ---

TWO_TITLE = "Two runs on one card"
TWO_TEXT = """\
Two processes train at the same time, each with its own clients. The table gives their total steps per
second."""


def rows_of_two(effort: Effort) -> Iterator[Row]:
    for model, clients in ((MLP, 32), (CNN, 32), (RESNET, 32)) if effort.share == 1 else ((MLP, 8),):
        alone, both = (_together(count, model, clients, effort) for count in (1, 2))
        row = {"model": model.label, "clients each": clients, "one run": alone, "two runs": both}
        yield row | {"ratio": both / alone}


def _together(processes: int, model: Model, clients: int, effort: Effort) -> float:
    context = get_context("spawn")
    results: Queue[float] = context.Queue()
    barrier = context.Barrier(processes)
    arguments = (model.name, clients, str(effort.device), 3 * effort.share, barrier, results)
    started = [context.Process(target=_one_of_them, args=arguments) for _ in range(processes)]
    for each in started:
        each.start()
    try:
        return sum(results.get(timeout=90) for _ in started)
    finally:
        for each in started:
            each.join(timeout=10)


def _one_of_them(
    name: str, clients: int, device_name: str, seconds: float, barrier: object, results: "Queue[float]"
) -> None:
    model, device = next(each for each in MODELS_MEASURED if each.name == name), torch.device(device_name)
    train: Callable[[], int] = with_engine(model, clients, "auto", device)
    wait: Callable[..., object] = barrier.wait  # type: ignore[attr-defined]
    with allowing_tf32("float32"):
        train()
        wait(60)
        results.put(steps_per_second(train, seconds, device))

"""Launches, copies and waits of one flush on the device, counted by torch's profiler."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine import BATCH_SIZE, Model, with_engine
from benchmarks.gpu.parts import Effort, Row
from benchmarks.gpu.speed import CNN, MLP, RESNET

TITLE = "Launches, copies and waits"
TEXT = """\
The table counts, for a flush in which every client takes one training step, kernels, copies from and to the
host, and calls that wait for the device. The goal is two copies and one wait."""

_FLUSHES = 3


def rows(effort: Effort) -> Iterator[Row]:
    if effort.device.type != "cuda":
        return
    for model in (MLP, CNN, RESNET):
        for clients in (1, 8, 32, 100):
            yield {"model": model.label, "clients": clients} | _of_flush(model, clients, effort.device)


def _of_flush(model: Model, clients: int, device: torch.device) -> dict[str, Any]:
    train = with_engine(model, clients, "auto", device, batch_size=BATCH_SIZE)
    for _ in range(2):
        train()
    torch.cuda.synchronize(device)
    counts = counted(lambda: [train() for _ in range(_FLUSHES)])
    return {name: count / _FLUSHES for name, count in counts.items()}


def counted(work: Callable[[], object]) -> dict[str, int]:
    """Return the driver calls of some work."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        work()
        # The profiler itself waits for the device when it ends.
    calls = {each.key: each.count for each in profiled.key_averages()}

    def total(*parts: str) -> int:
        return sum(count for key, count in calls.items() if any(part in key for part in parts))

    return {
        "kernels": total("LaunchKernel"),
        "copies to the device": total("Memcpy HtoD"),
        "copies to the host": total("Memcpy DtoH"),
        "copies on the device": total("Memcpy DtoD"),
        "waits": total("StreamSynchronize", "EventSynchronize"),
        "allocations": total("cudaMalloc", "cudaHostAlloc"),
    }

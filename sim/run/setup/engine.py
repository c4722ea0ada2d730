"""The engine of a run, and how it computes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from sim.core.learning_settings import LearningSettings
from sim.errors import UserError
from sim.learning.engine import ClientData, Engine
from sim.learning.engine.autotune import Trial, fastest_threads
from sim.learning.engine.backends.kernels import choose_backend
from sim.learning.engine.devices import DeviceWorkers
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.workers import Workers
from sim.run.process import cores
from sim.run.setup.learning import Learning
from sim.run.setup.memory import Room, machines_room
from sim.scenario.scenario import Scenario

MakeWorkers = Callable[[Scenario, ClientData], Workers]
"""Makes the workers of a decided scenario, whose clients have these data. Raises UserError."""


def threads_here(scenario: Scenario, data: ClientData) -> Workers:
    """Threads of this process: on a CPU as many as the scenario asks for, and one for each GPU it names."""
    threads, workers = scenario.engine.threads, scenario.engine.workers
    assert threads != "fastest", "measured by now"
    if scenario.engine.devices is not None:
        return DeviceWorkers(list(map(torch.device, scenario.engine.devices)), data)
    if data.train.x.device.type != "cpu":
        return Workers()
    return Workers(max(1, cores() // threads) if workers == "auto" else workers)


def choose_device(name: str) -> torch.device:
    """ "auto", "cpu" or "cuda" as a torch device; UserError when there is no such device."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


def first_device(devices: Sequence[str], name: str) -> torch.device:
    """The first of `engine.devices`; UserError for a name but "auto", and for what this machine lacks."""
    stated = f"engine.devices = {json.dumps(devices)}"
    if name != "auto":
        raise UserError(f"{stated}: only for --device auto, and this run is on {name}; leave one of them out")
    here = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    for device in devices:
        if device not in here:
            has = ", ".join(here) or "no CUDA device that torch can use"
            raise UserError(f"{stated}: there is no {device} on this machine, which has {has}")
    kinds = sorted(set(map(torch.cuda.get_device_name, devices)))
    if len(kinds) > 1:
        raise UserError(f"{stated}: are {' and '.join(kinds)}; must be of one kind, or numbers would differ")
    return torch.device(devices[0])


def room_of(device: torch.device) -> Room:
    """Where models must fit, on that device."""
    if device.type == "cuda":
        return Room(str(device), int(torch.cuda.get_device_properties(device).total_memory))
    return machines_room()


def require_precision(scenario: Scenario, device: torch.device) -> None:
    """Refuse with a UserError what the device does not have."""
    if scenario.engine.precision == "tf32" and device.type != "cuda":
        raise UserError(
            'engine.precision = "tf32": a number format of CUDA devices, and this run is on a CPU; must be '
            '"float32" or "bfloat16" there'
        )


def require_parts(scenario: Scenario, learning: Learning) -> None:
    """Refuse with a UserError parts of batches where a batch counts as a whole."""
    for own in learning.kinds.values() if scenario.engine.micro_batch is not None else ():
        needs_all = own.views > 1 or not hasattr(own.objective, "each")
        if needs_all or own.architecture.untrained:
            why = "the method's loss" if needs_all else "its batch norms and dropouts"
            raise UserError(
                f"engine.micro_batch = {scenario.engine.micro_batch}: {own.architecture.key} takes batches "
                f"whole, because of {why}; leave the key out"
            )


def decided(scenario: Scenario, learning: Learning) -> Scenario:
    """The scenario with the backend and the threads that are taken, measured for "fastest".

    The threads are measured for that backend, which is the fastest with as many as torch uses now. A run of
    what the scenario says takes the same without measuring. UserError for a backend that the model has not,
    and for a precision that the device has not.
    """
    require_precision(scenario, learning.device)
    require_parts(scenario, learning)
    way, threads = scenario.engine.way, scenario.engine.threads
    trials = [_trial(scenario, learning, settings) for settings in learning.kinds.values()]
    if way == "fastest":
        backends = [trial.fastest_backend() for trial in trials]
    else:
        backends = [choose_backend(way, own.architecture, own.objective, own.device) for own in trials]
    if threads == "fastest":
        steps = [trial.step(backend) for trial, backend in zip(trials, backends, strict=True)]
        threads = fastest_threads(steps, learning.device)
    # Different models may have different backends; "auto" names the same ones in every run on such a device.
    taken = set(backends)
    return with_engine(scenario, way=taken.pop() if len(taken) == 1 else "auto", threads=threads)


def _trial(scenario: Scenario, learning: Learning, own: LearningSettings) -> Trial:
    """A training step of the clients with these settings."""
    sampler = BatchSampler(learning.data.train, own.batch_size, own.sampling, own.augmentation, own.views)
    engine, clients = scenario.engine, scenario.clients.count
    what = (own.architecture, own.objective, own.optimizer)
    return Trial(*what, sampler, clients, engine.precision, engine.micro_batch)


def make_engine(scenario: Scenario, learning: Learning, workers: MakeWorkers = threads_here) -> Engine:
    """The engine that a decided scenario asks for. UserError where there are no such workers."""
    return Engine(
        learning.data,
        seed=scenario.run.seed,
        device=learning.device,
        backend=scenario.engine.way,
        precision=scenario.engine.precision,
        micro_batch=scenario.engine.micro_batch,
        deferred=scenario.engine.deferred,
        pending_limit_bytes=scenario.engine.pending_limit,
        workers=workers(scenario, learning.data),
    )


def with_engine(scenario: Scenario, **settings: str | int | None) -> Scenario:
    """The scenario with other, valid settings of its engine."""
    return replace(scenario, engine=scenario.engine.model_copy(update=settings))

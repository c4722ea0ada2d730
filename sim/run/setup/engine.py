"""Decisions about the engine of a run: device, backend, threads and workers."""

import json
from collections.abc import Callable, Sequence

import torch

from sim.core.learning_settings import LearningSettings
from sim.errors import FAILURES, UserError
from sim.learning.engine import ClientData
from sim.learning.engine.autotune import TimedTrainingStep, fastest_threads
from sim.learning.engine.backends.kernels import ModelKernel, choose_backend
from sim.learning.engine.devices import DeviceWorkers
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.workers import Workers
from sim.learning.models.own import OwnModel
from sim.plugins.section import first_error_line
from sim.run.process import cores
from sim.run.setup.learning import Learning
from sim.run.setup.memory import DeviceMemory, machines_room
from sim.scenario.scenario import Scenario
from sim.world.participants import client_name

MakeWorkers = Callable[[Scenario, ClientData], Workers]
"""Factory of workers for a scenario with chosen backend and threads, and for these data. Raises UserError."""


def local_workers(scenario: Scenario, data: ClientData) -> Workers:
    """Return threads of this process as workers: the stated number on a CPU, or one for each stated GPU."""
    threads, workers = scenario.engine.threads, scenario.engine.workers
    assert threads != "fastest", "already measured"
    if scenario.engine.devices is not None:
        return DeviceWorkers(list(map(torch.device, scenario.engine.devices)), data)
    if data.train.x.device.type != "cpu":
        return Workers()
    return Workers(max(1, cores() // threads) if workers == "auto" else workers)


def choose_device(name: str) -> torch.device:
    """Return the torch device for "auto", "cpu" or "cuda". Raises UserError if it does not exist."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


def first_device(devices: Sequence[str], name: str) -> torch.device:
    """Return the first of `engine.devices`.

    Raises UserError if `name` is not "auto", if a GPU is missing, or if the GPUs are of different kinds.
    """
    stated = f"engine.devices = {json.dumps(devices)}"
    if name != "auto":
        raise UserError(f"{stated} cannot be combined with --device {name}; remove one of them")
    available = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    for device in devices:
        if device not in available:
            has = ", ".join(available) or "no CUDA device that torch can use"
            raise UserError(f"{stated}: no {device} on this machine, which has {has}")
    kinds = sorted(set(map(torch.cuda.get_device_name, devices)))
    if len(kinds) > 1:
        raise UserError(
            f"{stated}: the GPUs are {' and '.join(kinds)}; they must be of the same kind; otherwise, "
            "results would differ"
        )
    return torch.device(devices[0])


def device_memory(device: torch.device) -> DeviceMemory:
    """Return the memory of a device, in which the models must fit."""
    if device.type == "cuda":
        return DeviceMemory(str(device), int(torch.cuda.get_device_properties(device).total_memory))
    return machines_room()


def require_precision(scenario: Scenario, device: torch.device) -> None:
    """Raise UserError for a precision that the device does not support."""
    if scenario.engine.precision == "tf32" and device.type != "cuda":
        raise UserError(
            'engine.precision = "tf32": needs a CUDA device, but this run is on a CPU; must be "float32" or '
            '"bfloat16"'
        )


def require_divisible_batches(scenario: Scenario, learning: Learning) -> None:
    """Raise UserError for `micro_batch` if a model needs whole batches."""
    for own in learning.kinds.values() if scenario.engine.micro_batch is not None else ():
        needs_all = own.views > 1 or not hasattr(own.objective, "each")
        if needs_all or own.architecture.untrained:
            reason = "the method's loss" if needs_all else "its batch normalization or dropout layers"
            raise UserError(
                f"engine.micro_batch = {scenario.engine.micro_batch}: {own.architecture.key} needs whole "
                f"batches, because of {reason}; remove the key"
            )


def require_single_samples(scenario: Scenario, learning: Learning) -> None:
    """Raise UserError for a model that cannot train on one sample, if an actor's batches have only one.

    This applies to batch norms, and to code that drops dimensions of size 1. Each model is tried once.
    """
    plan, tried = learning.plan, set[str]()
    dataset, each = plan.dataset, (*learning.settings, *[learning.of_servers] * len(plan.servers))
    for number, (rows, own) in enumerate(zip(plan.own.train, each, strict=False)):
        architecture, size = own.architecture, min(own.batch_size, len(rows))
        if size > 1 or own.views > 1 or architecture.key in tried:
            continue
        tried.add(architecture.key)
        x, y = [torch.from_numpy(part[rows[:1]])[None] for part in (dataset.train_x, dataset.train_y)]
        start = architecture.initial(torch.Generator().manual_seed(0))[None]
        clients = len(plan.work)
        who = client_name(number) if number < clients else f"server {number - clients}"
        about = f"{who} trains on one sample at a time (it owns {len(rows)})"
        try:
            ModelKernel(architecture, own.objective, "vmap").gradients(start, x, y)
        except UserError as error:
            raise UserError(f"{error.problem}; {about}") from None
        except FAILURES as error:
            model = scenario.models[plan.groups[number] if number < clients else 0]
            if not isinstance(model, OwnModel):
                raise
            raise model.refusal(f"cannot be computed: {about}: {first_error_line(error)}", error) from error


def decide_engine_settings(scenario: Scenario, learning: Learning) -> dict[str, str | int]:
    """Return the chosen backend and threads as settings of the engine; "fastest" ones are measured.

    The backend is measured with torch's current number of threads, and then the threads with that backend. A
    run with these settings does not measure again. Raises UserError for a backend that does not fit the
    model, for a precision that the device does not support, for `micro_batch` with a model that needs whole
    batches, and for a model that fails on one sample.
    """
    require_precision(scenario, learning.device)
    require_divisible_batches(scenario, learning)
    way, threads = scenario.engine.way, scenario.engine.threads
    trials = [_trial(scenario, learning, settings) for settings in learning.kinds.values()]
    require_single_samples(scenario, learning)
    if way == "fastest":
        backends = [trial.fastest_backend() for trial in trials]
    else:
        backends = [choose_backend(way, own.architecture, own.objective, own.device) for own in trials]
    if threads == "fastest":
        steps = [trial.step(backend) for trial, backend in zip(trials, backends, strict=True)]
        threads = fastest_threads(steps, learning.device)
    # Different models may have different backends; "auto" selects the same ones in each run on this device.
    taken = set(backends)
    return {"way": taken.pop() if len(taken) == 1 else "auto", "threads": threads}


def _trial(scenario: Scenario, learning: Learning, own: LearningSettings) -> TimedTrainingStep:
    """Return a training step of the clients with these settings."""
    sampler = BatchSampler(learning.data.train, own.batch_size, own.sampling, own.augmentation, own.views)
    engine, clients = scenario.engine, scenario.clients.count
    what = (own.architecture, own.objective, own.optimizer)
    return TimedTrainingStep(*what, sampler, clients, engine.precision, engine.micro_batch)

"""Training steps per second of the engine in lockstep, compared with a plain PyTorch loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import torch
from torch.nn.functional import cross_entropy as plain_cross_entropy

from benchmarks.measuring import (
    CPU,
    Effort,
    Say,
    interleaved,
    median_ratio,
    per_second,
    steps_per_second,
    table,
    times,
)
from sim.learning.architecture import Architecture
from sim.learning.engine import ClientData, Engine, Optimizer
from sim.learning.engine.graph.sampler import BatchSampler, TrainJob
from sim.learning.engine.workers import Workers
from sim.learning.models.kinds import MODELS
from sim.learning.models.model import ModelSection
from sim.learning.objectives import Objective, cross_entropy

SECONDS = 0.5  # minimum length of one full measurement
SAMPLES, BATCH_SIZE, CLASSES, LEARNING_RATE = 64, 16, 10, 0.1

TEXT = f"""\
N clients with {SAMPLES} random samples each repeat a round: each client takes one step of plain SGD on
{BATCH_SIZE} of its samples, and the results are computed before the next round starts. The table counts
steps of single clients. *Plain loop* is code without a simulator: for each client a `torch.nn.Module`, a
`torch.optim.SGD`, and its samples, one client after the other. *Engine* is coterie's engine with its
default (`way = "auto"`), and *way* is the way that it chooses: batched matrix products for linear and
similar layers (`dense`), one call of `vmap` for any model, or one client after the other (`loop`). *vmap*
always uses `vmap`. The times include drawing the batches. For the engine, they also include maintaining its
pending graph.

The table omits convolutional models for which a round takes minutes or memory is insufficient: 1,000 ResNet-9
and their intermediate results need 52 GB, on each side of a ratio."""


@dataclass(frozen=True)
class Model:
    """A model named as in a scenario, the data that it fits, and the numbers of clients to measure."""

    label: str
    name: str
    input_shape: tuple[int, ...]
    on_cpu: tuple[int, ...]
    on_cuda: tuple[int, ...] = (1, 10, 100, 1_000)

    @property
    def section(self) -> ModelSection:
        """The model with its default settings."""
        return MODELS[self.name].model_validate({"name": self.name})

    def architecture(self) -> Architecture:
        """The model as a function of one vector."""
        return self.section.architecture(self.input_shape, CLASSES)

    def samples(self, clients: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels of all clients, one client after the other."""
        generator = torch.Generator().manual_seed(clients)
        x = torch.randn(clients * SAMPLES, *self.input_shape, generator=generator)
        y = torch.randint(CLASSES, (clients * SAMPLES,), generator=generator)
        return x.to(device), y.to(device)


MODELS_MEASURED = (
    Model("logistic regression 64-10", "logistic-regression", (1, 8, 8), (1, 10, 100, 1_000)),
    Model("MLP 64-100-10", "mlp", (1, 8, 8), (1, 10, 100, 1_000)),
    Model("CNN on 28x28", "cnn", (1, 28, 28), (1, 10, 100)),
    Model("ResNet-9 on 32x32", "resnet9", (3, 32, 32), (1, 10), (1, 10, 100)),
)
VMAP_MAX = 10  # clients with convolutional models, on a CPU: vmap takes three times as long as a loop there


def plain_loop(model: Model, clients: int, device: torch.device = CPU) -> Callable[[], int]:
    """Return a round of plain PyTorch, which returns the number of steps."""
    x, y = (part.split(SAMPLES) for part in model.samples(clients, device))
    modules = [model.section.module(model.input_shape, CLASSES).to(device) for _ in range(clients)]
    optimizers = [torch.optim.SGD(module.parameters(), lr=LEARNING_RATE) for module in modules]

    def train_all() -> int:
        for module, optimizer, own_x, own_y in zip(modules, optimizers, x, y, strict=True):
            batch = torch.randperm(SAMPLES, device=device)[:BATCH_SIZE]
            optimizer.zero_grad()
            plain_cross_entropy(module(own_x[batch]), own_y[batch]).backward()
            optimizer.step()
        return clients

    return train_all


def new_engine(
    model: Model,
    clients: int,
    backend: str,
    device: torch.device = CPU,
    precision: str = "float32",
    workers: int = 1,
) -> Engine:
    """Return an engine with clients that own the model's samples."""
    x, y = model.samples(clients, device)
    nothing = [np.empty(0, dtype=np.int64)] * clients
    data = ClientData(
        (x, y),
        (x[:0], y[:0]),
        train_rows=np.split(np.arange(len(y)), clients),
        validation_rows=nothing,
        test_rows=nothing,
        label_maps=None,
    )
    by = Workers(workers)
    return Engine(data, seed=1, device=device, backend=backend, precision=precision, workers=by)


def with_engine(
    model: Model,
    clients: int,
    backend: str,
    device: torch.device = CPU,
    precision: str = "float32",
    batch_size: int = BATCH_SIZE,
    workers: int = 1,
    objective: Objective = cross_entropy,
) -> Callable[[], int]:
    """Return a round of the engine, which returns the number of steps."""
    engine = new_engine(model, clients, backend, device, precision, workers)
    built = model.architecture()
    draw = BatchSampler(engine.data.train, batch_size, "shuffled")
    operation = engine.training(engine.kernel(built, objective), Optimizer(), draw)
    keys = [engine.draw_key(client, "train") for client in range(clients)]
    params = [engine.vector(built.initial(torch.Generator().manual_seed(0)))] * clients
    rounds = count()

    def train_all() -> int:
        done = next(rounds)
        for client, key in enumerate(keys):
            job = TrainJob(client, key, done, 1, LEARNING_RATE, done, ())
            params[client], _ = engine.train(operation, params[client], job)
        engine.flush()
        return clients

    return train_all


def contenders(model: Model, clients: int, device: torch.device = CPU) -> Mapping[str, Callable[[], int]]:
    """Return the rounds to compare, by name."""
    rounds = {
        "plain loop": plain_loop(model, clients, device),
        "engine": with_engine(model, clients, "auto", device),
    }
    if clients <= VMAP_MAX or device.type == "cuda" or model.name in ("logistic-regression", "mlp"):
        rounds["vmap"] = with_engine(model, clients, "vmap", device)
    return rounds


def measure(effort: Effort, say: Say) -> str:
    """Return the section on the engine, in Markdown."""
    rows = []
    for model in MODELS_MEASURED:
        built = model.architecture()
        for clients in effort.sizes(*(model.on_cuda if effort.device.type == "cuda" else model.on_cpu)):
            backend = new_engine(model, clients, "auto", effort.device).kernel(built, cross_entropy).backend
            rates = interleaved(
                {
                    name: partial(steps_per_second, of_one, SECONDS * effort.share, effort.device)
                    for name, of_one in contenders(model, clients, effort.device).items()
                },
                effort.repetitions,
            )
            plain, ours, vmap = rates["plain loop"], rates["engine"], rates.get("vmap")
            ratio = times(median_ratio(ours, plain))
            row = [model.label, f"{clients:,}", per_second(plain), per_second(ours), backend, ratio]
            row += ["-", "-"] if vmap is None else [per_second(vmap), times(median_ratio(vmap, plain))]
            rows.append(row)
            say(f"engine, {model.label}, {clients:,} clients: {ratio} of the plain loop ({backend})")
    head = ["model", "clients", "plain loop, steps/s", "engine, steps/s", "way", "engine to plain"]
    head += ["vmap, steps/s", "vmap to plain"]
    return "\n\n".join(["## Engine", TEXT, table(head, rows)])

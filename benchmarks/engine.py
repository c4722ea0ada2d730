"""How many training steps per second the engine manages in lockstep, beside a plain PyTorch loop."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import torch
from torch.nn.functional import cross_entropy as plain_cross_entropy

from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times
from sim.learning.engine import ClientData, Engine, Optimizer
from sim.learning.engine.draws import Draw, TrainJob
from sim.learning.models import MODELS, architecture
from sim.learning.objectives import cross_entropy

SECONDS = 0.5  # least length of one full measurement
SAMPLES, BATCH_SIZE, CLASSES, LEARNING_RATE = 64, 16, 10, 0.1

TEXT = f"""\
N clients with {SAMPLES} random samples each repeat a round: everybody takes one step of plain SGD on
{BATCH_SIZE} of its samples, and the numbers are made before the next round begins. Counted are steps of
single clients. *Plain loop* is what one would write without a simulator: for each client a
`torch.nn.Module`, a `torch.optim.SGD`, and its samples, one client after the other. *Engine* is what it does
if nothing else is said (`way = "auto"`), in the way named beside it: a chain of linear layers as batched
matrix products (`dense`), any model in one call of `vmap`, or one client after the other (`loop`). *vmap* is
that way alone. All draw their batches, and the engine also keeps its pending graph, within the time.

The convolutional models end where a round takes minutes or the parameters do not fit: 1,000 ResNet-9 and
what they become need 52 GB."""


@dataclass(frozen=True)
class Model:
    """A model as a scenario names it, and the data that it is for."""

    label: str
    name: str
    input_shape: tuple[int, ...]
    sizes: tuple[int, ...]


MODELS_MEASURED = (
    Model("logistic regression 64-10", "logistic-regression", (1, 8, 8), (1, 10, 100, 1_000)),
    Model("MLP 64-100-10", "mlp", (1, 8, 8), (1, 10, 100, 1_000)),
    Model("CNN on 28x28", "cnn", (1, 28, 28), (1, 10, 100)),
    Model("ResNet-9 on 32x32", "resnet9", (3, 32, 32), (1, 10)),
)
VMAP_MAX = 10  # clients with convolutional models: vmap on a CPU takes three times as long as a loop


def samples(model: Model, clients: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of all clients, one client after the other."""
    generator = torch.Generator().manual_seed(clients)
    x = torch.randn(clients * SAMPLES, *model.input_shape, generator=generator)
    return x, torch.randint(CLASSES, (clients * SAMPLES,), generator=generator)


def plain_loop(model: Model, clients: int) -> Callable[[], int]:
    """A round of plain PyTorch; returns the steps taken."""
    x, y = (part.split(SAMPLES) for part in samples(model, clients))
    modules = [MODELS[model.name](model.input_shape, CLASSES) for _ in range(clients)]
    optimizers = [torch.optim.SGD(module.parameters(), lr=LEARNING_RATE) for module in modules]

    def train_all() -> int:
        for module, optimizer, own_x, own_y in zip(modules, optimizers, x, y, strict=True):
            batch = torch.randperm(SAMPLES)[:BATCH_SIZE]
            optimizer.zero_grad()
            plain_cross_entropy(module(own_x[batch]), own_y[batch]).backward()
            optimizer.step()
        return clients

    return train_all


def new_engine(model: Model, clients: int, way: str) -> Engine:
    """An engine whose clients own `samples`."""
    x, y = samples(model, clients)
    nothing = [np.empty(0, dtype=np.int64)] * clients
    data = ClientData(
        (x, y),
        (x[:0], y[:0]),
        train_rows=np.split(np.arange(len(y)), clients),
        validation_rows=nothing,
        test_rows=nothing,
        label_maps=None,
    )
    return Engine(data, seed=1, way=way)


def with_engine(model: Model, clients: int, way: str) -> Callable[[], int]:
    """A round of the engine; returns the steps taken."""
    engine = new_engine(model, clients, way)
    built = architecture(model.name, {}, model.input_shape, CLASSES)
    draw = Draw(engine.data.train, BATCH_SIZE, "shuffled")
    operation = engine.training(engine.kernel(built, cross_entropy), Optimizer(), draw)
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


def rate(train_all: Callable[[], int], seconds: float) -> float:
    """Steps per second of wall time, over as many rounds as take `seconds`."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += train_all()
    return steps / elapsed


def contenders(model: Model, clients: int) -> Mapping[str, Callable[[], int]]:
    """What to compare, by name."""
    rounds = {"plain loop": plain_loop(model, clients), "engine": with_engine(model, clients, "auto")}
    if clients <= VMAP_MAX or model.name in ("logistic-regression", "mlp"):
        rounds["vmap"] = with_engine(model, clients, "vmap")
    return rounds


def measure(effort: Effort, say: Say) -> str:
    """The section on the engine, in Markdown."""
    rows = []
    for model in MODELS_MEASURED:
        built = architecture(model.name, {}, model.input_shape, CLASSES)
        for clients in effort.sizes(*model.sizes):
            way = new_engine(model, clients, "auto").kernel(built, cross_entropy).way
            rates = interleaved(
                {
                    name: partial(rate, of_one, SECONDS * effort.share)
                    for name, of_one in contenders(model, clients).items()
                },
                effort.repetitions,
            )
            plain, ours, vmap = rates["plain loop"], rates["engine"], rates.get("vmap")
            ratio = times(median_ratio(ours, plain))
            row = [model.label, f"{clients:,}", per_second(plain), per_second(ours), way, ratio]
            row += ["-", "-"] if vmap is None else [per_second(vmap), times(median_ratio(vmap, plain))]
            rows.append(row)
            say(f"engine, {model.label}, {clients:,} clients: {ratio} of the plain loop ({way})")
    head = ["model", "clients", "plain loop, steps/s", "engine, steps/s", "way", "engine to plain"]
    head += ["vmap, steps/s", "vmap to plain"]
    return "\n\n".join(["## Engine", TEXT, table(head, rows)])

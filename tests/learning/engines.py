"""Small data, models and engines for the tests of the engine, and training as plain PyTorch does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.engine import ClientData, Engine, Optimizer, Vector
from sim.learning.engine.graph.batch_operations import Gradient, Loss
from sim.learning.engine.graph.batches import draw_batches
from sim.learning.engine.graph.operations import Train
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, TrainJob
from sim.learning.engine.snapshot import pool_snapshots
from sim.learning.engine.workers import Workers
from sim.learning.evaluation import measure_models
from sim.learning.objectives import Objective, cross_entropy, quadratic
from tests.device import DEVICE
from tests.learning.sections import OF_NUMBERS, architecture
from tests.learning.sections import module as module_of

CLASSES = 3
SHAPES: dict[str, tuple[int, ...]] = {
    "logistic-regression": (4,),
    "mlp": (1, 2, 3),
    "cnn": (1, 8, 8),
    "resnet9": (3, 8, 8),
    "decoupled": (1, 2, 3),
    "point": (4,),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [5]},
    "resnet9": {"width": 4, "groups": 2},
    "decoupled": {"features": 5},
}

DENSE = ("logistic-regression", "mlp", "decoupled")  # of linear layers

MODELS_AND_WAYS = [
    (name, backend)
    for name in OF_NUMBERS
    for backend in ("vmap", "loop", "dense")
    if backend != "dense" or name in DENSE
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(seed: int, width: int = 4) -> Tensor:
    return torch.randn(width, generator=generator(seed))


def drawn(engine: Engine, client: int, first: int, steps: int, batch_size: int) -> list[list[int]]:
    """Which of its samples a client trains on in these steps."""
    count = int(engine.data.train.counts[client])
    positions = draw_batches(
        np.array([engine.draw_key(client, "train")], dtype=np.uint64),
        np.array([first]),
        np.array([count]),
        steps=steps,
        batch_size=min(batch_size, count),
        sampling="shuffled",
    )
    chosen: list[list[int]] = positions[0].tolist()
    return chosen


def only_tests(
    x: Tensor, y: Tensor, rows: Sequence[np.ndarray], label_maps: Sequence[np.ndarray] | None = None
) -> ClientData:
    """Clients who are tested on these rows, and train on them."""
    none = [np.empty(0, dtype=np.int64)] * len(rows)
    return ClientData(
        (x, y), (x, y), train_rows=rows, validation_rows=none, test_rows=rows, label_maps=label_maps
    )


def small(name: str = "logistic-regression") -> Architecture:
    return architecture(name, OPTIONS.get(name, {}), SHAPES[name], 0 if name == "point" else CLASSES)


def objective_of(name: str) -> Objective:
    return quadratic if name == "point" else cross_entropy


def client_data(
    counts: Sequence[int] = (6, 6, 6),
    *,
    shape: tuple[int, ...] = SHAPES["logistic-regression"],
    validation: Sequence[int] | None = None,
    test: Sequence[int] | None = None,
    label_maps: Sequence[Sequence[int]] | None = None,
    device: str = DEVICE,
) -> ClientData:
    """Random samples; client i owns counts[i] rows for training, and validation[i] and test[i] others."""
    validation = [0] * len(counts) if validation is None else validation
    test = [0] * len(counts) if test is None else test
    random = generator(len(counts))

    def samples(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(max(count, 1), *shape, generator=random)
        if len(shape) == 1:
            x[:, 0] = x[:, 0].abs()  # the curvature, for the quadratic objective
        y = torch.randint(CLASSES, (max(count, 1),), generator=random)
        return x.to(device), y.to(device)

    order = np.random.Generator(np.random.Philox(key=5)).permutation(sum(counts) + sum(validation))
    train_rows = np.split(order, np.cumsum([*counts, *validation])[:-1])
    return ClientData(
        samples(len(order)),
        samples(sum(test)),
        train_rows=train_rows[: len(counts)],
        validation_rows=train_rows[len(counts) :],
        test_rows=np.split(np.arange(sum(test))[::-1], np.cumsum(test)[:-1]),
        label_maps=None if label_maps is None else [np.array(labels) for labels in label_maps],
    )


def own_samples(data: ClientData, client: int, role: str = "train") -> tuple[Tensor, Tensor]:
    """All samples of one client, in its own order."""
    subset = data.subset(role)
    x, y = subset.gather(np.array([client]), np.arange(subset.counts[client])[None])
    return x[0].cpu(), y[0].cpu()


def new_engine(data: ClientData | None = None, **options: Any) -> Engine:
    data = client_data() if data is None else data
    return Engine(data, seed=1, **{"device": data.train.x.device} | options)


class Jobs:
    """Submits jobs of clients on their training samples; a client draws batches of at most `batch_size`."""

    def __init__(
        self,
        engine: Engine,
        model: str | Architecture = "logistic-regression",
        optimizer: Optimizer | None = None,
        batch_size: int = 4,
        objective: Objective | None = None,
    ) -> None:
        self.engine = engine
        self.architecture = small(model) if isinstance(model, str) else model
        self.optimizer = Optimizer() if optimizer is None else optimizer
        self.batch_size = batch_size
        named = objective_of(model) if isinstance(model, str) else cross_entropy
        self.kernel = engine.kernel(self.architecture, objective or named)

    def initial(self, seed: int) -> Vector:
        """Parameters that are random for every model, also for a point."""
        flat = self.architecture.initial(generator(seed))
        return self.engine.vector(flat + 0.1 * torch.randn(flat.shape, generator=generator(seed)))

    def sampler(self, client: int) -> BatchSampler:
        train = self.engine.data.train
        return BatchSampler(train, min(self.batch_size, int(train.counts[client])), "shuffled")

    def operation(self, client: int) -> Train:
        return self.engine.training(self.kernel, self.optimizer, self.sampler(client))

    def train(
        self,
        client: int,
        start: Vector,
        steps: int = 1,
        *,
        done: int = 0,
        state: Vector | None = None,
        pulls: Sequence[tuple[Any, Vector]] = (),
        learning_rate: float = 0.1,
    ) -> tuple[Vector, Vector | None]:
        strengths = tuple(s.factor() if hasattr(s, "factor") else s for s, _ in pulls)
        key = self.engine.draw_key(client, "train")
        job = TrainJob(client, key, done, steps, learning_rate, done, strengths)
        return self.engine.train(
            self.operation(client), start, job, state=state, anchors=[anchor for _, anchor in pulls]
        )

    def gradient(self, client: int, at: Vector, step: int = 0) -> Vector:
        job = GradientOrLossJob(client, self.engine.draw_key(client, "train"), step)
        return self.engine.gradient(self.engine.intern(Gradient(self.kernel, self.sampler(client))), at, job)

    def loss(self, client: int, of: Vector, role: str | None = None, step: int = 0) -> Any:
        """On a batch, or on all samples of a role."""
        sampler = self.sampler(client)
        if role is not None:
            subset = self.engine.data.subset(role)
            sampler = BatchSampler(subset, int(subset.counts[client]), "all")
        job = GradientOrLossJob(client, self.engine.draw_key(client, "train"), step)
        return self.engine.loss(self.engine.intern(Loss(self.kernel, sampler)), of, job)


# --- plain PyTorch ---


def plain_module(name: str, flat: Tensor) -> nn.Module:
    """The model as an ordinary module with the parameters `flat`."""
    with torch.random.fork_rng():
        module = module_of(name, OPTIONS.get(name, {}), SHAPES[name], CLASSES)
    nn.utils.vector_to_parameters(flat.cpu().clone(), module.parameters())
    return module


def plain_loss(name: str, module: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    if name == "point":
        return (x[:, 0] / 2 * (module(x) - x[:, 1:]).pow(2).sum(1)).mean()
    return nn.functional.nll_loss(module(x).log_softmax(1), y)


def plain_penalty(flat: Tensor, pulls: Sequence[tuple[float, Tensor]]) -> Tensor:
    """sum_k c_k/2 ||x - a_k||^2."""
    return sum((c / 2 * (flat - a).pow(2).sum() for c, a in pulls), torch.zeros(()))


def torch_optimizer(
    optimizer: Optimizer, learning_rate: float
) -> Callable[[Sequence[Tensor]], torch.optim.Optimizer]:
    """torch.optim's form of `optimizer`, to be given the parameters."""
    options: dict[str, Any] = {"lr": learning_rate, "weight_decay": optimizer.weight_decay}
    moments = {"betas": optimizer.betas, "eps": optimizer.epsilon}
    match optimizer.kind:
        case "sgd":
            options |= {name: getattr(optimizer, name) for name in ("momentum", "dampening", "nesterov")}
            return lambda parameters: torch.optim.SGD(parameters, **options)
        case "adam":
            return lambda parameters: torch.optim.Adam(parameters, **options, **moments)
        case "adamw":
            return lambda parameters: torch.optim.AdamW(parameters, **options, **moments)
        case _:
            pytest.fail(f"say here which class of torch.optim is {optimizer.kind!r}, and its options")


class Outcome(NamedTuple):
    """What a small course of training, merging and measuring results in, and the rows that are left of it."""

    rows: Tensor
    gradients: Tensor
    losses: list[float]
    measured: dict[str, np.ndarray]
    pools: dict[int, Any]

    def require_equal(self, other: Outcome) -> None:
        """Bit for bit, and in the same rows: a run that goes on elsewhere must find what it has left."""
        assert self.rows.equal(other.rows) and self.gradients.equal(other.gradients)
        assert self.losses == other.losses
        for name, values in self.measured.items():
            assert np.array_equal(values, other.measured[name], equal_nan=True), name
        for width, pool in self.pools.items():
            assert torch.equal(pool.free, other.pools[width].free)
            assert torch.equal(pool.rows, other.pools[width].rows)


def course(data: ClientData, engine: Engine, jobs: Jobs, rounds: int, workers: Workers) -> Outcome:
    """Rounds of unequal training with pulls, each followed by a merge; then losses, gradients, measures."""
    clients = range(len(data.train.counts))
    params, state = [jobs.initial(client) for client in clients], [None] * len(clients)
    for done in range(rounds):
        pulls = [engine.dot(each, each).clip(0.01, 0.02) for each in params]
        trained: list[Any] = [
            jobs.train(
                client,
                params[client],
                steps=1 + client % 2,
                done=done,
                state=state[client],
                pulls=[(pulls[client], params[client - 1])] if done else (),
            )
            for client in clients
        ]
        params, state = (list(each) for each in zip(*trained, strict=True))
        params = [0.5 * params[client] + 0.5 * params[client - 1] for client in clients]
    losses = [float(jobs.loss(client, params[client])) for client in clients]
    gradients = engine.rows([jobs.gradient(client, params[client]) for client in clients])
    rows = engine.held(params)
    measured = measure_models("classification", jobs.kernel, rows, data.train, list(clients), workers=workers)
    return Outcome(rows[:], gradients, losses, measured, pool_snapshots(engine))

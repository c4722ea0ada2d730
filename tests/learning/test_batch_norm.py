"""Batch norms whose statistics are parameters, against torch's: alone, under vmap, and in training jobs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine import ClientData, Engine, Optimizer
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.batch_operations import Gradient
from sim.learning.engine.graph.sampler import BatchSampler, TrainJob
from sim.learning.models.modules.batch_norm import BatchNorm, BatchNorm1d, replace_batch_norms
from sim.learning.objectives import cross_entropy
from tests.learning.engines import CLASSES, client_data, generator, new_engine, own_samples, torch_optimizer

SHAPE = (3, 6, 6)
MANY = 50  # clients from which the backward pass is vmapped as well
OPTIMIZERS = [
    Optimizer("sgd"),
    Optimizer("sgd", momentum=0.9, weight_decay=0.05),
    Optimizer("adam", betas=(0.5, 0.9), epsilon=1e-3, weight_decay=0.05),
    Optimizer("adamw", epsilon=1e-3, weight_decay=0.1),
]


def torch_model() -> nn.Module:
    """With torch's norms, in all the shapes and settings that occur."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.BatchNorm1d(5, eps=1e-3, momentum=0.3),
        nn.ReLU(),
        nn.Linear(5, CLASSES),
    )


def model() -> Architecture:
    with torch.device("meta"):
        module = replace_batch_norms(torch_model())
    return Architecture(module, "normalised", SHAPE)


def torch_module(architecture: Architecture, flat: Tensor) -> nn.Module:
    """torch's module in the state that the vector has."""
    module = torch_model()
    missing = module.load_state_dict(architecture.unflatten(flat.clone()), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
    assert not missing.unexpected_keys
    return module


def flat_state(architecture: Architecture, module: nn.Module) -> Tensor:
    """The reverse: parameters and running statistics of torch's module as a vector."""
    state = module.state_dict()
    return torch.cat([state[part.name].flatten() for part in architecture.slices])


def starts(architecture: Architecture, count: int) -> Tensor:
    """[N, P], all random, the statistics too."""
    rows = torch.stack([architecture.initial(generator(seed)) for seed in range(count)])
    random = generator(99)
    for part in architecture.slices:
        columns = rows[:, architecture.part(part.name)]
        if part.name.endswith("running_var"):
            columns.copy_(torch.rand(columns.shape, generator=random) + 0.5)
        else:
            columns.add_(0.1 * torch.randn(columns.shape, generator=random))
    return rows


def batches(count: int, size: int = 6) -> tuple[Tensor, Tensor]:
    """Each client's samples from a distribution of its own."""
    random = generator(7)
    x = torch.randn(count, size, *SHAPE, generator=random)
    x = x * (1 + torch.arange(count).view(-1, 1, 1, 1, 1) / count) + torch.arange(count).view(-1, 1, 1, 1, 1)
    return x, torch.randint(CLASSES, (count, size), generator=random)


# --- the module -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 4), (8, 4, 5, 3), (2, 4), (1, 4, 5, 3)], ids=str)
@pytest.mark.parametrize("options", [{}, {"eps": 1e-3, "momentum": 0.4}], ids=str)
def test_a_step_equals_torchs(shape: tuple[int, ...], options: dict[str, float]) -> None:
    theirs = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(4, **options)
    ours = BatchNorm(4, **options)
    for step in range(4):
        x = 3 * torch.randn(shape, generator=generator(step)) + step
        got, expected = (module(x.clone().requires_grad_()) for module in (ours, theirs))
        assert torch.equal(got, expected)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_single_value_per_channel_is_refused_in_training_alone() -> None:
    norm = BatchNorm(4)
    with pytest.raises(UserError, match="batch_size"):
        norm(torch.zeros(1, 4))
    norm(torch.zeros(1, 4, 1, 2))
    assert norm.eval()(torch.zeros(1, 4)).isfinite().all()


def test_a_negative_variance_counts_as_none() -> None:
    norm = BatchNorm(2).eval()
    with torch.no_grad():
        norm.running_var.copy_(torch.tensor([-1.0, 0.0]))
    assert norm(torch.ones(1, 2)).tolist() == [[pytest.approx(1e5**0.5)] * 2]


def test_replacing_keeps_values_settings_and_mode() -> None:
    theirs = nn.Sequential(nn.Sequential(nn.BatchNorm2d(2, eps=0.1, momentum=0.2)), nn.Linear(2, 2)).eval()
    norm = theirs[0][0]
    with torch.no_grad():
        for place, values in enumerate((norm.weight, norm.bias, norm.running_mean, norm.running_var)):
            values.fill_(place + 2)
    x = torch.randn(3, 2, 4, 4, generator=generator())
    expected = theirs[0](x)
    ours = replace_batch_norms(theirs)
    assert isinstance(ours[0][0], BatchNorm) and isinstance(ours[0][0], nn.BatchNorm2d)
    assert not list(ours.buffers())
    torch.testing.assert_close(ours[0](x), expected)
    assert (ours[0][0].eps, ours[0][0].momentum) == (0.1, 0.2)
    single = replace_batch_norms(nn.BatchNorm1d(3))
    assert isinstance(single, BatchNorm) and isinstance(single, nn.BatchNorm1d)


def test_norms_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="momentum=None"):
        replace_batch_norms(nn.Sequential(nn.BatchNorm2d(3, momentum=None)))


def test_a_norm_starts_as_the_identity() -> None:
    with torch.device("meta"):
        norm = BatchNorm(3)
    architecture = Architecture(norm, "norm", (3,))
    names = [part.name for part in architecture.slices]
    assert names == ["weight", "bias", "running_mean", "running_var"]
    assert architecture.initial(generator()).tolist() == [1.0] * 3 + [0.0] * 6 + [1.0] * 3
    assert [part.name for part in architecture.statistics] == names[2:]
    assert architecture.untrained_columns.tolist() == list(range(6, 12))


# --- kernels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "count"), [("vmap", MANY), ("vmap", 3), ("loop", 3)])
def test_gradients_statistics_and_outputs_are_those_of_separate_modules(backend: str, count: int) -> None:
    architecture = model()
    kernel = ModelKernel(architecture, cross_entropy, backend)
    flat, (x, y) = starts(architecture, count), batches(count)
    gradient, untrained = kernel.training_gradients(flat, x, y)
    assert untrained is not None
    outputs, losses = kernel.outputs(flat, x), kernel.losses(flat, x, y)
    for row in range(count):
        module = torch_module(architecture, flat[row]).eval()
        torch.testing.assert_close(outputs[row], module(x[row]), rtol=1e-4, atol=1e-5)
        expected = nn.functional.cross_entropy(module(x[row]), y[row])
        torch.testing.assert_close(losses[row], expected, rtol=1e-4, atol=1e-5)
        nn.functional.cross_entropy(module.train()(x[row]), y[row]).backward()
        own = architecture.unflatten(gradient[row])
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(own.pop(name), parameter.grad, rtol=1e-3, atol=1e-5)
        assert all(not values.any() for values in own.values()), "statistics have no gradient"
        wanted = flat_state(architecture, module)[architecture.untrained_columns]
        torch.testing.assert_close(untrained[row], wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(kernel.gradients(flat, x, y), gradient)


@pytest.mark.parametrize(("backend", "count"), [("vmap", MANY), ("vmap", 3), ("loop", 3)])
def test_plain_descent_moves_the_statistics(backend: str, count: int) -> None:
    architecture = model()
    kernel = ModelKernel(architecture, cross_entropy, backend)
    flat, (x, y) = starts(architecture, count), batches(count)
    rate = torch.full((count, 1), 0.1)
    expected = flat.clone()
    gradient, untrained = kernel.training_gradients(flat, x, y)
    expected -= 0.1 * gradient
    architecture.set_untrained(expected, untrained)
    kernel.descend(flat, x, y, rate)
    torch.testing.assert_close(flat, expected)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_nobody_feels_who_else_is_in_the_batch(backend: str) -> None:
    architecture = model()
    kernel = ModelKernel(architecture, cross_entropy, backend)
    flat, (x, y) = starts(architecture, 4), batches(4)
    before = kernel.training_gradients(flat, x, y)
    x[1:], flat[1:] = 1e3, torch.nan
    for one, other in zip(before, kernel.training_gradients(flat, x, y), strict=True):
        assert one is not None and other is not None
        torch.testing.assert_close(one[0], other[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_a_second_forward_pass_moves_the_statistics_on(backend: str) -> None:
    architecture = model()

    def twice(model: Any, parameters: Any, x: Tensor, y: Tensor) -> Tensor:
        first = cross_entropy(model, parameters, x[:3], y[:3])
        return first + cross_entropy(model, parameters, x[3:], y[3:])

    flat, (x, y) = starts(architecture, 2), batches(2)
    _, untrained = ModelKernel(architecture, twice, backend).training_gradients(flat, x, y)
    assert untrained is not None
    for row in range(2):
        module = torch_module(architecture, flat[row])
        for half in x[row].split(3):
            module(half)
        wanted = flat_state(architecture, module)[architecture.untrained_columns]
        torch.testing.assert_close(untrained[row], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_statistics_of_a_norm_that_is_not_used_stay(backend: str) -> None:
    architecture = model()

    def bias_only(model: Any, parameters: Any, x: Tensor, y: Tensor) -> Tensor:
        return model.tensor(parameters, "7.bias").square().sum() + 0 * x.sum()

    flat, (x, y) = starts(architecture, 2), batches(2)
    gradient, untrained = ModelKernel(architecture, bias_only, backend).training_gradients(flat, x, y)
    assert untrained is not None
    assert torch.equal(untrained, flat[:, architecture.untrained_columns])
    assert gradient.any(dim=0).sum() == CLASSES


def test_statistics_stay_exact_under_bfloat16() -> None:
    architecture = model()
    flat, (x, y) = starts(architecture, 3), batches(3)
    for backend in ("vmap", "loop"):
        coarse = ModelKernel(architecture, cross_entropy, backend, "bfloat16").training_gradients(flat, x, y)
        exact = ModelKernel(architecture, cross_entropy, backend).training_gradients(flat, x, y)
        assert coarse[1] is not None and coarse[1].dtype == torch.float32
        torch.testing.assert_close(coarse[1], exact[1], rtol=0.05, atol=0.05)


# --- training jobs ----------------------------------------------------------------------------------------


class Trainer:
    """Trains clients of an engine, each on batches of all its samples."""

    def __init__(self, engine: Engine, optimizer: Optimizer, size: int) -> None:
        self.engine, self.optimizer, self.architecture = engine, optimizer, model()
        self.kernel = engine.kernel(self.architecture, cross_entropy)
        self.sampler = BatchSampler(engine.data.train, size, "all")

    def train(self, client: int, start: Tensor, steps: int, pulls: Any = ()) -> Callable[[], Tensor]:
        """From the vector `start`; a deferred reading of the result."""
        operation = self.engine.training(self.kernel, self.optimizer, self.sampler)
        strengths = tuple(strength for strength, _ in pulls)
        job = TrainJob(client, self.engine.draw_key(client, "train"), 0, steps, 0.05, 0, strengths)
        anchors = [self.engine.vector(anchor) for _, anchor in pulls]
        trained, _ = self.engine.train(operation, self.engine.vector(start), job, anchors=anchors)
        return trained.tensor


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_training_equals_separate_modules_and_torchs_optimizers(optimizer: Optimizer, backend: str) -> None:
    """With pulls: neither they nor weight decay nor moments reach the statistics."""
    data = client_data([6, 6, 6], shape=SHAPE)
    trainer = Trainer(new_engine(data, backend=backend), optimizer, 6)
    architecture = trainer.architecture
    rows = starts(architecture, 4)
    pulls = [(0.3, rows[3])]
    jobs = [trainer.train(client, rows[client], 5, pulls) for client in range(3)]
    anchor = architecture.unflatten(rows[3])
    for client, job in enumerate(jobs):
        module = torch_module(architecture, rows[client])
        steps = torch_optimizer(optimizer, 0.05)(list(module.parameters()))
        x, y = own_samples(data, client)
        for _ in range(5):
            steps.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            for name, parameter in module.named_parameters():
                loss = loss + 0.15 * (parameter - anchor[name]).square().sum()
            loss.backward()
            steps.step()
        torch.testing.assert_close(job().cpu(), flat_state(architecture, module), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("count", [1, 512, 513, 1025])
def test_a_gradient_of_all_samples_has_no_part_of_one_sample(count: int) -> None:
    def parts(*norms: nn.Module) -> list[slice]:
        data = (torch.randn(count, 4), torch.zeros(count, dtype=torch.int64))
        empty = [np.empty(0, np.int64)]
        rows = {"train_rows": [np.arange(count)], "validation_rows": empty, "test_rows": empty}
        clients = ClientData(data, data, **rows, label_maps=None)
        architecture = Architecture(nn.Sequential(nn.Linear(4, 5), *norms, nn.Linear(5, 3)), "model", (4,))
        kernel = Engine(clients, seed=1, device="cpu").kernel(architecture, cross_entropy)
        return Gradient(kernel, BatchSampler(clients.train, count, "all"), None).pieces()

    sizes = [len(range(count)[part]) for part in parts(BatchNorm1d(5))]
    assert sizes == {1: [1], 512: [512], 513: [513], 1025: [512, 513]}[count]
    without = [len(range(count)[part]) for part in parts()]
    assert without == {1: [1], 512: [512], 513: [512, 1], 1025: [512, 512, 1]}[count]

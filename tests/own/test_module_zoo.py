"""torch's modules as people write them: three steps of each are plain torch's, or it is refused in words.

Operations are compared with a count by hand, of multiplications and additions in products.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel, possible_backends
from sim.learning.models.own import OwnModel
from sim.learning.objectives import cross_entropy
from sim.plugins.loader import Plugin
from sim.plugins.section import section_with_plugin_keys

INPUTS, CLASSES, BATCH = 16, 3, 6
RATE = 0.1


class Wrapped(nn.Module):
    """`inner` between a reshaping of the 16 inputs and a linear layer to the classes."""

    def __init__(self, inner: nn.Module, shape: tuple[int, ...], features: int) -> None:
        super().__init__()
        self.inner = inner
        self.shape = shape
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x.view(-1, *self.shape))
        return self.head((out[0] if isinstance(out, tuple) else out).flatten(1))


class Attention(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), 4, 3, 2, 2).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Bilinear(8, 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pair(x[:, :8], x[:, 8:])
        return out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x).relu()).relu()
        return out


class TiedBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        scale = torch.arange(16.0)
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.a.register_buffer("scale", scale)
        self.b.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x).relu() * self.a.scale) + self.b.scale
        return out


class NotFloat(nn.Module):
    """A mask and indices that are parameters, so that they are saved with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.mask = nn.Parameter(torch.arange(16) % 2 == 0, requires_grad=False)
        self.order = nn.Parameter(torch.arange(16).flip(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)[:, self.order] * self.mask
        return out


class Scaled(nn.Sequential):
    """A chain with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) * 3 - 1
        return out


class Prototypes(nn.Module):
    """Minus the distances to points: no matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(5, 16))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.points, p=1.0)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        words = (x * 10).abs().long() % 7
        out: Tensor = self.embedding(words).mean(dim=1)
        return out


class Vector(nn.Module):
    """A product with a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.direction)[:, None]


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(9))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=16)


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("btc,cd->btd", x, self.mix).relu()


class Slopes(nn.Module):
    """How an energy grows with its inputs: a forward pass that differentiates."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        slopes: Tensor = torch.func.grad(lambda at: F.softplus(self.energy(at)).sum())(x)
        return slopes


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(x)
        return out


class ByCell(nn.Module):
    """A cell that goes over the tokens, and returns what it knows in the end."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        known: Any = None
        for token in x.unbind(1):
            known = self.cell(token, known)
        out: Tensor = known[0] if isinstance(known, tuple) else known
        return out


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def hooked(module: nn.Module) -> nn.Module:
    """What it returns is doubled by a hook."""
    module.register_forward_hook(lambda part, inputs, output: 2 * output)
    return module


def used_twice() -> nn.Module:
    layer = nn.Linear(16, 16)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), layer)


def chain_used_twice() -> nn.Module:
    """In torch's list of its children the second use is missing."""
    layer, relu = nn.Linear(16, 16), nn.ReLU()
    inner = nn.Linear(16, 16)
    return nn.Sequential(
        nn.Flatten(), layer, relu, inner, relu, layer, nn.ReLU(), nn.Linear(16, CLASSES)
    )  # fmt: skip


def wrapped(inner: Callable[[], nn.Module], shape: tuple[int, ...], features: int) -> Callable[[], nn.Module]:
    return lambda: Wrapped(inner(), shape, features)


def linear(inputs: int, outputs: int, times: int = 1) -> int:
    return 2 * inputs * outputs * times


@dataclass(frozen=True)
class Case:
    """A module, the operations of its forward pass, and those of a pass back to weights and to inputs.

    Of a sample. The head of `Wrapped` is added to them, unless `alone`.
    """

    make: Callable[[], nn.Module]
    forward: int
    back: int


def inside(inner: Callable[[], nn.Module], shape: tuple[int, ...], features: int, f: int, b: int) -> Case:
    head = linear(features, CLASSES)
    # Of the head: the gradient of its weights, and of its inputs where something before it is trained.
    trained = any(each.requires_grad for each in inner().parameters())
    return Case(wrapped(inner, shape, features), f + head, b + head * (2 if trained else 1))


TOKENS = (4, 4)
ATTENTION = 2 * 2 * 2 * 4 * 4 * 2  # two products of two heads, 4 x 4 tokens, 2 numbers
ENCODER_PRODUCTS = linear(4, 12, 4) + linear(4, 4, 4) + linear(4, 8, 4) + linear(8, 4, 4)


def recurrent(gates: int, inputs: int, hidden: int, *, first: bool = True) -> tuple[int, int]:
    """Of one direction of a layer over the 4 tokens: forward, and back.

    Back: the weights' gradients, those of the inputs but in the first layer, and those of what is handed from
    token to token, of which the first is constant.
    """
    of_inputs, of_hidden = linear(inputs, gates * hidden, 4), linear(hidden, gates * hidden)
    forward = of_inputs + 4 * of_hidden
    return forward, forward + 3 * of_hidden + (0 if first else of_inputs)


def two_ways(gates: int) -> tuple[int, int]:
    """Of two layers in both directions."""
    parts = [recurrent(gates, 4, 3), recurrent(gates, 6, 3, first=False)]
    return 2 * sum(f for f, _ in parts), 2 * sum(b for _, b in parts)


RECURRENT = {"LSTM": (nn.LSTM, 4), "GRU": (nn.GRU, 3), "RNN": (nn.RNN, 1)}


class TimeFirst(nn.Module):
    """A layer that takes the tokens along the first axis."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.transpose(0, 1))[0].transpose(0, 1)
        return out


# ruff: noqa: E501
CASES: dict[str, Case] = {
    "linear": Case(lambda: nn.Linear(16, CLASSES), linear(16, CLASSES), linear(16, CLASSES)),
    "sequential": Case(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
        linear(16, 8) + linear(8, CLASSES),
        linear(16, 8) + 2 * linear(8, CLASSES),
    ),
    "own forward of a chain": Case(
        lambda: Scaled(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
        linear(16, 8) + linear(8, CLASSES),
        linear(16, 8) + 2 * linear(8, CLASSES),
    ),
    "hook in a chain": Case(
        lambda: nn.Sequential(nn.Flatten(), hooked(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, CLASSES)),
        linear(16, 8) + linear(8, CLASSES),
        linear(16, 8) + 2 * linear(8, CLASSES),
    ),
    "chain used twice": Case(
        chain_used_twice, linear(16, 16, 3) + linear(16, CLASSES), linear(16, 16, 5) + 2 * linear(16, CLASSES)
    ),
    "frozen first layer of a chain": Case(
        lambda: nn.Sequential(nn.Flatten(), frozen(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, CLASSES)),
        linear(16, 8) + linear(8, CLASSES),
        linear(8, CLASSES),
    ),
    "frozen last layer of a chain": Case(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), frozen(nn.Linear(8, CLASSES))),
        linear(16, 8) + linear(8, CLASSES),
        linear(16, 8) + linear(8, CLASSES),
    ),
    "frozen bias": Case(
        lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh(), frozen(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8,
        CLASSES)),
        linear(16, 8) + linear(8, 8) + linear(8, CLASSES),
        linear(16, 8) + linear(8, 8) + 2 * linear(8, CLASSES),
    ),
    "tied weights": inside(Tied, (16,), 16, linear(16, 16, 2), linear(16, 16, 3)),
    "used twice": inside(used_twice, (16,), 16, linear(16, 16, 3), linear(16, 16, 5)),
    "tied buffers": inside(TiedBuffers, (16,), 16, linear(16, 16, 2), linear(16, 16, 3)),
    "bool and int parameters": inside(NotFloat, (16,), 16, linear(16, 16), linear(16, 16)),
    "bilinear": inside(Bilinear, (16,), 5, 2 * (8 * 8 + 8) * 5, 2 * (8 * 8 + 8) * 5),
    "attention": inside(
        Attention, TOKENS, 16, linear(4, 12, 4) + ATTENTION, linear(4, 12, 4) + 2 * ATTENTION
    ),
    "causal attention": inside(
        lambda: Attention(causal=True), TOKENS, 16, linear(4, 12, 4) + ATTENTION, linear(4, 12, 4) + 2 *
        ATTENTION
    ),
    "multihead attention": inside(
        SelfAttention,
        TOKENS,
        16,
        linear(4, 16, 4) + ATTENTION,
        linear(4, 12, 4) + 2 * linear(4, 4, 4) + 2 * ATTENTION,
    ),
    "transformer encoder": inside(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        TOKENS,
        16,
        ENCODER_PRODUCTS + ATTENTION,
        2 * ENCODER_PRODUCTS - linear(4, 12, 4) + 2 * ATTENTION,
    ),
    "transformer encoder, norms first": inside(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True),
        TOKENS,
        16,
        ENCODER_PRODUCTS + ATTENTION,
        2 * ENCODER_PRODUCTS + 2 * ATTENTION,
    ),
    "embedding": inside(Words, (16,), 4, 0, 0),
    "embedding, frozen": inside(lambda: frozen(Words()), (16,), 4, 0, 0),
    "vector product": inside(Vector, (16,), 1, 2 * 16, 2 * 16),
    "distances": inside(Prototypes, (16,), 5, 2 * 16 * 5, 2 * 16 * 5),
    "slopes": inside(Slopes, (16,), 16, 2 * linear(16, 8), 3 * linear(16, 8)),
    "einsum": inside(Einsum, TOKENS, 16, linear(4, 4, 4), linear(4, 4, 4)),
    "layer norm": inside(lambda: nn.LayerNorm(16), (16,), 16, 0, 0),
    "group norm": inside(lambda: nn.GroupNorm(2, 4), TOKENS, 16, 0, 0),
    "instance norm": inside(lambda: nn.InstanceNorm1d(4, affine=True), TOKENS, 16, 0, 0),
    "rms norm": inside(lambda: nn.RMSNorm(16), (16,), 16, 0, 0),
    "batch norm": inside(lambda: nn.BatchNorm1d(16), (16,), 16, 0, 0),
    "batch norm without weights": inside(lambda: nn.BatchNorm1d(16, affine=False), (16,), 16, 0, 0),
    "batch norm without statistics": inside(
        lambda: nn.BatchNorm1d(16, track_running_stats=False), (16,), 16, 0, 0
    ),
    "batch norm 2d": inside(lambda: nn.BatchNorm2d(4), (4, 2, 2), 16, 0, 0),
    "batch norm 3d": inside(lambda: nn.BatchNorm3d(2), (2, 2, 2, 2), 16, 0, 0),
    "batch norm with a hook": inside(lambda: hooked(nn.BatchNorm1d(16)), (16,), 16, 0, 0),
    "frozen batch norm": inside(lambda: frozen(nn.BatchNorm1d(16)), (16,), 16, 0, 0),
    "one batch norm in two places": inside(
        lambda: nn.Sequential(*[nn.BatchNorm1d(16)] * 2), (16,), 16, 0, 0
    ),
    "convolution": inside(
        lambda: nn.Conv2d(1, 2, 3, padding=1), (1, 4, 4), 32, linear(9, 2, 16), linear(9, 2, 16)
    ),
    "convolution "
    "1d": inside(lambda: nn.Conv1d(4, 2, 3, padding=1), TOKENS, 8, linear(12, 2, 4), linear(12, 2, 4)),
    "grouped convolution": inside(
        lambda: nn.Conv1d(4, 4, 3, padding=1, groups=2), TOKENS, 16, linear(6, 4, 4), linear(6, 4, 4)
    ),
    "transposed convolution": inside(
        lambda: nn.ConvTranspose2d(1, 2, 2, stride=2), (1, 4, 4), 128, linear(1, 8, 16), linear(1, 8, 16)
    ),
    "pooling": inside(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)),
        (1, 4, 4), 2, linear(9, 2, 16), linear(9, 2, 16),
    ),
    "weight norm": inside(
        lambda: parametrizations.weight_norm(nn.Linear(16, 8)), (16,), 8, linear(16, 8), linear(16, 8)
    ),
    "prelu": inside(lambda: nn.Sequential(nn.Linear(16, 8), nn.PReLU()), (16,), 8, linear(16, 8), linear(16, 8)),
    "gated": inside(lambda: nn.Sequential(nn.Linear(16, 8), nn.GLU()), (16,), 4, linear(16, 8), linear(16, 8)),
    "residual": inside(
        lambda: Residual(nn.Sequential(nn.Linear(16, 16), nn.GELU())), (16,), 16, linear(16, 16), linear(16,
        16)
    ),
    "upsampling": inside(
        lambda: nn.Sequential(nn.Linear(16, 8), nn.Unflatten(1, (2, 4)), nn.Upsample(scale_factor=2, mode="linear")),
        (16,), 16, linear(16, 8), linear(16, 8),
    ),
    "Fourier transform": inside(
        Spectrum, (16,), 16, 2 * 5 * 16 * 4, 5 * 16 * 4,
    ),
}  # fmt: skip
for name, (layer, gates) in RECURRENT.items():
    CASES |= {
        name: inside(partial(layer, 4, 5, batch_first=True), TOKENS, 20, *recurrent(gates, 4, 5)),
        f"{name} without bias, tokens first": inside(
            lambda layer=layer: TimeFirst(layer(4, 5, bias=False)), TOKENS, 20, *recurrent(gates, 4, 5)
        ),
        f"{name} of two layers both ways": inside(
            partial(layer, 4, 3, 2, batch_first=True, bidirectional=True), TOKENS, 24, *two_ways(gates)
        ),
    }
CASES |= {
    "LSTM cell": inside(lambda: ByCell(nn.LSTMCell(4, 5)), TOKENS, 5, *recurrent(4, 4, 5)),
    "LSTM with a projection": inside(
        partial(nn.LSTM, 4, 5, batch_first=True, proj_size=2), TOKENS, 8,
        linear(4, 20, 4) + linear(2, 20, 4) + linear(5, 2, 4),
        linear(4, 20, 4) + linear(2, 20, 7) + linear(5, 2, 8),
    ),
    "LSTM behind batch norm and dropout": inside(
        lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.0), nn.LSTM(4, 5, batch_first=True)),
        TOKENS, 20, recurrent(4, 4, 5)[0], recurrent(4, 4, 5, first=False)[1],
    ),
    "frozen LSTM": inside(
        lambda: nn.Sequential(nn.Linear(4, 4), frozen(nn.LSTM(4, 5, batch_first=True))),
        TOKENS, 20, linear(4, 4, 4) + recurrent(4, 4, 5)[0],
        linear(4, 4, 4) + recurrent(4, 4, 5, first=False)[1] - recurrent(4, 4, 5)[0],
    ),
}  # fmt: skip


class NormAct(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Noisy(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def shared_memory() -> nn.Module:
    module = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES))
    module[1].weight.data = module[0].weight.data
    return module


def masked_gradient() -> nn.Module:
    module = nn.Linear(16, CLASSES)
    module.weight.register_hook(lambda gradient: gradient * 0)
    return module


def with_history() -> nn.Module:
    module = nn.Linear(16, CLASSES)
    module.scale = module.weight * 2  # type: ignore[assignment]
    return module


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "norm of a class of one's own": (
        wrapped(lambda: NormAct(16), (16,), 16),
        "inner is of type NormAct and has running statistics",
    ),
    "norm of all processes": (
        wrapped(lambda: nn.SyncBatchNorm(16), (16,), 16),
        "inner is of type SyncBatchNorm and has running statistics",
    ),
    "norm with a mean over all batches": (
        wrapped(lambda: nn.BatchNorm1d(16, momentum=None), (16,), 16),  # type: ignore[arg-type]
        "set a momentum",
    ),
    "instance norm with statistics": (
        wrapped(lambda: nn.InstanceNorm1d(4, track_running_stats=True), TOKENS, 16),
        "inner is of type InstanceNorm1d and has running statistics",
    ),
    "dropout of a class of one's own": (
        wrapped(lambda: Noisy(0.5), (16,), 16),
        r"Noisy \(at inner\) draws random numbers of torch in training.*use nn\.Dropout",
    ),
    "dropout of channels": (
        wrapped(lambda: nn.Dropout1d(0.5), TOKENS, 16),
        r"Dropout1d \(at inner\) draws random numbers of torch in training.*use nn\.Dropout",
    ),
    "lazy linear": (
        lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(8, CLASSES)),
        "0 is a LazyLinear with an unknown shape before .* use Linear",
    ),
    "lazy norm": (
        lambda: nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(16, CLASSES)),
        "0 is of type LazyBatchNorm1d",
    ),
    "recurrent with dropout inside": (
        wrapped(lambda: nn.GRU(4, 4, 2, batch_first=True, dropout=0.5), TOKENS, 16),
        r"inner drops values by random numbers of torch.*set inner\.dropout = 0\.0",
    ),
    "recurrent with noise of its own": (
        wrapped(lambda: nn.Sequential(Noisy(0.5), nn.LSTM(4, 4, batch_first=True)), TOKENS, 16),
        r"Noisy \(at inner\.0\) draws random numbers",
    ),
    "recurrent with dropout of channels": (
        wrapped(lambda: nn.Sequential(nn.Dropout1d(0.5), nn.LSTM(4, 4, batch_first=True)), TOKENS, 16),
        r"Dropout1d \(at inner\.0\) draws random numbers",
    ),
    "all frozen": (lambda: frozen(nn.Linear(16, CLASSES)), "no parameters to train"),
    "no parameters": (lambda: nn.Flatten(), "no parameters to train"),
    "float64": (lambda: nn.Linear(16, CLASSES).double(), "weight is float64"),
    "complex": (lambda: nn.Linear(16, CLASSES).to(torch.complex64), "weight is complex64"),
    "shared memory": (shared_memory, "0.weight and 1.weight share their memory"),
    "a hook on a gradient": (masked_gradient, "weight has a hook on its gradient"),
    "a tensor with history": (with_history, "cannot be created"),
    "old weight norm": (lambda: nn.utils.weight_norm(nn.Linear(16, CLASSES)), "cannot be (created|computed)"),
    "spectral norm": (
        lambda: parametrizations.spectral_norm(nn.Linear(16, CLASSES)),
        r"_SpectralNorm \(at parametrizations\.weight\.0\) changes its buffer _u, which all clients share",
    ),
}


def section(make: Callable[[], nn.Module]) -> OwnModel:
    def Net() -> nn.Module:
        return make()

    kind = section_with_plugin_keys(OwnModel, "name", Plugin("model.name", "net.py:Net", Net, None, None))
    return kind(name="net.py:Net")


class Samples:
    """As much of a data set as a trial of a model needs."""

    train_x = torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(1)).numpy()
    train_y = (torch.arange(BATCH) % CLASSES).numpy()
    outputs = CLASSES


def architecture(make: Callable[[], nn.Module]) -> Architecture:
    model = section(make)
    found = model.architecture((INPUTS,), CLASSES)
    model.require_pure(found, cross_entropy, 1, Samples())  # type: ignore[arg-type]
    return found


@cache
def known(name: str) -> Architecture:
    return architecture(CASES[name].make)


def plain(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().train()


def state(module: nn.Module, model: Architecture) -> Tensor:
    """Of torch's module, what is in the vector."""
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    own |= {part.name: torch.zeros(()) for part in model.drawn}
    return torch.cat([own[part.name].detach().flatten() for part in model.slices])


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_three_steps_are_torchs(name: str) -> None:
    model = known(name)
    for backend in possible_backends(model, cross_entropy):
        kernel = ModelKernel(model, cross_entropy, backend)
        module = plain(CASES[name].make)
        optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=RATE)
        flat = state(module, model).repeat(2, 1)
        flat[1] += 0.1  # another client, which must change nothing
        x, y = [torch.from_numpy(np.stack([part] * 2)) for part in (Samples.train_x, Samples.train_y)]
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(module(x[0]), y[0]).backward()
            optimizer.step()
            kernel.descend(flat, x, y, RATE)
        torch.testing.assert_close(flat[0], state(module, model), rtol=1e-5, atol=1e-5)
        outputs = kernel.outputs(flat, x)[0]
        torch.testing.assert_close(outputs, module.eval()(x[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_nobody_trains_is_in_no_vector(name: str) -> None:
    model, module = known(name), plain(CASES[name].make)
    own = {each for each, values in module.named_parameters() if values.requires_grad}
    assert {part.name for part in model.slices} - {part.name for part in model.untrained} == own
    assert all(part.name.endswith(("running_mean", "running_var", "draw")) for part in model.untrained)


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_of_a_count_by_hand(name: str) -> None:
    model, case = known(name), CASES[name]
    assert not model.uncounted
    assert model.forward_flops_per_sample == pytest.approx(case.forward, rel=0.05)
    assert model.training_flops_per_sample == pytest.approx(case.forward + case.back, rel=0.05)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_in_a_sentence(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UserError, match=rf'model\.name = "net\.py:Net": .*Net .*{message}'):
        architecture(make)


def test_an_operation_without_a_formula_is_named_and_counted_by_its_numbers() -> None:
    class Inverse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.eye(16) + 0.1)

        def forward(self, x: Tensor) -> Tensor:
            return x @ torch.linalg.inv(self.matrix)

    model = architecture(wrapped(Inverse, (16,), 16))
    assert any("linalg" in name for name in model.uncounted)
    products = linear(16, 16) + linear(16, CLASSES)
    assert products + 2 * 16 * 16 / 2 <= model.forward_flops_per_sample <= products + 3 * 16 * 16 / 2


def test_there_are_forty() -> None:
    assert len(CASES) >= 40

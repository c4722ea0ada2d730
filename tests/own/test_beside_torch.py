"""More models as people write them: trained as in plain torch, or refused by class, with what to write."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sim.errors import UserError
from sim.learning.engine.backends.kernels import ModelKernel, possible_backends
from sim.learning.objectives import cross_entropy
from sim.plugins.loader import load_plugin
from tests.own.test_module_zoo import CLASSES, RATE, Samples, architecture, plain, state

Make = Callable[[], nn.Module]


class By(nn.Module):
    """Named parts, and a function of them and of the inputs [B, 16]."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def by(function: Callable[[Any, Tensor], Any], **more: Make) -> Make:
    """Layers `a`, `o` and some more."""
    return lambda: By(
        function,
        a=nn.Linear(16, 16),
        o=nn.Linear(16, CLASSES),
        **{name: make() for name, make in more.items()},
    )


class KeptInEvaluation(nn.Sequential):
    """Fine-tuning: some kinds of layers stay in evaluation, whatever `train` is told."""

    kinds: tuple[type[nn.Module], ...] = (nn.BatchNorm1d,)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        for part in self.modules():
            if isinstance(part, self.kinds):
                part.eval()
        return self


class DropoutsOff(KeptInEvaluation):
    kinds = (nn.Dropout,)


class NoDropsLater(nn.Sequential):
    """Sets what its dropouts drop when training begins."""

    def train(self, mode: bool = True) -> Any:
        for part in self.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        return super().train(mode)


class StatisticsStay(nn.Sequential):
    """Norms go by the batch and leave their statistics."""

    def train(self, mode: bool = True) -> Any:
        for part in self.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.track_running_stats = False
        return super().train(mode)


class SlowNorms(nn.Sequential):
    """Another momentum for all norms, which it finds by their class."""

    def train(self, mode: bool = True) -> Any:
        for part in self.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.momentum = 0.01
        return super().train(mode)


class LateMask(nn.Module):
    """A constant that is made when the shape is known."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor | None = None
        self.o = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.linspace(0, 1, x.shape[1])
        out: Tensor = self.o(x * self.mask)
        return out


class Looked(nn.Module):
    """Keeps its hidden values to be looked at, and never reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.a(x).tanh()
        out: Tensor = self.o(self.hidden)
        return out


def chain(kind: type[nn.Sequential], *between: Callable[[], nn.Module]) -> Make:
    return lambda: kind(nn.Linear(16, 8), *[make() for make in between], nn.ReLU(), nn.Linear(8, CLASSES))


def encoder(**options: Any) -> Make:
    def function(m: Any, x: Tensor) -> Tensor:
        tokens = x.view(-1, 4, 4)
        padding = torch.zeros(len(x), 4, dtype=torch.bool) | (torch.arange(4) == 3)
        kept = m.t(tokens, src_key_padding_mask=padding)[:, :3]
        out: Tensor = m.o(F.pad(kept.flatten(1), (0, 4)))
        return out

    layer = lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)  # noqa: E731
    return by(function, t=lambda: nn.TransformerEncoder(layer(), 1, **options))


SAME: dict[str, Make] = {
    "norm kept in evaluation": chain(KeptInEvaluation, lambda: nn.BatchNorm1d(8)),
    "norm kept in evaluation behind another layer": chain(
        KeptInEvaluation, nn.Tanh, lambda: nn.BatchNorm1d(8)
    ),
    "dropout kept in evaluation": chain(DropoutsOff, lambda: nn.Dropout(0.5)),
    "dropout set to 0 by train": chain(NoDropsLater, lambda: nn.Dropout(0.5)),
    "statistics that stay": chain(StatisticsStay, lambda: nn.BatchNorm1d(8)),
    "momentum set by train": chain(SlowNorms, lambda: nn.BatchNorm1d(8)),
    "mask made late": LateMask,
    "hidden values kept to be looked at": Looked,
    "encoder with a padding mask": encoder(enable_nested_tensor=False),
    "weights used transposed": by(lambda m, x: m.o(F.linear(m.a(x).tanh(), m.a.weight.t()))),
    "bilinear of the inputs": by(lambda m, x: m.o(m.b(x, x)), b=lambda: nn.Bilinear(16, 16, 16)),
    "part without gradients": by(lambda m, x: m.o(m.a(x).detach().relu())),
    "gates": by(lambda m, x: m.o(m.a(x) * m.g(x).sigmoid()), g=lambda: nn.Linear(16, 16)),
    "bfloat16 inside a float32": by(lambda m, x: m.o(m.a(x).double().tanh().float())),
    "cosine head": by(lambda m, x: 5 * F.normalize(m.a(x)) @ F.normalize(m.o.weight, dim=1).t() + m.o.bias),
}


class Assigned(nn.Module):
    """A moving mean, assigned or changed in place, as a buffer or as a plain attribute."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.o, self.how = nn.Linear(16, CLASSES), how
        if how == "attribute":
            self.mean = torch.zeros(16)
        else:
            self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            moved = 0.9 * self.mean + 0.1 * x.mean(0).detach()
            if self.how == "in place":
                self.mean.copy_(moved)
            else:
                self.mean = moved
        out: Tensor = self.o(x - self.mean)
        return out


class Counting(nn.Module):
    """Warms up after more calls than a trial makes."""

    def __init__(self) -> None:
        super().__init__()
        self.o, self.steps = nn.Linear(16, CLASSES), 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        out: Tensor = self.o(x) if self.steps < 100 else self.o(2 * x)
        return out


class Clipped(nn.Module):
    """Clips a weight by .data, also in front of a recurrent layer."""

    def __init__(self, recurrent: bool) -> None:
        super().__init__()
        self.o = nn.Linear(16, CLASSES)
        self.r = nn.GRU(16, 16, batch_first=True) if recurrent else None

    def forward(self, x: Tensor) -> Tensor:
        self.o.weight.data = self.o.weight.data.clamp(-0.01, 0.01)
        out: Tensor = self.o(x if self.r is None else self.r(x[:, None])[0][:, 0])
        return out


class Seen(nn.Module):
    """Evaluates in another way once it has been trained."""

    def __init__(self) -> None:
        super().__init__()
        self.o, self.seen = nn.Linear(16, CLASSES), False

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = True
        out: Tensor = self.o(x if self.seen else 2 * x)
        return out


class AlwaysTraining(KeptInEvaluation):
    def train(self, mode: bool = True) -> Any:
        return nn.Sequential.train(self, True)


class Lazily(nn.Module):
    """A layer that is made in the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(16, 16)
        out: Tensor = self.o(self.late(x))
        return out


def kept(module: Any, found: Tensor) -> Tensor:
    """Keep what a layer makes, for somebody who looks at it later; no call reads it."""
    module.last = found.detach()
    return found


REFUSED: dict[str, tuple[Make, str]] = {
    "buffer assigned": (lambda: Assigned("assigned"), "buffer mean.* use nn.BatchNorm1d"),
    "buffer in place": (lambda: Assigned("in place"), "Assigned changes its buffer mean"),
    "attribute assigned": (lambda: Assigned("attribute"), "Assigned keeps self.mean"),
    "counter": (Counting, "Counting keeps self.steps between calls"),
    "weight by .data": (lambda: Clipped(False), r"Linear \(at o\) changes its parameter weight .*clamp"),
    "weight by .data beside a GRU": (lambda: Clipped(True), r"Linear \(at o\) changes its parameter weight"),
    "trained before evaluation": (Seen, "Seen sets self.seen in training and uses it in evaluation"),
    "norm always in training": (
        chain(AlwaysTraining, lambda: nn.BatchNorm1d(8)),
        r"BatchNorm1d \(at 1\) is in training mode during evaluation",
    ),
    "dropout always in training": (
        chain(AlwaysTraining, lambda: nn.Dropout(0.5)),
        r"Dropout \(at 1\) is in training mode during evaluation",
    ),
    "layer made in forward": (Lazily, "Lazily creates late in forward.* create it in __init__"),
    "functional dropout": (
        by(lambda m, x: m.o(F.dropout(m.a(x), 0.5, m.training))),
        "By draws random numbers of torch in training.* use nn.Dropout",
    ),
    "noise": (
        by(lambda m, x: m.o(x + torch.randn_like(x))),
        "By draws random numbers of torch in training",
    ),
    "path dropped by Python": (
        by(lambda m, x: m.o(m.a(x) + x if random.random() < 0.5 else x)),
        "By draws random numbers of Python's random",
    ),
    "noise by numpy": (
        by(lambda m, x: m.o(x * np.random.normal())),
        "By draws random numbers of numpy.random",
    ),
    "random leaky rectifier": (
        by(lambda m, x: m.o(m.d(x)), d=nn.RReLU),
        r"RReLU \(at d\) draws random numbers of torch",
    ),
    "nested tensors": (encoder(), "TransformerEncoder.*enable_nested_tensor=False"),
    "shortened embedding": (
        by(lambda m, x: m.o(m.e(x.abs().long() % 3)[:, 0]), e=lambda: nn.Embedding(3, 16, max_norm=1.0)),
        r"e \(Embedding\) has max_norm",
    ),
    "mask as an index": (by(lambda m, x: m.o(x * x[x > 0].sum())), "By, a mask selects .*torch.where"),
    "branch on a number": (
        by(lambda m, x: m.o(x if x.sum() > 0 else -x)),
        "By, it branches on values.*torch.where",
    ),
    "checkpoint": (
        by(lambda m, x: m.o(checkpoint(m.a, x, use_reentrant=False))),
        "torch.utils.checkpoint cannot be used here",
    ),
    "two outputs": (
        by(lambda m, x: (m.o(x), m.a(x)) if m.training else m.o(x)),
        "By returns an object of type tuple in training, not a tensor",
    ),
    "many GPUs": (lambda: nn.DataParallel(nn.Linear(16, CLASSES)), "is a DataParallel.* its module"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_four_steps_are_torchs(name: str) -> None:
    model = architecture(SAME[name])
    x, y = torch.from_numpy(Samples.train_x), torch.from_numpy(Samples.train_y)
    for backend in possible_backends(model, cross_entropy):
        kernel, module = ModelKernel(model, cross_entropy, backend), plain(SAME[name])
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        flat = state(module, model).repeat(2, 1)
        flat[1] *= 0.9  # another client, which must change nothing
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()
            kernel.descend(flat, x.expand(2, -1, -1), y.expand(2, -1), RATE)
        torch.testing.assert_close(flat[0], state(module, model), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            expected = module.eval()(x)
        torch.testing.assert_close(kernel.outputs(flat, x[None])[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_by_class_with_what_to_write(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        architecture(make)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(16), nn.Dropout(0.5), nn.LayerNorm(16)], ids=str)
def test_what_is_kept_and_never_read_is_taken(layer: nn.Module) -> None:
    architecture(by(lambda m, x: m.o(kept(m, m.n(m.a(x)))), n=lambda: copy.deepcopy(layer)))


def test_a_mode_that_fails_is_not_called_a_kept_attribute() -> None:
    make = chain(AlwaysTraining, lambda: nn.BatchNorm1d(8))
    with pytest.raises(UserError, match="is in training mode during evaluation"):
        architecture(lambda: By(lambda m, x: kept(m, m.inner(x)), inner=make()))


def test_a_dropout_in_place_drops_where_it_is() -> None:
    model = architecture(by(lambda m, x: m.o(m.a(x)), d=lambda: nn.Dropout(0.5, inplace=True)))
    layer = model.training_module.get_submodule("d")
    values = torch.ones(8, 50)
    layer._parameters["draw"] = torch.tensor(5.0)  # type: ignore[assignment]
    assert layer(values) is values and 0 < int((values == 0).sum()) < 400


def of_another_kind(setting: Callable[[], Any]) -> Make:
    def make() -> nn.Module:
        setting()
        return nn.Linear(16, CLASSES)

    return make


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        (lambda: torch.set_default_dtype(torch.float64), "dtype"),
        (lambda: torch.set_default_dtype(torch.bfloat16), "dtype"),
        (lambda: torch.set_default_device("meta"), "device"),
    ],
)
def test_settings_of_the_process_stay(setting: Callable[[], Any], name: str) -> None:
    with pytest.raises(UserError, match=f"default {name} .*remove torch.set_default_{name}"):
        architecture(of_another_kind(setting))
    assert torch.get_default_dtype() == torch.float32 and torch.get_default_device().type == "cpu"


def test_settings_of_the_process_stay_when_a_file_is_loaded(tmp_path: Path) -> None:
    code = "import torch\ntorch.set_default_dtype(torch.float64)\nNet = torch.nn.Linear\n"
    (tmp_path / "doubles.py").write_text(code)
    with pytest.raises(UserError, match=r"doubles\.py.*remove torch.set_default_dtype"):
        load_plugin("model.name", str(tmp_path / "doubles.py:Net"), code=True, instead="mlp")
    assert torch.get_default_dtype() == torch.float32

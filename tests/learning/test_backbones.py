"""Backbones: shapes, sizes, that clients train together as alone, and who has which."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from sim.errors import UserError
from sim.learning import vision
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.models.backbones import ANY_SHAPE, BACKBONES, client_backbones
from sim.learning.models.modules.backbones import MODULES, backbone_module
from sim.learning.models.modules.batch_norm import BatchNorm
from sim.learning.objectives import cross_entropy
from tests.learning.engines import generator
from tests.learning.sections import architecture
from tests.lists import require_listed

GREY, COLOURED, DIGITS = (1, 28, 28), (3, 32, 32), (64,)
SMALL = ("small-mlp", "deep-mlp", "small-cnn", "deep-cnn", "small-resnet", "lenet")
FEATURES, CLASSES = 12, 4


def decoupled(backbone: str, shape: tuple[int, ...] = COLOURED) -> Architecture:
    return architecture("decoupled", {"backbone": backbone, "features": FEATURES}, shape, CLASSES)


def batch(shape: tuple[int, ...], *sizes: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(*sizes, *shape, generator=generator(3))
    return x, torch.randint(CLASSES, sizes, generator=generator(4))


def test_all_of_them_are_tested() -> None:
    require_listed(BACKBONES, MODULES, "MODULES in sim/learning/models/modules/backbones.py")
    require_listed(BACKBONES, {*SMALL, "alexnet", *vision.NETWORKS}, f"SMALL in {__file__}")


@pytest.mark.parametrize("shape", [GREY, COLOURED], ids=str)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_images_become_features(backbone: str, shape: tuple[int, ...]) -> None:
    model = decoupled(backbone, shape)
    x, _ = batch(shape, 2)
    embedding = model.embed(model.initial(generator()), x)
    assert embedding.features.shape == (2, FEATURES)
    assert embedding.scores.shape == (2, CLASSES)
    assert embedding.scores.isfinite().all()
    assert (embedding.features[0] != embedding.features[1]).all(), "they are no ReLU's output"
    assert model.has_convolution == (backbone not in ("small-mlp", "deep-mlp"))


@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name not in ANY_SHAPE])
def test_the_others_need_images(backbone: str) -> None:
    with pytest.raises(UserError, match=rf'model.backbones: "{backbone}" needs images .*small-mlp'):
        backbone_module(backbone, DIGITS, FEATURES)


@pytest.mark.parametrize("backbone", SMALL)
def test_many_few_and_one_client_train_the_same(backbone: str) -> None:
    """49 clients: the backward pass is vmapped, too.

    In double precision, where sums in another order differ by 1e-13: in single precision they differ by as
    much as small gradients are large.
    """
    side = BACKBONES[backbone] or 8
    shape = (1, side, side)
    model = decoupled(backbone, shape)
    x, y = batch(shape, 49, 3)
    x, flat = x.double(), torch.stack([model.initial(generator(seed)) for seed in range(49)]).double()
    together, after = ModelKernel(model, cross_entropy, "vmap").training_gradients(flat, x, y)
    for backend in ("vmap", "loop"):
        few, few_after = ModelKernel(model, cross_entropy, backend).training_gradients(flat[:3], x[:3], y[:3])
        assert few.dtype == torch.float64
        torch.testing.assert_close(few, together[:3], rtol=1e-9, atol=1e-11)
        has_norms = backbone not in ("small-mlp", "deep-mlp", "small-cnn", "lenet")
        assert (few_after is not None) == (after is not None) == has_norms
        if after is not None:
            assert few_after is not None
            torch.testing.assert_close(few_after, after[:3], rtol=1e-9, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name not in SMALL])
def test_a_large_one_trains(backbone: str) -> None:
    model = decoupled(backbone)
    kernel = ModelKernel(model, cross_entropy, "loop")
    flat = model.initial(generator())[None]
    x, y = batch(COLOURED, 1, 4)
    before, start = kernel.losses(flat, x, y), flat.clone()
    gradient, _ = kernel.training_gradients(flat, x, y)
    used = [part.name for part in model.slices if gradient[0, model.part(part.name)].any()]
    trained = [part.name for part in model.slices if part not in model.untrained]
    # ReLU's dead units may leave a bias or norm without a gradient, but no convolution or linear layer.
    assert {name for name in trained if name.endswith("weight")} <= set(used)
    for _ in range(3):
        kernel.descend(flat, x, y, torch.full((1, 1), 0.01))
    assert flat.isfinite().all()
    moved = start[0, model.untrained_columns] != flat[0, model.untrained_columns]
    assert moved.float().mean() > 0.9 if model.untrained else before > kernel.losses(flat, x, y)


@pytest.mark.parametrize("name", vision.NETWORKS)
def test_torchvisions_networks_draw_no_random_masks(name: str) -> None:
    module = vision.network(name, 1, FEATURES).train()
    x, _ = batch(GREY, 4)
    assert torch.equal(module(x), module(x))
    first = next(part for part in module.modules() if isinstance(part, nn.Conv2d))
    assert first.in_channels == 1
    assert not any(isinstance(part, BatchNorm) for part in module.modules()), "the backbone's business"


@pytest.mark.parametrize("name", vision.NETWORKS)
def test_torchvisions_networks_are_theirs(name: str) -> None:
    """The same parameters and statistics give the same outputs as torchvision's own module."""
    theirs = vision.network(name, 3, FEATURES)
    with torch.device("meta"):
        ours = Architecture(backbone_module(name, COLOURED, FEATURES), name, COLOURED)
    state = theirs.state_dict()
    flat = torch.cat([state[part.name].flatten() for part in ours.slices])
    assert len(state) - len(ours.slices) == sum(key.endswith("num_batches_tracked") for key in state)
    x, _ = batch(COLOURED, 3)
    torch.testing.assert_close(ours.forward(flat, x), theirs.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_torchvision_is_not_imported_without_need() -> None:
    code = "import sys; import sim.learning.models.modules.backbones; sys.exit('torchvision' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- who has which ----------------------------------------------------------------------------------------


def test_in_turn() -> None:
    assert client_backbones("in-turn", ["a", "b", "c"], 5, 1, []) == ["a", "b", "c", "a", "b"]


def test_at_random_each_draws_its_own() -> None:
    names = ["a", "b", "c"]
    few, many = (client_backbones("random", names, count, 1, []) for count in (30, 31))
    assert many[:30] == few
    assert set(few) == set(names)
    assert client_backbones("random", names, 30, 2, []) != few


def test_by_speed_the_slow_have_the_first() -> None:
    assert client_backbones("by-speed", ["a", "b"], 4, 1, [3.0, 1.0, 2.0, 4.0]) == ["b", "a", "a", "b"]
    assert client_backbones("by-speed", ["a", "b"], 3, 1, [1.0, 1.0, 1.0]) == ["a", "a", "b"]
    assert client_backbones("by-speed", ["a", "b", "c"], 2, 1, [2.0, 1.0]) == ["b", "a"]

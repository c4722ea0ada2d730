"""Architectures: parameter counts, initialization, purity, and how a model is refused."""

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap
from torch.utils.flop_counter import FlopCounterMode

from sim.errors import UserError
from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.flops import flops_counted
from sim.learning.models.kinds import MODELS
from sim.learning.models.mlp import FullyConnected
from sim.learning.models.modules.residual_network import ResidualNetwork
from tests.learning.sections import OF_NUMBERS, architecture, module
from tests.lists import require_listed

SMALL: list[tuple[str, dict[str, Any], tuple[int, ...], int]] = [
    ("logistic-regression", {}, (64,), 10),
    ("mlp", {"hidden": [16, 8]}, (1, 8, 8), 10),
    ("cnn", {}, (3, 8, 8), 5),
    ("resnet9", {"width": 4, "groups": 2}, (3, 16, 16), 5),
    ("decoupled", {"features": 7, "parts": ("head_anchor",)}, (1, 8, 8), 5),
    ("point", {}, (7,), 0),
]
IDS = [name for name, *_ in SMALL]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def on_cpu(name: str, options: dict, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The same model as an ordinary module, with parameters drawn by PyTorch's constructors from seed 5."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return module(name, options, input_shape, classes)


def test_every_model_is_covered() -> None:
    require_listed(OF_NUMBERS, IDS, f"SMALL in {__file__}")


@pytest.mark.parametrize(
    ("name", "options", "input_shape", "classes", "parameters"),
    [
        ("logistic-regression", {}, (64,), 10, 650),
        ("mlp", {}, (64,), 10, 64 * 100 + 100 + 100 * 10 + 10),
        ("mlp", {"hidden": ()}, (64,), 10, 650),
        ("cnn", {}, (1, 28, 28), 10, 1_663_370),  # the count that McMahan et al. (2017) state
        (  # three 3x3 convolutions of 128 channels, and one linear layer on what three poolings leave
            "cnn",
            {"channels": (128, 128, 128), "kernel": 3, "hidden": ()},
            (3, 32, 32),
            10,
            128 * (3 * 9 + 1) + 2 * 128 * (128 * 9 + 1) + 10 * (128 * 4 * 4 + 1),
        ),
        ("resnet9", {}, (3, 32, 32), 10, 6_573_130),
        ("point", {}, (21,), 0, 20),
    ],
)
def test_parameter_count(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    assert architecture(name, options, input_shape, classes).numel == parameters


@pytest.mark.parametrize(("name", "options", "input_shape", "classes"), SMALL, ids=IDS)
def test_slices_tile_the_vector_in_parameter_order(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int
) -> None:
    model = architecture(name, options, input_shape, classes)
    end = 0
    for part in model.slices:
        assert part.offset == end
        end += part.numel
    assert end == model.numel
    reference = on_cpu(name, options, input_shape, classes)
    assert [(part.name, part.shape) for part in model.slices] == [
        (path, tuple(parameter.shape)) for path, parameter in reference.named_parameters()
    ]


@pytest.mark.parametrize(("name", "options", "input_shape", "classes"), SMALL[:-1], ids=IDS[:-1])
def test_initial_parameters_are_those_of_pytorch(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int
) -> None:
    reference = on_cpu(name, options, input_shape, classes)
    flat = architecture(name, options, input_shape, classes).initial(generator(5))
    assert flat.dtype == torch.float32
    assert torch.equal(flat, nn.utils.parameters_to_vector(reference.parameters()))


def test_a_point_starts_at_the_origin() -> None:
    assert torch.equal(architecture("point", {}, (4,), 0).initial(generator()), torch.zeros(3))


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_cnn_normalises_before_its_activations_as_torch_does(norm: str) -> None:
    options = {"channels": (4, 6), "kernel": 3, "hidden": (), "norm": norm}
    options |= {"groups": 2} if norm == "group" else {}
    norms = (
        [nn.GroupNorm(2, 4), nn.GroupNorm(2, 6)]
        if norm == "group"
        else [nn.BatchNorm2d(4), nn.BatchNorm2d(6)]
    )
    reference = nn.Sequential(
        *[nn.Conv2d(3, 4, 3, padding=1), norms[0], nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(4, 6, 3, padding=1), norms[1], nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(24, 5)],
    )
    with torch.no_grad():
        for name, values in reference.state_dict().items():
            if values.is_floating_point():  # a variance is above 0
                values.copy_(torch.rand(values.shape, generator=generator()) + ("var" in name))
    model = architecture("cnn", options, (3, 8, 8), 5)
    state = reference.state_dict()
    flat = torch.cat([state[part.name].flatten() for part in model.slices])
    x = torch.randn(3, 3, 8, 8, generator=generator())
    torch.testing.assert_close(model.forward(flat, x), reference.eval()(x))
    named = {part.name: model.tensor(flat, part.name) for part in model.untrained}
    trained = TrainingPass(model, named)
    torch.testing.assert_close(trained.forward(flat, x), reference.train()(x))
    for name, values in trained.untrained.items():
        torch.testing.assert_close(values, reference.state_dict()[name])


def test_initialisation_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    architecture("cnn", {}, (1, 8, 8), 10).initial(generator())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("name", "options", "input_shape", "classes"), SMALL, ids=IDS)
def test_forward_equals_the_module(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int
) -> None:
    reference = on_cpu(name, options, input_shape, classes)
    if name == "point":
        nn.utils.vector_to_parameters(torch.arange(6.0), reference.parameters())
    flat = nn.utils.parameters_to_vector(reference.parameters()).detach()
    model = architecture(name, options, input_shape, classes)
    x = torch.randn(3, *input_shape, generator=generator())
    expected = reference(x)
    assert expected.shape == (3, classes or 6)
    assert torch.equal(model.forward(flat, x), expected)
    assert torch.equal(model.forward(model.unflatten(flat), x), expected)


@pytest.mark.parametrize(("name", "options", "input_shape", "classes"), SMALL, ids=IDS)
def test_vmap_of_grad_equals_one_client_at_a_time(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int
) -> None:
    model = architecture(name, options, input_shape, classes)
    flats = torch.stack([model.initial(generator(seed)) for seed in range(3)])
    x = torch.randn(3, 4, *input_shape, generator=generator())

    def objective(flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (model.forward(flat, x) - 1).square().mean()

    together = vmap(grad(objective))(flats, x)
    assert together.shape == (3, model.numel)
    for row, (flat, batch) in enumerate(zip(flats, x, strict=True)):
        alone = flat.clone().requires_grad_()
        objective(alone, batch).backward()
        torch.testing.assert_close(together[row], alone.grad, rtol=1e-4, atol=1e-6)


def test_equal_architectures_have_equal_keys() -> None:
    def key(options: dict, inputs: int = 64) -> str:
        return architecture("mlp", options, (inputs,), 10).key

    assert key({}) == key({"hidden": [100]}) == key({"hidden": (100,)}) == "mlp(hidden=[100]) (64,) -> 10"
    assert len({key({}), key({"hidden": [100, 100]}), key({}, inputs=65)}) == 3


@pytest.mark.parametrize(("name", "options", "input_shape", "classes"), SMALL, ids=IDS)
def test_flops_are_those_that_torch_counts(
    name: str, options: dict[str, Any], input_shape: tuple[int, ...], classes: int
) -> None:
    model = architecture(name, options, input_shape, classes)
    flat = torch.zeros(model.numel, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        output = model.forward(flat, torch.zeros(1, *input_shape))
    forward = counter.get_total_flops()
    assert model.forward_flops_per_sample == (forward or 2 * model.numel)
    if name != "decoupled":  # which trains its projection, too
        with FlopCounterMode(display=False) as counter:
            output.sum().backward()
        assert model.training_flops_per_sample == (forward + counter.get_total_flops() or 4 * model.numel)


def test_flops_of_attention_and_of_products_of_many() -> None:
    queries = torch.zeros(2, 3, 5, 8)
    with flops_counted() as found:
        F.scaled_dot_product_attention(queries, queries, queries)
        torch.einsum("nhld,nhkd->nhlk", queries, queries)
    assert found.total == 3 * (2 * 2 * 3 * 5 * 5 * 8)


@pytest.mark.long
def test_counting_does_not_load_torchs_compiler() -> None:
    """It would take longer than a short run."""
    code = (
        "import sys, torch\n"
        "from sim.learning.flops import flops_counted\n"
        "layer = torch.nn.Linear(3, 2)\n"
        "with flops_counted() as counter:\n"
        "    layer(torch.zeros(1, 3)).sum().backward()\n"
        "assert counter.total == 2 * 6 + 2 * 6, counter.total\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_resnet9_pools_like_the_usual_one_on_32_pixels() -> None:
    model = ResidualNetwork(3, 10, width=4, groups=2)
    maps: list[torch.Tensor] = []
    model.residual_2.register_forward_hook(lambda module, inputs, output: maps.append(inputs[0] + output))
    logits = model(torch.randn(2, 3, 32, 32, generator=generator()))
    assert torch.equal(logits, model.head(nn.functional.max_pool2d(maps[0], 4).flatten(1)))


@pytest.mark.parametrize(
    ("name", "options", "input_shape", "classes", "message"),
    [
        ("cnn", {}, (64,), 10, r'model.name = "cnn" needs images .* inputs have shape \(64,\)'),
        ("resnet9", {}, (64,), 10, r'model.name = "resnet9" needs images'),
        ("resnet9", {}, (1, 7, 7), 10, "at least 8x8"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    name: str, options: dict, input_shape: tuple[int, ...], classes: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        architecture(name, options, input_shape, classes)


def test_state_besides_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match=r"buffers 1\.running_mean.*GroupNorm"):
        Architecture(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "with-batchnorm", (2,))


def test_parameters_without_a_known_initialisation_are_refused() -> None:
    with pytest.raises(TypeError, match="no initialization is known for Bilinear"):
        Architecture(nn.Bilinear(2, 2, 2), "bilinear", (2,))


def test_models_are_built_without_memory() -> None:
    model = architecture("resnet9", {"width": 1024}, (3, 32, 32), 10)
    assert all(parameter.is_meta for parameter in model.module.parameters())
    assert model.numel > 10**9


@pytest.mark.parametrize(
    ("model", "shape", "classes"),
    [
        ({"name": "mlp"}, (64,), 10),
        ({"name": "mlp", "hidden": ()}, (1, 28, 28), 3),
        ({"name": "mlp", "hidden": (30, 20, 7)}, (3, 32, 32), 100),
        ({"name": "logistic-regression"}, (64,), 10),
        ({"name": "logistic-regression"}, (5,), 1),
    ],
)
def test_sizes_are_those_of_the_models(model: dict[str, Any], shape: tuple[int, ...], classes: int) -> None:
    section = MODELS[model["name"]].model_validate(model)
    assert isinstance(section, FullyConnected)
    size, made = section.size(shape, classes), section.architecture(shape, classes)
    for each in fields(size):
        assert getattr(size, each.name) == getattr(made, each.name), each.name

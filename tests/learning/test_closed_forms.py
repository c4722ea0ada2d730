"""Gradients in closed form against autograd: of losses with respect to outputs, then of whole models."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.launches import Counted
from protocols.framework.objectives import Embedding, Model, ModelOutputs, OutputGradients, Parameters
from protocols.shared.local_losses import ContrastiveClassifier, FeaturePrototypes, PersonalizedModelLoss
from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine import Optimizer
from sim.learning.engine.backends.kernels import ModelKernel, possible_backends
from sim.learning.engine.graph.sampler import BatchSampler, TrainJob
from sim.learning.models.decoupled import PARTS
from sim.learning.models.modules.batch_norm import BatchNorm
from sim.learning.objectives import CrossEntropyLoss, closed_form, cross_entropy, squared_error
from tests.draws import examples
from tests.learning.engines import client_data, generator, new_engine
from tests.learning.sections import architecture

# --- losses with respect to outputs -----------------------------------------------------------------------

# All four losses of MAPL, each alone, and all but one: in both variants.
SWITCHES = list(itertools.product((True, False), repeat=4))[:-1]
PERSONALIZED = [
    PersonalizedModelLoss(*switches, temperature=0.4, variant=variant)  # type: ignore[arg-type]
    for switches in SWITCHES
    for variant in ("paper", "code")
]
OBJECTIVES: list[Any] = [
    cross_entropy,
    squared_error,
    *PERSONALIZED,
    PersonalizedModelLoss(temperature=0.1, prototype_temperature=2.0, reduction="sum"),
    PersonalizedModelLoss(temperature=0.3, variant="code", reduction="sum"),
    PersonalizedModelLoss(),
    *[
        ContrastiveClassifier(0.3, 0.5, pull, views, variant)  # type: ignore[arg-type]
        for pull in ("norm", "squared", "code")
        for views in (1, 2)
        for variant in ("paper", "code")
    ],
    FeaturePrototypes(0.7),
]


class Given:
    """A model whose outputs for a batch are known: rows [B, width] of one client."""

    slices: Sequence[Any] = ()
    input_shape: tuple[int, ...] = ()

    def __init__(self, leaves: Mapping[str, Tensor]) -> None:
        self.leaves = leaves

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        return self.leaves["scores"]

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        return Embedding(*[self.leaves[name] for name in ("features", "projections", "scores")])

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        return self.leaves[name]


class Sizes(NamedTuple):
    clients: int
    batch: int
    classes: int
    width: int


def leaves_of(sizes: Sizes, draw: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """ModelOutputs as rows [N, B, width], and parameters [N, *shape], at random."""
    clients, batch, classes, width = sizes
    shapes = {
        "scores": (batch, classes),
        "features": (batch, width),
        "projections": (batch, width),
        "head.weight": (classes, width),
        "head.bias": (classes,),
        "head_anchor": (classes * (width + 1),),
        "class_means": (classes, width),
        "prototypes": (classes, width),
    }
    random = generator(draw)
    return {
        name: torch.randn(clients, *shape, generator=random, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


def targets(objective: Any, sizes: Sizes, draw: int) -> Tensor:
    """Of few samples not every class is there; of two views both have the same."""
    clients, batch, classes, _ = sizes
    random = generator(draw + 1)
    if objective is squared_error:
        return torch.randn(clients, batch, classes, generator=random)
    views = getattr(objective, "views", 1)
    return torch.randint(classes, (clients, batch // views), generator=random).repeat(1, views)


def columns(leaves: Mapping[str, Tensor]) -> ModelOutputs:
    outputs = [leaves[name].mT.contiguous() for name in ("scores", "features", "projections")]
    return ModelOutputs(*outputs, leaves)


def by_autograd(objective: Any, leaves: Mapping[str, Tensor], y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Each client's loss, and B times its gradient with respect to all leaves."""
    free = {name: values.clone().requires_grad_() for name, values in leaves.items()}
    losses = []
    for client in range(len(y)):
        model = Given({name: values[client] for name, values in free.items()})
        losses.append(objective(model, {}, y[client], y[client]))
    total = torch.stack(losses)
    found = torch.autograd.grad(total.sum(), list(free.values()), materialize_grads=True)
    return total.detach(), {name: values * y.shape[1] for name, values in zip(free, found, strict=True)}


def by_closed_form(objective: Any, leaves: Mapping[str, Tensor], y: Tensor) -> dict[str, Tensor]:
    found: OutputGradients = objective.output_gradients(columns(leaves), y)
    gradients = {name: torch.zeros_like(values) for name, values in leaves.items()}
    for name, of_output in zip(("scores", "features", "projections"), found[:3], strict=True):
        if of_output is not None:
            gradients[name] = of_output.mT
    return gradients | dict(found.parameters)


def check(objective: Any, leaves: Mapping[str, Tensor], y: Tensor, tolerance: float) -> None:
    """Of each tensor as a whole: what is the difference of large numbers has their errors."""
    before = {name: values.clone() for name, values in leaves.items()}
    _, expected = by_autograd(objective, leaves, y)
    found = by_closed_form(objective, leaves, y)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape, name
        scale = 1.0 + float(values.abs().max())
        torch.testing.assert_close(found[name] / scale, values / scale, rtol=tolerance, atol=tolerance)
        assert torch.equal(leaves[name], before[name]), "what is given stays"


def sizes(views: int = 2) -> st.SearchStrategy[Sizes]:
    samples = st.integers(1, 6).map(lambda samples: views * samples)
    return st.builds(Sizes, st.integers(1, 3), samples, st.integers(1, 5), st.integers(1, 6))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@given(data=st.data(), draw=st.integers(0, 1000))
@examples(4)
def test_gradients_of_outputs_are_autograds(objective: Any, data: st.DataObject, draw: int) -> None:
    drawn = data.draw(sizes(getattr(objective, "views", 1)))
    y = targets(objective, drawn, draw)
    # The losses of data sets compute in float32, whatever they are given.
    tolerance = 2e-6 if objective in (cross_entropy, squared_error) else 1e-12
    leaves = leaves_of(drawn, draw, torch.float64)
    # Of a row that is normalized, the gradient and its rounding are divided by its norm.
    shortest = min(float(leaves[name].norm(dim=-1).min()) for name in ("features", "projections"))
    check(objective, leaves, y, tolerance / min(1.0, shortest))


@given(objective=st.sampled_from(OBJECTIVES), drawn=sizes(), draw=st.integers(0, 1000))
@examples(50)
def test_gradients_in_float32(objective: Any, drawn: Sizes, draw: int) -> None:
    y = targets(objective, drawn, draw)
    check(objective, leaves_of(drawn, draw, torch.float32), y, 2e-4)


NAMES = ("scores", "features", "projections", "prototypes", "class_means", "head_anchor")


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize(
    "edge", ["zeros", "one of zeros", "ties", "one class", "all classes", "large", "tiny"]
)
def test_gradients_at_the_edges(objective: Any, edge: str) -> None:
    """Vectors of length 0, equal ones, who is alone in its class, and who has nobody of another."""
    drawn = Sizes(2, 6, 6, 3)
    leaves = leaves_of(drawn, 3, torch.float64)
    y = targets(objective, drawn, 3)
    for name in NAMES:
        if edge == "zeros":
            leaves[name].zero_()
        elif edge == "one of zeros":
            leaves[name][:, 1] = 0.0
        elif edge == "ties":
            leaves[name][:] = leaves[name][:, :1]
        elif edge == "large":
            leaves[name].mul_(4.0)
        elif edge == "tiny":  # vectors are divided by 1e-12 then, not by their lengths
            leaves[name].mul_(2e-13)
    if objective is not squared_error and edge == "one class":
        y.fill_(2)
    if objective is not squared_error and edge == "all classes":
        y[:] = torch.arange(6)
    check(objective, leaves, y, 2e-6 if objective in (cross_entropy, squared_error) else 1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_gradients_of_a_single_sample(objective: Any) -> None:
    drawn = Sizes(2, getattr(objective, "views", 1), 3, 4)
    y = targets(objective, drawn, 5)
    check(objective, leaves_of(drawn, 5, torch.float64), y, 2e-6)


@pytest.mark.parametrize("objective", [cross_entropy, squared_error], ids=repr)
def test_losses_of_samples_by_outputs(objective: Any) -> None:
    drawn = Sizes(3, 5, 4, 2)
    leaves, y = leaves_of(drawn, 1, torch.float32), targets(objective, drawn, 1)
    found = objective.output_losses(columns(leaves), y)
    for client in range(3):
        model = Given({name: values[client] for name, values in leaves.items()})
        torch.testing.assert_close(found[client], objective.each(model, {}, y[client], y[client]))


def test_a_derived_class_may_have_another_loss() -> None:
    @dataclass(frozen=True)
    class Smoothed(CrossEntropyLoss):
        def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
            return 2 * super().__call__(model, parameters, x, y)

    smoothed = Smoothed()
    assert closed_form(cross_entropy, "output_gradients") == cross_entropy.output_gradients
    assert closed_form(smoothed, "output_gradients") is None
    mlp = architecture("mlp", {"hidden": [4]}, (3,), 2)
    assert possible_backends(mlp, smoothed) == ("vmap", "loop")


def test_what_a_model_lacks_is_said() -> None:
    leaves, y = leaves_of(Sizes(1, 2, 3, 2), 0, torch.float32), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match='"projection" to `parts`'):
        PersonalizedModelLoss().output_gradients(columns(leaves)._replace(projections=None), y)
    with pytest.raises(ValueError, match='no parameter "prototypes"; they have head'):
        PersonalizedModelLoss().output_gradients(columns(leaves)._replace(parameters={"head": y}), y)
    with pytest.raises(ValueError, match="switch on at least one"):
        PersonalizedModelLoss(False, False, False, False).output_gradients(columns(leaves), y)


# --- whole models -----------------------------------------------------------------------------------------

SHAPE, CLASSES = (1, 2, 3), 3


def decoupled(*parts: str, backbone: str = "small-mlp") -> Architecture:
    keys = {"features": 5, "projection_hidden": 7, "backbone": backbone, "parts": parts}
    return architecture("decoupled", keys, SHAPE, CLASSES)


def of_module(*layers: nn.Module, shape: tuple[int, ...] = SHAPE) -> Architecture:
    return Architecture(nn.Sequential(*layers), "own", shape)


def normalised() -> Architecture:
    """With a sequence within a sequence, and two ReLUs, one of them first."""
    inner = nn.Sequential(nn.Linear(6, 4), BatchNorm(4, eps=1e-3, momentum=0.3), nn.ReLU())
    return of_module(nn.Flatten(), nn.ReLU(), inner, nn.Flatten(), nn.Linear(4, CLASSES))


MAPL = PersonalizedModelLoss(temperature=0.3)
CASES: dict[str, tuple[Architecture, Any]] = {
    "regression": (architecture("mlp", {"hidden": [4]}, SHAPE, CLASSES), squared_error),
    "norms": (normalised(), cross_entropy),
    "decoupled": (decoupled("projection"), cross_entropy),
    "mapl": (decoupled("projection", "prototypes"), MAPL),
    "mapl, deep": (decoupled("projection", "prototypes", backbone="deep-mlp"), MAPL),
    "mapl, code": (decoupled("projection", "prototypes"), replace(MAPL, variant="code", reduction="sum")),
    "mapl, all parts": (decoupled(*PARTS), replace(MAPL, uniformity=False)),
    "alone": (decoupled("projection", "prototypes"), PersonalizedModelLoss(True, True, False, False)),
    "fedclassavg": (decoupled("head_anchor"), ContrastiveClassifier(0.3, 0.5)),
    "fedproto": (decoupled("class_means"), FeaturePrototypes()),
}


def batch(case: str, clients: int, samples: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, all of them random and variances positive, samples and targets."""
    model, objective = CASES[case]
    random = generator(clients)
    flat = torch.stack([model.initial(random) for _ in range(clients)])
    flat += 0.3 * torch.randn(flat.shape, generator=random)
    for part in model.statistics:
        if part.name.endswith("var"):
            flat[:, model.part(part.name)].abs_()
    x = torch.randn(clients, samples, *SHAPE, generator=random)
    if objective is squared_error:
        return flat, x, torch.randn(clients, samples, CLASSES, generator=random)
    views = getattr(objective, "views", 1)
    return flat, x, torch.randint(CLASSES, (clients, samples // views), generator=random).repeat(1, views)


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("other", ["vmap", "loop"])
@pytest.mark.parametrize("case", CASES)
def test_models_are_computed_as_by_autograd(case: str, other: str, clients: int) -> None:
    flat, x, y = batch(case, clients)
    dense, expected = ModelKernel(*CASES[case], "dense"), ModelKernel(*CASES[case], other)
    got, wanted = dense.training_gradients(flat, x, y), expected.training_gradients(flat, x, y)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    for part in CASES[case][0].slices:
        own, theirs = [each[0][:, part.offset : part.offset + part.numel] for each in (got, wanted)]
        assert theirs.any() or not own.any(), "what has no gradient has zeros"
    torch.testing.assert_close(dense.outputs(flat, x), expected.outputs(flat, x), rtol=1e-5, atol=1e-6)
    shared = dense.outputs(flat, x[:1])
    torch.testing.assert_close(shared, expected.outputs(flat, x[:1]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dense.losses(flat, x, y), expected.losses(flat, x, y), rtol=1e-5, atol=1e-6)
    for rate in (0.1, torch.rand(clients, 1)):
        moved, theirs = flat.clone(), flat.clone()
        dense.descend(moved, x, y, rate)
        expected.descend(theirs, x, y, rate)
        torch.testing.assert_close(moved, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["regression", "norms", "decoupled"])
def test_weights_of_samples(case: str) -> None:
    flat, x, y = batch(case, 3)
    weights = torch.rand(y.shape[:2], generator=generator(4))
    weights[:, 2] = 0.0
    dense, expected = ModelKernel(*CASES[case], "dense"), ModelKernel(*CASES[case], "loop")
    got = dense.training_gradients(flat, x, y, weights)
    torch.testing.assert_close(got, expected.training_gradients(flat, x, y, weights), rtol=1e-4, atol=1e-5)
    each = dense.losses_of_each(flat, x, y)
    torch.testing.assert_close(each, expected.losses_of_each(flat, x, y), rtol=1e-5, atol=1e-6)


def test_losses_that_are_no_means_have_no_weights() -> None:
    flat, x, y = batch("mapl", 2)
    with pytest.raises(ValueError, match="PersonalizedModelLoss has no method each"):
        ModelKernel(*CASES["mapl"], "dense").gradients(flat, x, y, torch.ones(2, 6))


OPTIMIZERS = [
    Optimizer(),
    Optimizer(clip_norm=0.1),
    Optimizer("sgd", weight_decay=0.1),
    Optimizer("sgd", momentum=0.9, dampening=0.3),
    Optimizer("sgd", momentum=0.5, nesterov=True, weight_decay=0.1),
    # With an epsilon as large as usual gradients: otherwise rounding would turn into steps of full size.
    Optimizer("adam", epsilon=0.01),
    Optimizer("adam", betas=(0.5, 0.9), epsilon=0.01, weight_decay=0.1),
    Optimizer("adamw", epsilon=0.01, weight_decay=0.2, clip_norm=1.0),
]


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [*[(case, OPTIMIZERS[-1]) for case in CASES], *[("mapl", optimizer) for optimizer in OPTIMIZERS[:-1]]],
    ids=str,
)
def test_training_is_that_of_the_other_ways(case: str, optimizer: Optimizer) -> None:
    """Clients with different numbers of steps and rates, in one call, half of them pulled."""
    model, objective = CASES[case]
    views, counts = getattr(objective, "views", 1), [6, 8, 7]

    def trained(way: str) -> Tensor:
        data = client_data(counts, shape=SHAPE)
        if objective is squared_error:
            data.train.y = torch.randn(len(data.train.y), CLASSES, generator=generator(1)).to(
                data.train.y.device
            )
        engine = new_engine(data, backend=way)
        operation = engine.training(
            engine.kernel(model, objective), optimizer, BatchSampler(data.train, 4, "shuffled", None, views)
        )
        starts = batch(case, len(counts))[0]
        anchor, made = engine.vector(starts[0] * 0.5), []
        for client, start in enumerate(starts):
            pulled = client % 2
            rate, key = 0.005 + 0.001 * client, engine.draw_key(client, "train")
            job = TrainJob(client, key, 0, 3 + client, rate, 0, (0.3,) * pulled)
            made.append(engine.train(operation, engine.vector(start), job, anchors=[anchor] * pulled)[0])
        rows = engine.rows(made)
        assert engine.statistics.batches == (3 if way == "loop" else 1)
        return rows

    got = trained("dense")
    for way in ("vmap", "loop"):
        torch.testing.assert_close(got, trained(way), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["parameters", "samples"])
@pytest.mark.parametrize("case", CASES)
def test_numbers_that_are_none_stay_with_their_client(case: str, where: str, bad: float) -> None:
    """And they are none there, as by autograd."""
    flat, x, y = batch(case, 3)
    dense, expected = ModelKernel(*CASES[case], "dense"), ModelKernel(*CASES[case], "vmap")
    before = dense.gradients(flat, x, y)
    (flat if where == "parameters" else x)[1] = bad
    got, wanted = dense.gradients(flat, x, y), expected.gradients(flat, x, y)
    assert torch.equal(got[::2], before[::2])
    assert torch.equal(got[::2].isfinite(), wanted[::2].isfinite())
    assert got[1].isfinite().all() == wanted[1].isfinite().all()


@pytest.mark.parametrize("case", ["norms", "mapl"])
def test_a_batch_norm_refuses_a_single_sample(case: str) -> None:
    flat, x, y = batch(case, 2)
    with pytest.raises(UserError, match="needs several samples"):
        ModelKernel(*CASES[case], "dense").gradients(flat, x[:, :1], y[:, :1])


@pytest.mark.parametrize("case", CASES)
def test_bfloat16(case: str) -> None:
    flat, x, y = batch(case, 3)
    coarse, exact = (ModelKernel(*CASES[case], "dense", way) for way in ("bfloat16", "float32"))
    for one, other in zip(
        coarse.training_gradients(flat, x, y), exact.training_gradients(flat, x, y), strict=True
    ):
        if one is not None and other is not None:
            assert one.dtype == torch.float32
            assert (one - other).norm() <= 0.1 * other.norm()


def test_what_a_loss_takes_of_parameters_itself_is_not_rounded() -> None:
    """The pull of the head, whose own gradient is bfloat16."""
    model, _ = CASES["fedclassavg"]
    flat, x, y = batch("fedclassavg", 2)
    found = {
        (precision, rho): ModelKernel(model, ContrastiveClassifier(rho), "dense", precision).gradients(
            flat, x, y
        )
        for precision in ("bfloat16", "float32")
        for rho in (0.0, 0.7)
    }
    coarse, exact = [found[way, 0.7] - found[way, 0.0] for way in ("bfloat16", "float32")]
    torch.testing.assert_close(coarse, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_device_is_given_as_much_to_do_however_many_clients_train(case: str) -> None:
    """And no call waits for it: on tensors without numbers that would be an error."""
    found = set()
    for clients in (2, 8):
        flat, x, y = [each.to("meta") for each in batch(case, clients)]
        kernel, rates = ModelKernel(*CASES[case], "dense"), torch.full((clients, 1), 0.1, device="meta")
        kernel.descend(flat, x, y, rates)  # what is copied to a device once is there
        with Counted() as counted:
            kernel.training_gradients(flat, x, y)
            kernel.descend(flat, x, y, rates)
        found.add((counted.operations, counted.copies))
    assert len(found) == 1


class Doubled(nn.Linear):
    def reset(self, parameters: Mapping[str, Tensor], random: torch.Generator) -> None:
        """Nobody draws it here."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    layer = nn.Linear(6, CLASSES)
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


def tied() -> list[nn.Module]:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return [nn.Flatten(), first, second, nn.Linear(6, CLASSES)]


TWICE = nn.Linear(6, 6)
OTHERS: dict[str, Callable[[], Architecture]] = {
    "another layer": lambda: of_module(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES)),
    "a derived layer": lambda: of_module(nn.Flatten(), Doubled(6, CLASSES)),
    "a hook": lambda: of_module(nn.Flatten(), hooked()),
    "no bias": lambda: of_module(nn.Flatten(), nn.Linear(6, CLASSES, bias=False)),
    "tied weights": lambda: of_module(*tied()),
    "a layer used twice": lambda: of_module(nn.Flatten(), TWICE, TWICE, nn.Linear(6, CLASSES)),
    "no flattening": lambda: of_module(nn.Linear(3, CLASSES)),
    "another flattening": lambda: of_module(nn.Flatten(2), nn.Linear(6, CLASSES)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_models_of_other_things_are_left_to_the_other_ways(other: str) -> None:
    assert possible_backends(OTHERS[other](), cross_entropy) == ("vmap", "loop")


def test_a_loss_of_representations_takes_a_model_that_has_them() -> None:
    model = architecture("mlp", {"hidden": [4]}, SHAPE, CLASSES)
    assert possible_backends(model, cross_entropy) == ("dense", "vmap", "loop")
    assert possible_backends(model, MAPL) == ("vmap", "loop")
    assert possible_backends(of_module(nn.Linear(3, CLASSES), shape=(3,)), cross_entropy)[0] == "dense"

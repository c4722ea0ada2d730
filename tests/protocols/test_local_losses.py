"""The objectives of MAPL, FedClassAvg and FedProto on a small decoupled model."""

import itertools
import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from protocols.framework.objectives import Embedding, Model, Objective, Parameters
from protocols.shared.contrastive import Variant, prototype_contrast, supervised_contrastive, uniformity
from protocols.shared.local_losses import ContrastiveClassifier, FeaturePrototypes, PersonalizedModelLoss

INPUTS, FEATURES, CLASSES = 5, 4, 3
SHAPES = {
    "backbone.weight": (FEATURES, INPUTS),
    "projection.weight": (FEATURES, FEATURES),
    "head.weight": (CLASSES, FEATURES),
    "head.bias": (CLASSES,),
    "head_anchor": (CLASSES * (FEATURES + 1),),
    "class_means": (CLASSES, FEATURES),
    "prototypes": (CLASSES, FEATURES),
}


class Decoupled:
    """Linear backbone, projection and head; parameters are one flat vector."""

    def __init__(self, projects: bool = True) -> None:
        self.projects = projects

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        assert isinstance(parameters, Tensor)
        sizes = [math.prod(shape) for shape in SHAPES.values()]
        return dict(zip(SHAPES, parameters.split(sizes), strict=True))[name].view(SHAPES[name])

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        z = x @ self.tensor(parameters, "backbone.weight").T
        p = z @ self.tensor(parameters, "projection.weight").T if self.projects else None
        weight, bias = self.tensor(parameters, "head.weight"), self.tensor(parameters, "head.bias")
        return Embedding(z, p, functional.linear(z.relu(), weight, bias))

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        return self.embed(parameters, x).scores


MODEL: Model = Decoupled()
WIDTH = sum(math.prod(shape) for shape in SHAPES.values())


def place(name: str) -> slice:
    """Where a parameter lies in the flat vector."""
    names = list(SHAPES)
    start = sum(math.prod(SHAPES[before]) for before in names[: names.index(name)])
    return slice(start, start + math.prod(SHAPES[name]))


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y = random(1, 8, INPUTS), torch.tensor([0, 2, 1, 2]).repeat(2)  # two views of four samples
PARAMETERS = random(2, WIDTH)


def without(name: str) -> Tensor:
    """The parameters with zeros in this place."""
    vector = PARAMETERS.clone()
    vector[place(name)] = 0
    return vector


def cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """-log of the softmax at each label [B]."""
    return -(scores.exp() / scores.exp().sum(dim=1, keepdim=True)).log()[torch.arange(len(y)), y]


OBJECTIVES: list[Objective] = [
    PersonalizedModelLoss(),
    PersonalizedModelLoss(temperature=0.5, variant="code", reduction="sum"),
    ContrastiveClassifier(),
    ContrastiveClassifier(pull="squared", cross_entropy_views=2),
    ContrastiveClassifier(pull="code", variant="code"),
    FeaturePrototypes(),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_gradients_are_right_alone_and_for_many_clients_at_once(objective: Objective) -> None:
    vectors = torch.stack(
        [PARAMETERS, random(3, WIDTH), without("head_anchor"), without("class_means")[:WIDTH]]
    )
    x, y = random(4, 4, 8, INPUTS), torch.stack([Y, Y.flip(0), (Y + 1) % 3, Y])
    gradient = torch.func.grad(lambda vector, x, y: objective(MODEL, vector, x, y))
    batched = torch.func.vmap(gradient)(vectors, x, y)
    assert torch.isfinite(batched).all()
    for client in range(4):
        torch.testing.assert_close(batched[client], gradient(vectors[client], x[client], y[client]))
    free = PARAMETERS.clone().requires_grad_()
    trained = torch.ones(WIDTH, dtype=torch.bool)
    trained[place("head_anchor")] = False
    trained[place("class_means")] = False
    trained[place("prototypes")] = isinstance(objective, PersonalizedModelLoss)

    def loss(vector: Tensor) -> Tensor:
        return objective(MODEL, torch.where(trained, vector, PARAMETERS), X, Y)

    assert torch.autograd.gradcheck(loss, (free,))
    found = gradient(PARAMETERS, X, Y)
    assert (found[~trained] == 0).all() and (found[place("backbone.weight")] != 0).all()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_equal_settings_are_equal_objects(objective: Objective) -> None:
    again = replace(objective)  # type: ignore[type-var]
    assert again is not objective and again == objective and hash(again) == hash(objective)
    assert len({*OBJECTIVES, again}) == len(OBJECTIVES)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_bfloat16_outputs_are_widened(objective: Objective) -> None:
    vector, x = PARAMETERS.float(), X.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MODEL.forward(vector, x).dtype == torch.bfloat16
        loss = objective(MODEL, vector, x, Y)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(objective(MODEL, vector, x, Y).item(), rel=0.03)


class Coarse(Decoupled):
    """Its outputs are rounded to bfloat16, and given in that type if `narrow`."""

    def __init__(self, narrow: bool) -> None:
        super().__init__()
        self.narrow = narrow

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        features, projections, scores = super().embed(parameters, x)
        assert projections is not None
        rounded = Embedding(features.bfloat16(), projections.bfloat16(), scores.bfloat16())
        return (
            rounded
            if self.narrow
            else Embedding(
                features.bfloat16().float(), projections.bfloat16().float(), scores.bfloat16().float()
            )
        )


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_nothing_is_computed_in_bfloat16(objective: Objective) -> None:
    vector, x = PARAMETERS.float(), X.float()
    assert objective(Coarse(True), vector, x, Y) == objective(Coarse(False), vector, x, Y)


# --- MAPL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("switches", list(itertools.product((True, False), repeat=4))[:-1])
def test_personalized_loss_is_the_sum_of_what_is_switched_on(
    switches: tuple[bool, bool, bool, bool],
) -> None:
    objective = PersonalizedModelLoss(*switches, temperature=0.3, prototype_temperature=0.7)
    embedding, prototypes = MODEL.embed(PARAMETERS, X), MODEL.tensor(PARAMETERS, "prototypes")
    assert embedding.projections is not None
    parts = [
        supervised_contrastive(embedding.projections, Y, 0.3),
        cross_entropy(embedding.scores, Y).mean(),
        prototype_contrast(embedding.projections, Y, prototypes, 0.7),
        uniformity(prototypes),
    ]
    expected = sum(part for part, on in zip(parts, switches, strict=True) if on)
    torch.testing.assert_close(objective(MODEL, PARAMETERS, X, Y), expected)


def test_personalized_loss_to_the_letter_of_paper_and_code() -> None:
    embedding, prototypes = MODEL.embed(PARAMETERS, X), MODEL.tensor(PARAMETERS, "prototypes")
    rows = embedding.projections
    assert rows is not None
    expected = (
        8 * supervised_contrastive(rows, Y, 100.0)
        + cross_entropy(embedding.scores, Y).sum()
        + prototype_contrast(rows, Y, prototypes, 100.0)
        + uniformity(prototypes)
    )
    paper = PersonalizedModelLoss(reduction="sum")
    torch.testing.assert_close(paper(MODEL, PARAMETERS, X, Y), expected)
    expected = (
        supervised_contrastive(rows, Y, 100.0, "code")
        + cross_entropy(embedding.scores, Y).mean()
        + prototype_contrast(rows, Y, prototypes, 100.0, "code")
        + uniformity(prototypes, 100.0, "code")
    )
    code = PersonalizedModelLoss(variant="code")
    torch.testing.assert_close(code(MODEL, PARAMETERS, X, Y), expected)


def test_personalized_loss_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="switch on at least one"):
        PersonalizedModelLoss(False, False, False, False)(MODEL, PARAMETERS, X, Y)
    with pytest.raises(ValueError, match='"projection"'):
        PersonalizedModelLoss()(Decoupled(projects=False), PARAMETERS, X, Y)


# --- FedClassAvg --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pull", ("norm", "squared", "code"))
@pytest.mark.parametrize("views", (1, 2))
def test_contrastive_classifier_is_its_formula(
    pull: Literal["norm", "squared", "code"], views: Literal[1, 2]
) -> None:
    variant: Variant = "paper" if views == 1 else "code"
    objective = ContrastiveClassifier(0.3, 0.5, pull, views, variant)
    embedding = MODEL.embed(PARAMETERS, X)
    anchor = PARAMETERS[place("head_anchor")].tolist()
    head = [*PARAMETERS[place("head.weight")].tolist(), *PARAMETERS[place("head.bias")].tolist()]
    squares = [(a - b) ** 2 for a, b in zip(head, anchor, strict=True)]
    distance = {
        "norm": math.sqrt(sum(squares)),
        "squared": sum(squares) / 2,
        "code": sum(squares[:12]) / 24 + sum(squares[12:]) / 6,
    }[pull]
    expected = (
        supervised_contrastive(embedding.features, Y, 0.5, variant)
        + cross_entropy(embedding.scores, Y)[: 4 * views].mean()
        + 0.3 * distance
    )
    torch.testing.assert_close(objective(MODEL, PARAMETERS, X, Y), expected)


@pytest.mark.parametrize("pull", ("norm", "squared", "code"))
def test_no_anchor_and_an_anchor_where_the_head_is_do_not_pull(
    pull: Literal["norm", "squared", "code"],
) -> None:
    there = PARAMETERS.clone()
    there[place("head_anchor")] = torch.cat([there[place("head.weight")], there[place("head.bias")]])
    for vector in (without("head_anchor"), there):
        found, free = (
            torch.func.grad_and_value(
                lambda v, rho=rho: ContrastiveClassifier(rho=rho, pull=pull)(MODEL, v, X, Y)
            )(vector)
            for rho in (5.0, 0.0)
        )
        torch.testing.assert_close(found, free)


# --- FedProto -----------------------------------------------------------------------------------------------


def test_feature_prototypes_is_its_formula_and_skips_unknown_classes() -> None:
    vector = PARAMETERS.clone()
    start = place("class_means").start
    vector[start : start + FEATURES] = 0  # class 0 is unknown
    embedding, prototypes = MODEL.embed(vector, X), MODEL.tensor(vector, "class_means")
    total = 0.0
    for row, label in zip(embedding.features, Y.tolist(), strict=True):
        if label != 0:
            total += sum((a - b) ** 2 for a, b in zip(row.tolist(), prototypes[label].tolist(), strict=True))
    expected = cross_entropy(embedding.scores, Y).mean() + 2.5 * total / (8 * FEATURES)
    torch.testing.assert_close(FeaturePrototypes(2.5)(MODEL, vector, X, Y), expected)


def test_feature_prototypes_without_any_is_cross_entropy() -> None:
    vector = without("class_means")
    expected = cross_entropy(MODEL.forward(vector, X), Y).mean()
    torch.testing.assert_close(FeaturePrototypes(9.0)(MODEL, vector, X, Y), expected)


def test_views() -> None:
    assert [objective.views for objective in OBJECTIVES] == [2, 2, 2, 2, 2, 1]

"""The losses against slow loops written from the papers' formulas, and against numbers found by hand."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from protocols.shared.contrastive import (
    Reduction,
    Variant,
    normalized,
    prototype_contrast,
    supervised_contrastive,
    uniformity,
)
from tests.draws import examples

VARIANTS: tuple[Variant, ...] = ("paper", "code")
REDUCTIONS: tuple[Reduction, ...] = ("mean", "sum")
TEMPERATURES = (0.07, 0.5, 100.0)


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(seed: int, count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


# --- the formulas, row by row -------------------------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return a.dot(b) / (a.dot(a).sqrt() * b.dot(b).sqrt())


def contrastive_by_loops(p: Tensor, y: Tensor, tau: float, variant: Variant, reduction: Reduction) -> Tensor:
    total = p.new_zeros(())
    for q in range(len(p)):
        likeness = {m: (cosine(p[q], p[m]) / tau).exp() for m in range(len(p)) if m != q}
        positives = [r for r in likeness if y[r] == y[q]]
        if not positives:
            continue
        everybody = torch.stack(list(likeness.values())).sum()
        if variant == "paper":
            for r in positives:
                total = total - (likeness[r] / everybody).log() / len(positives)
        else:
            total = total - (torch.stack([likeness[r] for r in positives]).sum() / everybody).log()
    return total / len(p) if reduction == "mean" else total


def prototypes_by_loops(p: Tensor, y: Tensor, xi: Tensor, tau: float, variant: Variant) -> Tensor:
    total = p.new_zeros(())
    for q in range(len(p)):
        if variant == "paper":
            likeness = [(cosine(p[q], prototype) / tau).exp() for prototype in xi]
        else:  # the authors' code divides the exponentials by tau
            likeness = [(p[q] / p[q].dot(p[q]).sqrt()).dot(prototype).exp() / tau for prototype in xi]
        total = total - (likeness[int(y[q])] / torch.stack(likeness).sum()).log()
    return total / len(p)


def uniformity_by_loops(xi: Tensor, tau: float, variant: Variant) -> Tensor:
    total = xi.new_zeros(())
    for k in range(len(xi)):
        for r in range(len(xi)):
            if r != k:
                total = total + (
                    cosine(xi[k], xi[r]) if variant == "paper" else (xi[k].dot(xi[r]) / tau).exp()
                )
    return total / len(xi)


def agree(ours: Callable[[Tensor], Tensor], reference: Callable[[Tensor], Tensor], at: Tensor) -> None:
    """Values and gradients; the latter against autograd of the loops and against finite differences."""
    point = at.clone().requires_grad_()
    value = reference(point)
    torch.testing.assert_close(ours(at), value.detach(), rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(value, point)
    assert gradient.abs().max() > 1e-6  # else there was nothing to compare
    torch.testing.assert_close(torch.func.grad(ours)(at), gradient, rtol=1e-8, atol=1e-11)
    assert torch.autograd.gradcheck(ours, (point,))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tau", TEMPERATURES)
def test_supervised_contrastive_is_its_formula(tau: float, variant: Variant, reduction: Reduction) -> None:
    y = torch.tensor([0, 1, 2, 0, 0, 1, 3])  # 2 and 3 are alone in their classes
    agree(
        lambda p: supervised_contrastive(p, y, tau, variant, reduction),
        lambda p: contrastive_by_loops(p, y, tau, variant, reduction),
        rows(1, 7, 4),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tau", TEMPERATURES)
def test_prototype_contrast_is_its_formula(tau: float, variant: Variant) -> None:
    p, y, xi = rows(2, 6, 4), labels(2, 6, 3), rows(3, 3, 4)
    agree(
        lambda p: prototype_contrast(p, y, xi, tau, variant),
        lambda p: prototypes_by_loops(p, y, xi, tau, variant),
        p,
    )
    agree(
        lambda xi: prototype_contrast(p, y, xi, tau, variant),
        lambda xi: prototypes_by_loops(p, y, xi, tau, variant),
        xi,
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tau", (0.5, 100.0))
def test_uniformity_is_its_formula(tau: float, variant: Variant) -> None:
    agree(
        lambda xi: uniformity(xi, tau, variant),
        lambda xi: uniformity_by_loops(xi, tau, variant),
        rows(4, 5, 3),
    )


@examples(30)
@given(
    st.integers(2, 9), st.integers(1, 4), st.integers(0, 999), st.sampled_from(VARIANTS), st.floats(0.05, 200)
)
def test_supervised_contrastive_of_any_batch(
    count: int, classes: int, seed: int, variant: Variant, tau: float
) -> None:
    p, y = rows(seed, count, 3), labels(seed, count, classes)
    expected = contrastive_by_loops(p, y, tau, variant, "mean")
    torch.testing.assert_close(supervised_contrastive(p, y, tau, variant), expected, rtol=1e-9, atol=1e-9)


# --- by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_equal_projections(tau: float) -> None:
    """All cosines are 1: each of the 7 others is as likely."""
    p, y = torch.ones(8, 5), torch.tensor([0, 0, 0, 1, 0, 0, 0, 1])
    torch.testing.assert_close(supervised_contrastive(p, y, tau), torch.tensor(math.log(7)))
    # 6 rows with 5 positives each, 2 rows with 1.
    by_hand = (6 * math.log(7 / 5) + 2 * math.log(7)) / 8
    torch.testing.assert_close(supervised_contrastive(p, y, tau, "code"), torch.tensor(by_hand))


def test_two_classes_that_point_in_opposite_directions() -> None:
    """Two rows a class: one positive of cosine 1, two negatives of cosine -1."""
    p, y, tau = torch.tensor([[1.0, 0], [-2.0, 0], [3.0, 0], [-4.0, 0]]), torch.tensor([0, 1, 0, 1]), 0.5
    by_hand = math.log(1 + 2 * math.exp(-2 / tau))
    for variant in VARIANTS:
        torch.testing.assert_close(supervised_contrastive(p, y, tau, variant), torch.tensor(by_hand))
    torch.testing.assert_close(supervised_contrastive(p, y, tau, reduction="sum"), torch.tensor(4 * by_hand))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", (1, 3))
def test_rows_without_positives_contribute_nothing(count: int, variant: Variant) -> None:
    p, y = rows(5, count, 4), torch.arange(count)
    assert supervised_contrastive(p, y, 0.1, variant) == 0
    assert (torch.func.grad(lambda p: supervised_contrastive(p, y, 0.1, variant))(p) == 0).all()


def test_projections_of_zero_give_numbers() -> None:
    p, y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])
    for variant in VARIANTS:
        loss = partial(supervised_contrastive, labels=y, temperature=0.1, variant=variant)
        assert torch.isfinite(loss(p)) and torch.isfinite(torch.func.grad(loss)(p)).all()


def simplex(classes: int) -> Tensor:
    """A regular simplex: `classes` unit vectors with cosines -1/(classes - 1)."""
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return normalized(centred)


@pytest.mark.parametrize("classes", (2, 3, 10))
def test_uniformity_by_hand(classes: int) -> None:
    corners = simplex(classes) * torch.arange(1, classes + 1)[:, None]  # of any length
    assert uniformity(corners).item() == pytest.approx(-1)
    assert uniformity(torch.eye(classes)).item() == 0
    assert uniformity(torch.ones(classes, 4)).item() == pytest.approx(classes - 1)
    assert uniformity(torch.eye(classes), 100.0, "code").item() == pytest.approx(classes - 1)
    assert uniformity(torch.ones(classes, 4), 2.0, "code").item() == pytest.approx(
        (classes - 1) * math.exp(2)
    )


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_prototype_contrast_by_hand(tau: float) -> None:
    """Projections on the corners of a simplex of 4, prototypes there: K - 1 others of cosine -1/(K - 1)."""
    y = torch.tensor([2, 0, 1, 3])
    corners = simplex(4)
    by_hand = math.log(1 + 3 * math.exp((-1 / 3 - 1) / tau))
    assert prototype_contrast(5 * corners[y], y, 7 * corners, tau).item() == pytest.approx(by_hand)
    # In the code's form the prototypes' length, here 7, is in the place of the temperature.
    by_hand = math.log(1 + 3 * math.exp(7 * (-1 / 3 - 1)))
    assert prototype_contrast(5 * corners[y], y, 7 * corners, tau, "code").item() == pytest.approx(by_hand)


# --- as the engine calls them -------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_of_many_clients_at_once(variant: Variant) -> None:
    p, xi = rows(6, 3, 8, 4), rows(7, 3, 5, 4)
    y = torch.stack([labels(seed, 8, 5) for seed in range(3)])

    def total(p: Tensor, xi: Tensor, y: Tensor) -> Tensor:
        return (
            supervised_contrastive(p, y, 0.3, variant)
            + prototype_contrast(p, y, xi, 0.3, variant)
            + uniformity(xi, 0.3, variant)
        )

    batched = torch.func.vmap(torch.func.grad(total, argnums=(0, 1)))(p, xi, y)
    for client in range(3):
        alone = torch.func.grad(total, argnums=(0, 1))(p[client], xi[client], y[client])
        for together, single in zip(batched, alone, strict=True):
            torch.testing.assert_close(together[client], single)


@pytest.mark.parametrize("variant", VARIANTS)
def test_autocast_takes_no_digits_away(variant: Variant) -> None:
    p, y, xi = rows(8, 16, 32).float(), labels(8, 16, 4), rows(9, 4, 32).float()

    def losses() -> list[Tensor]:
        return [
            supervised_contrastive(p, y, 100.0, variant),
            prototype_contrast(p, y, xi, 100.0, variant),
            uniformity(xi, 100.0, variant),
        ]

    exact = losses()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (p @ p.T).dtype == torch.bfloat16
        assert losses() == exact
    assert supervised_contrastive(p.bfloat16(), y, 100.0, variant).dtype == torch.float32

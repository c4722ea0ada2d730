"""Low-rank adapters of different ranks: sums of their products, and the best factors of such a sum.

An adapter adds scale x A B to a layer, with A [inputs, rank] and B [rank, outputs]. All functions work on
torch tensors, as for one client, and can be passed to `Node.apply`. Factors are vectors: A and B of each
adapter, row by row, one adapter after the other. Products are vectors, too: a matrix [inputs, outputs] for
each adapter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protocols.framework.objectives import Model
from protocols.framework.requirements import Requirement
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import shares

Sizes = tuple[tuple[int, int, int, float], ...]
"""Inputs, rank, outputs and scale of each adapter of a model, in the order of the layers."""
Places = tuple[tuple[int, int, int], ...]
"""Offsets of A, B and the merged products of each adapter in the model's vector; -1 if there are no merged
products."""

LORA = Requirement(
    "model.name",
    lambda name: name == "lora" or ":" in name,
    'averages products of low-rank adapters; must be "lora", or your own model with adapters',
)


@dataclass(frozen=True)
class TrainedFactors:
    """Trained factors of a client, their sizes, and the number of samples they were trained on."""

    factors: Vector
    sizes: Sizes
    samples: int


def sizes_and_places(model: Model | None, method: str, *, merged: bool = False) -> tuple[Sizes, Places]:
    """Return the sizes of a model's adapters, and their places in its vector.

    merged: the adapters need a matrix of merged products. Raises ValueError for a model without adapters,
    with other trained parameters, or without a needed matrix.
    """
    assert model is not None
    if not model.adapters:
        raise ValueError(
            f'{method} averages low-rank adapters, but the model has none: use model.name = "lora", or '
            "modules with the parameters lora_a [inputs, rank] and lora_b [rank, outputs]"
        )
    own = {part.name for each in model.adapters for part in (each.a, each.b, each.merged) if part is not None}
    if others := [part.name for part in model.slices if part.name not in own]:
        raise ValueError(
            f"{method} exchanges only adapters, but the model also trains {others[0]}: set its requires_grad "
            "to False"
        )
    if merged and any(each.merged is None for each in model.adapters):
        raise ValueError(
            f"{method} merges products into the model: each module with lora_a and lora_b also needs the "
            'parameter merged [inputs, outputs], and untrained = ("merged",)'
        )
    sizes, places = [], []
    for each in model.adapters:
        (inputs, rank), (_, outputs) = each.a.shape, each.b.shape
        sizes.append((inputs, rank, outputs, each.scale))
        places.append((each.a.offset, each.b.offset, -1 if each.merged is None else each.merged.offset))
    return tuple(sizes), tuple(places)


def weighted_factors(answers: Mapping[str, TrainedFactors]) -> tuple[list[float], list[Vector], list[Sizes]]:
    """Return the weights, the factors and the sizes of the answers, each list in the order of the sizes.

    The weight of an answer is its share of the samples. Raises ValueError if the adapters belong to different
    layers.
    """
    # Sorted, so that the same sizes in another order are the same function.
    received = sorted(answers.values(), key=lambda answer: answer.sizes)
    layers = [[(inputs, outputs) for inputs, _, outputs, _ in answer.sizes] for answer in received]
    if any(each != layers[0] for each in layers):
        raise ValueError(
            "clients have adapters on different layers: the models of all [[model_group]] need the same base "
            "and the same targets"
        )
    weights = shares([answer.samples for answer in received], "samples")
    return weights, [answer.factors for answer in received], [answer.sizes for answer in received]


def _factors(vector: Tensor, sizes: Sizes) -> Iterator[tuple[Tensor, Tensor]]:
    offset = 0
    for inputs, rank, outputs, _ in sizes:
        middle, end = offset + inputs * rank, offset + (inputs + outputs) * rank
        yield vector[offset:middle].reshape(inputs, rank), vector[middle:end].reshape(rank, outputs)
        offset = end


def concatenated_factors(model: Tensor, *, sizes: Sizes, places: Places) -> Tensor:
    """Return the factors A and B of all adapters in a model, in one vector."""
    pieces = []
    for (inputs, rank, outputs, _), (a, b, _) in zip(sizes, places, strict=True):
        pieces += [model[a : a + inputs * rank], model[b : b + rank * outputs]]
    return torch.cat(pieces)


def with_factors(model: Tensor, factors: Tensor, *, sizes: Sizes, places: Places) -> Tensor:
    """Return a copy of a model in which these factors replace the factors of the adapters."""
    changed = model.clone()
    for (a, b), (at_a, at_b, _) in zip(_factors(factors, sizes), places, strict=True):
        changed[at_a : at_a + a.numel()] = a.flatten()
        changed[at_b : at_b + b.numel()] = b.flatten()
    return changed


def sum_of_products(weights: Tensor, *factors: Tensor, sizes: tuple[Sizes, ...]) -> Tensor:
    """Return sum_i weights[i] scale_i A_i B_i for each adapter, as a vector of products.

    The weighted A_i are stacked side by side, and the B_i one below the other, as in FLoRA: the product of
    the stacks is the sum, exactly.
    """
    each = [list(_factors(vector, own)) for vector, own in zip(factors, sizes, strict=True)]
    products = []
    for layer in range(len(sizes[0])):
        scales = [own[layer][3] for own in sizes]
        tall = torch.cat([each[i][layer][0] * (weights[i] * scale) for i, scale in enumerate(scales)], dim=1)
        wide = torch.cat([own[layer][1] for own in each], dim=0)
        products.append((tall @ wide).flatten())
    return torch.cat(products)


def with_products(model: Tensor, products: Tensor, *, sizes: Sizes, places: Places, add: bool) -> Tensor:
    """Return a model with `products` as its merged products; add: in addition to its present ones."""
    changed, offset = model.clone(), 0
    for (inputs, _, outputs, _), (_, _, at) in zip(sizes, places, strict=True):
        own = products[offset : offset + inputs * outputs]
        changed[at : at + inputs * outputs] = model[at : at + inputs * outputs] + own if add else own
        offset += inputs * outputs
    return changed


def best_factors(products: Tensor, *, sizes: Sizes) -> Tensor:
    """Return the factors of these sizes whose products are closest to `products`, by the SVD.

    A are the left singular vectors, and scale x B the right ones times the singular values. The sign of a
    pair of vectors, which differs between machines, is chosen so that the largest entry of the left one is
    positive. Products that are not finite have factors of NaN.
    """
    pieces, offset = [], 0
    for inputs, rank, outputs, scale in sizes:
        # In float64, so that rounding hardly depends on the machine.
        matrix = products[offset : offset + inputs * outputs].reshape(inputs, outputs).double()
        offset += inputs * outputs
        finite = torch.isfinite(matrix).all()
        left, values, right = torch.linalg.svd(torch.where(finite, matrix, 0.0), full_matrices=False)
        largest = left.gather(0, left.abs().argmax(dim=0, keepdim=True)).squeeze(0)
        signs = torch.where(largest < 0, -1.0, 1.0)
        a, b = left * signs, (values * signs)[:, None] * right / scale
        missing = max(0, rank - len(values))  # ranks beyond the size of the layer stay unused
        a = torch.nn.functional.pad(a[:, :rank], (0, missing))
        b = torch.nn.functional.pad(b[:rank], (0, 0, 0, missing))
        pieces += [torch.where(finite, each.flatten(), torch.nan) for each in (a, b)]
    return torch.cat(pieces).float()


def refit_factors(factors: Tensor, own: Tensor, *, given: Sizes, sizes: Sizes) -> Tensor:
    """Convert factors of the sizes `given` to factors of the sizes `sizes`.

    A smaller rank keeps the first columns of A and rows of B; in factors from `best_factors`, these are the
    best ones. A larger rank adds columns from the A of `own`, and rows of 0 in B.
    """
    pieces: list[Any] = []
    changes = zip(_factors(factors, given), _factors(own, sizes), given, sizes, strict=True)
    for (a, b), (own_a, own_b), before, size in changes:
        kept, rank = min(before[1], size[1]), size[1]
        a = torch.cat([a[:, :kept], own_a[:, kept:rank]], dim=1)
        b = torch.cat([b[:kept] * (before[3] / size[3]), torch.zeros_like(own_b[kept:])], dim=0)
        pieces += [a.flatten(), b.flatten()]
    return torch.cat(pieces)


def sizes_of_largest_rank(sizes: Sequence[Sizes]) -> Sizes:
    """Return the sizes with the largest sum of ranks."""
    return max(sizes, key=lambda each: (sum([rank for _, rank, _, _ in each]), each))

"""Gradients of losses with respect to the outputs of models for a batch, in closed form, for N clients.

Batches are in columns: outputs are [N, width, B], and labels [N, B]. Each function returns the gradient of
`times` times the loss of the same name, client by client, and computes in the precision of its arguments.
"""

import torch
from torch import Tensor

from protocols.framework.objectives import cross_entropy_gradient
from protocols.shared.contrastive import Reduction, Variant

_LENGTH_MIN = 1e-12  # as of torch.nn.functional.normalize


class Directions:
    """Vectors divided by their lengths, `unit`; a vector of zeros stays zero. `dim`: the vectors' dimension.

    If they are not `divided`, `unit` contains the vectors themselves.
    """

    def __init__(self, vectors: Tensor, dim: int, *, divided: bool = True) -> None:
        self._dim, self._divided = dim, divided
        self.unit = vectors
        if not divided:
            return
        self._length = torch.linalg.vector_norm(vectors, dim=dim, keepdim=True)
        self._divisor = self._length.clamp(min=_LENGTH_MIN)
        self.unit = vectors / self._divisor

    def back(self, of_unit: Tensor, *more: Tensor) -> Tensor:
        """Return the gradient with respect to the vectors.

        of_unit, more: terms of the gradient with respect to `unit`, which are summed. The arguments are
        overwritten.
        """
        for other in more:
            of_unit.add_(other)
        if not self._divided:
            return of_unit
        along = (of_unit * self.unit).sum(dim=self._dim, keepdim=True)
        along.mul_(self._length >= _LENGTH_MIN)  # below this length, the divisor is constant
        return of_unit.addcmul_(self.unit, along, value=-1.0).div_(self._divisor)


def supervised_contrastive_gradient(
    rows: Tensor, labels: Tensor, temperature: float, variant: Variant, reduction: Reduction, times: float
) -> Tensor:
    """Return the gradient with respect to the unit vectors `rows` [N, d_p, Q]."""
    likeness = rows.mT.bmm(rows).div_(temperature)
    lowest = torch.finfo(rows.dtype).min
    likeness.diagonal(dim1=1, dim2=2).fill_(lowest)
    same = labels.unsqueeze(1) == labels.unsqueeze(2)
    same.diagonal(dim1=1, dim2=2).fill_(False)
    count = same.sum(dim=1, keepdim=True, dtype=rows.dtype)
    slope = likeness.softmax(dim=1).mul_(count > 0)  # a row alone in its class, here a column, has no loss
    if variant == "paper":
        slope.sub_(same / count.clamp_(min=1))
    else:
        slope.sub_(likeness.masked_fill_(~same, lowest).softmax(dim=1).mul_(same))
    share = times / rows.shape[2] if reduction == "mean" else times
    return rows.bmm((slope + slope.mT).mul_(share / temperature))


def prototype_contrast_gradients(
    rows: Tensor, labels: Tensor, prototypes: Tensor, temperature: float, times: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to `rows` and `prototypes`.

    rows: unit vectors [N, d_p, Q]. prototypes: vectors of any length [N, K, d_p].
    """
    slope = cross_entropy_gradient(prototypes.bmm(rows).div_(temperature), labels)
    slope.mul_(times / (rows.shape[2] * temperature))
    return prototypes.mT.bmm(slope), slope.bmm(rows.mT)


def uniformity_gradient(prototypes: Tensor, temperature: float, variant: Variant, times: float) -> Tensor:
    """Return the gradient with respect to the prototypes [N, K, d_p], unit vectors in the paper's variant."""
    share = 2 * times / prototypes.shape[1]
    if variant == "paper":
        return (prototypes.sum(dim=1, keepdim=True) - prototypes).mul_(share)
    slope = prototypes.bmm(prototypes.mT).div_(temperature).exp_()
    slope.diagonal(dim1=1, dim2=2).fill_(0.0)
    return slope.mul_(share / temperature).bmm(prototypes)

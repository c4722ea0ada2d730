"""Losses that shape features: pure functions of tensors, without branches on data, for vmap and grad.

They are computed in float32 or wider and outside autocast: cosines in bfloat16 have only two correct digits,
and with a temperature of 100 only the last digits distinguish samples.
"""

from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Variant = Literal["paper", "code"]
"""Variant of a formula: as in MAPL's paper, or as in its authors' public code."""
Reduction = Literal["mean", "sum"]
"""Reduction over the rows of a batch."""


def at_least_float32(values: Tensor) -> Tensor:
    """Return values in float32 or wider: half precisions are converted, float64 stays."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """Return inner products [B, C] of the rows of [B, d] and [C, d], never in half precision."""
    device = left.device.type
    casts = torch.amp.is_autocast_available(device)  # False on the meta device, which only counts memory
    with torch.autocast(device, enabled=False) if casts else nullcontext():
        return at_least_float32(left) @ at_least_float32(right).mT


def normalized(rows: Tensor) -> Tensor:
    """Return rows [B, d] scaled to length 1; rows of zeros stay zero."""
    return functional.normalize(at_least_float32(rows), dim=-1)


def reduce_losses(rows: Tensor, reduction: Reduction) -> Tensor:
    """Return the mean or sum of the rows' losses [B]."""
    return rows.mean() if reduction == "mean" else rows.sum()


def supervised_contrastive(
    projections: Tensor,
    labels: Tensor,
    temperature: float,
    variant: Variant = "paper",
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the supervised contrastive loss l_cont, in nats, of projections p [Q, d_p] with labels [Q].

    With cos(q, r) the cosine of two rows, X(q) the other rows of q's class and A(q) all other rows:

        paper (MAPL, section 4.1; Khosla et al. 2020, L_out):
            - sum_q 1/|X(q)| sum_{r in X(q)} log(exp(cos(q, r)/tau) / sum_{m in A(q)} exp(cos(q, m)/tau))
        code: the log outside of the sum, and no 1/|X(q)|:
            - sum_q log(sum_{r in X(q)} exp(cos(q, r)/tau) / sum_{m in A(q)} exp(cos(q, m)/tau))

    A row that is alone in its class contributes 0. `reduction` "sum" is the paper's sum over q; "mean"
    divides it by Q, as the paper's eq. 1, its l_proto and every public implementation do: with a sum, the
    balance with the other losses would depend on the batch size.
    """
    rows = normalized(projections)
    others = ~torch.eye(rows.shape[0], dtype=torch.bool, device=rows.device)
    positives = (labels[:, None] == labels[None, :]) & others
    lowest = torch.finfo(rows.dtype).min  # not -inf, with which the branch not taken below would be nan
    logits = inner_products(rows, rows) / temperature
    total = logits.masked_fill(~others, lowest).logsumexp(dim=1)
    count = positives.sum(dim=1)
    if variant == "paper":
        within = (logits * positives).sum(dim=1) / count.clamp(min=1)
    else:
        within = logits.masked_fill(~positives, lowest).logsumexp(dim=1)
    return reduce_losses(torch.where(count > 0, total - within, torch.zeros_like(total)), reduction)


def prototype_contrast(
    projections: Tensor, labels: Tensor, prototypes: Tensor, temperature: float, variant: Variant = "paper"
) -> Tensor:
    """Return the sample-to-prototype loss l_proto, in nats.

    Each row of projections p [Q, d_p] has similarities to the prototypes xi [K, d_p]. The loss is the mean
    over rows of the cross-entropy of these similarities with the labels [Q].

    paper (MAPL, section 4.1): similarity cos(p, xi^k)/tau. code: <p/||p||, xi^k>, with prototypes of any
    length and without a temperature (in the code, it cancels).
    """
    if variant == "paper":
        similarities = inner_products(normalized(projections), normalized(prototypes)) / temperature
    else:
        similarities = inner_products(normalized(projections), prototypes)
    return functional.cross_entropy(similarities, labels)


def uniformity(prototypes: Tensor, temperature: float = 1.0, variant: Variant = "paper") -> Tensor:
    """Return the loss l_uni, which keeps the prototypes xi [K, d_p] of different classes apart.

    paper (MAPL, eq. 5): 1/K sum_k sum_{r != k} cos(xi^k, xi^r), between -1 (a regular simplex, or any other
    directions that add up to 0) and K - 1 (all equal); no temperature.
    code: exp(<xi^k, xi^r>/tau) in place of the cosine, with prototypes of any length.
    """
    rows = normalized(prototypes) if variant == "paper" else at_least_float32(prototypes)
    similarities = inner_products(rows, rows)
    if variant == "code":
        similarities = (similarities / temperature).exp()
    same = torch.eye(rows.shape[0], dtype=torch.bool, device=rows.device)
    return similarities.masked_fill(same, 0.0).sum() / rows.shape[0]

"""Objectives of MAPL and of the methods that it is compared with, for decoupled models.

Each implements `Objective` of protocols/framework/objectives.py: frozen, pure, and usable under vmap.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from protocols.framework.objectives import (
    Model,
    ModelOutputs,
    OutputGradients,
    Parameters,
    cross_entropy_gradient,
)
from protocols.shared.contrastive import (
    Reduction,
    Variant,
    at_least_float32,
    prototype_contrast,
    supervised_contrastive,
    uniformity,
)
from protocols.shared.gradients import (
    Directions,
    prototype_contrast_gradients,
    supervised_contrastive_gradient,
    uniformity_gradient,
)

_ALL_OFF = "all four losses are switched off: switch on at least one"


@dataclass(frozen=True)
class PersonalizedModelLoss:
    """Local loss of MAPL (Mukherjee et al. 2024, eqs. 2-5): l_cont + l_ce + l_proto + l_uni, unweighted.

    The terms are the supervised contrastive loss, the cross-entropy, the prototype loss and the uniformity
    loss. Each term can be switched off, as in Table 2. The model needs the part "prototypes" for l_proto and
    l_uni, and "projection" for l_cont and l_proto.

    `temperature` is tau of l_cont; the paper's 100 makes the loss nearly flat: a cosine has a hundredth of
    the effect of a logit. `prototype_temperature` is tau of l_proto (None: the same; the paper has one symbol
    for both, but gives its value "for the supervised contrastive loss"). `reduction` "sum" is literally the
    paper's formula for l_cont and l_ce; its eq. 1 and its authors' code take means, and so does the default.

    The authors' code (`variant` "code") differs in all three contrastive losses: l_cont has the log outside
    of the sum over the positives; l_proto has no temperature, and uses prototypes of any length; l_uni also
    has `temperature`.
    """

    contrastive: bool = True
    cross_entropy: bool = True
    prototype: bool = True
    uniformity: bool = True
    temperature: float = 100.0
    prototype_temperature: float | None = None
    variant: Variant = "paper"
    reduction: Reduction = "mean"
    views: ClassVar[int] = 2
    embeds: ClassVar[bool] = True

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        embedding = model.embed(parameters, x)
        losses: list[Tensor] = []
        if self.cross_entropy:
            losses.append(
                functional.cross_entropy(at_least_float32(embedding.scores), y, reduction=self.reduction)
            )
        if self.contrastive:
            rows = _projections(embedding.projections)
            losses.append(supervised_contrastive(rows, y, self.temperature, self.variant, self.reduction))
        if self.prototype:
            prototypes = model.tensor(parameters, "prototypes")
            rows = _projections(embedding.projections)
            losses.append(prototype_contrast(rows, y, prototypes, self._prototype_tau, self.variant))
        if self.uniformity:
            prototypes = model.tensor(parameters, "prototypes")
            losses.append(uniformity(prototypes, self.temperature, self.variant))
        if not losses:
            raise ValueError(_ALL_OFF)
        return torch.stack(losses).sum()

    @property
    def _prototype_tau(self) -> float:
        return self.temperature if self.prototype_temperature is None else self.prototype_temperature

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradients, as any `ClosedForm` does."""
        of_scores = None
        if self.cross_entropy:
            of_scores = cross_entropy_gradient(outputs.scores, y)
            if self.reduction == "sum":
                of_scores.mul_(y.shape[1])
        of_rows, of_prototypes = self._contrasts(outputs, y)
        if of_scores is of_rows is of_prototypes is None:
            raise ValueError(_ALL_OFF)
        parameters = {} if of_prototypes is None else {"prototypes": of_prototypes}
        return OutputGradients(of_scores, None, of_rows, parameters)

    def _contrasts(self, outputs: ModelOutputs, y: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients for projections and prototypes, of B times the losses except cross-entropy."""
        times, paper = y.shape[1], self.variant == "paper"
        of_rows, of_prototypes = list[Tensor](), list[Tensor]()
        if self.contrastive or self.prototype:
            rows = Directions(_projections(outputs.projections), dim=1)
        if self.prototype or self.uniformity:
            prototypes = Directions(outputs.tensor("prototypes"), dim=2, divided=paper)
        if self.contrastive:
            how = (self.temperature, self.variant, self.reduction)
            of_rows.append(supervised_contrastive_gradient(rows.unit, y, *how, times))
        if self.prototype:
            tau = self._prototype_tau if paper else 1.0
            found = prototype_contrast_gradients(rows.unit, y, prototypes.unit, tau, times)
            of_rows.append(found[0])
            of_prototypes.append(found[1])
        if self.uniformity:
            of_prototypes.append(uniformity_gradient(prototypes.unit, self.temperature, self.variant, times))
        return (
            rows.back(*of_rows) if of_rows else None,
            prototypes.back(*of_prototypes) if of_prototypes else None,
        )


def _projections(projections: Tensor | None) -> Tensor:
    if projections is None:
        raise ValueError('the model has no projections: add "projection" to `parts` of the method')
    return projections


@dataclass(frozen=True)
class ContrastiveClassifier:
    """Local loss of FedClassAvg (Jang et al. 2022): l_cont + l_ce + rho * pull of the head to its anchor.

    l_cont uses the features z of both views, l_ce the first views (their code; `cross_entropy_views` 2 for
    both). The anchor, part "head_anchor" [K * (d_z + 1)], is the averaged head as it came from the server; it
    gets no gradient, and an anchor of zeros (none has come yet) does not pull.

    `pull`: "norm" is ||head - anchor||_2; "squared" half its square; "code" half the mean square of the
    weights' differences plus half the mean square of the biases' differences, as in their code and MAPL's
    copy of it. It is unknown which of the first two is the paper's: its text was not available.

    Differences: z is normalized, as in MAPL's copy and in the loss that they cite; their own code omits this.
    Their code multiplies l_cont by temperature/0.07: its gradient is as large as with the temperature .07,
    although its softmax has the temperature 100. MAPL's copy and this class do not.
    """

    rho: float = 0.1
    temperature: float = 100.0
    pull: Literal["norm", "squared", "code"] = "norm"
    cross_entropy_views: Literal[1, 2] = 1
    variant: Variant = "paper"
    views: ClassVar[int] = 2
    embeds: ClassVar[bool] = True

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        embedding = model.embed(parameters, x)
        labelled = y.shape[0] * self.cross_entropy_views // 2
        loss = functional.cross_entropy(at_least_float32(embedding.scores[:labelled]), y[:labelled])
        loss = loss + supervised_contrastive(embedding.features, y, self.temperature, self.variant)
        return loss + self.rho * self._distance(model, parameters)

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradients, as any `ClosedForm` does."""
        times = y.shape[1]
        labelled = times * self.cross_entropy_views // 2
        of_scores = cross_entropy_gradient(outputs.scores, y).mul_(times / labelled)
        of_scores[:, :, labelled:] = 0.0
        assert outputs.features is not None
        z = Directions(outputs.features, dim=1)
        of_unit = supervised_contrastive_gradient(z.unit, y, self.temperature, self.variant, "mean", times)
        return OutputGradients(of_scores, z.back(of_unit), None, self._pulls(outputs, times))

    def _pulls(self, outputs: ModelOutputs, times: float) -> dict[str, Tensor]:
        """Return the gradient of `times` times rho times the distance, with respect to the head."""
        weight, bias, anchor = map(outputs.tensor, ("head.weight", "head.bias", "head_anchor"))
        apart = torch.cat([weight.flatten(1), bias], dim=1).sub_(anchor)
        apart = apart.where((anchor != 0).any(dim=1, keepdim=True), 0.0).mul_(self.rho * times)
        sizes = [weight[0].numel(), bias.shape[1]]
        if self.pull == "norm":
            length = torch.linalg.vector_norm(apart, dim=1, keepdim=True)
            apart = (apart / length).where(length > 0, 0.0).mul_(self.rho * times)
        of_weight, of_bias = apart.split(sizes, dim=1)
        if self.pull == "code":
            of_weight, of_bias = of_weight / sizes[0], of_bias / sizes[1]
        return {"head.weight": of_weight.reshape(weight.shape), "head.bias": of_bias}

    def _distance(self, model: Model, parameters: Parameters) -> Tensor:
        anchor = at_least_float32(model.tensor(parameters, "head_anchor")).detach()
        weight = at_least_float32(model.tensor(parameters, "head.weight")).flatten()
        bias = at_least_float32(model.tensor(parameters, "head.bias"))
        has_anchor = (anchor != 0).any()
        # Without an anchor the head takes its role, so the distance and its gradient are 0.
        apart = torch.where(has_anchor, torch.cat([weight, bias]) - anchor, torch.zeros_like(anchor))
        if self.pull == "norm":
            return torch.linalg.vector_norm(apart)
        if self.pull == "squared":
            return apart.square().sum() / 2
        return (apart[: weight.numel()].square().mean() + apart[weight.numel() :].square().mean()) / 2


@dataclass(frozen=True)
class FeaturePrototypes:
    """Local loss of FedProto (Tan et al. 2021): l_ce + lambda * mean squared difference from prototypes.

    The differences are between the features z [B, d_z] and the prototypes of their classes. The mean is over
    all B * d_z numbers, as in the authors' code, for which lambda = 1 is meant; the paper sums distances of
    class means. The prototypes, part "class_means" [K, d_z], are the server's averages and get no gradient. A
    prototype of zeros is not known yet, and its class contributes 0.
    """

    strength: float = 1.0
    views: ClassVar[int] = 1
    embeds: ClassVar[bool] = True

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        embedding = model.embed(parameters, x)
        prototypes = at_least_float32(model.tensor(parameters, "class_means")).detach()
        known = (prototypes != 0).any(dim=1)
        apart = at_least_float32(embedding.features) - prototypes[y]
        pull = (apart.square() * known[y][:, None]).mean()
        return functional.cross_entropy(at_least_float32(embedding.scores), y) + self.strength * pull

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradients, as any `ClosedForm` does."""
        assert outputs.features is not None
        features, prototypes = outputs.features, outputs.tensor("class_means").mT
        labels = y.unsqueeze(1)
        apart = features - prototypes.gather(2, labels.expand(features.shape))
        known = (prototypes != 0).any(dim=1, keepdim=True).gather(2, labels)
        pull = apart.mul_(known).mul_(2 * self.strength / features.shape[1])
        return OutputGradients(cross_entropy_gradient(outputs.scores, y), pull)

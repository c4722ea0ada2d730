"""SGD, Adam and AdamW on stacked parameter rows: one update rule for any number of clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

_CLIP_EPSILON = 1e-6  # torch's
_FUSED_MIN = 1 << 13  # row width from which one kernel per row is faster on a CPU (measured)


class UpdateRule(ABC):
    """Update rule of one kind of optimizer. To add one, write its class here, with `@kind`."""

    uses: tuple[str, ...]
    """Settings of `Optimizer` that only some kinds use, and this one does."""
    tuned_rates: tuple[float, float]
    """Smallest and largest learning rate that `coterie tune` tries with this kind."""
    is_linear: ClassVar[bool] = False
    """True if a step is SGD's: linear in the parameters, the state and the gradient. See `affine_map`."""

    @abstractmethod
    def slots(self, optimizer: Optimizer) -> int:
        """Return the number of state vectors of the parameters' width."""

    @abstractmethod
    def step(
        self,
        optimizer: Optimizer,
        params: Tensor,
        gradient: Tensor,
        state: Tensor | None,
        done: Tensor,
        learning_rate: Tensor,
    ) -> None:
        """Take the step that `Optimizer.apply` describes, with weight decay, for a clipped gradient."""


RULES: dict[str, UpdateRule] = {}
"""Update rule of each kind."""


def kind(
    name: str, *, uses: tuple[str, ...], tuned_rates: tuple[float, float]
) -> Callable[[type[UpdateRule]], type[UpdateRule]]:
    """Register a class as the kind `training.optimizer = name`, with these values of its attributes."""

    def register(rule: type[UpdateRule]) -> type[UpdateRule]:
        RULES[name] = rule()
        RULES[name].uses, RULES[name].tuned_rates = uses, tuned_rates
        return rule

    return register


@kind("sgd", uses=("momentum", "dampening", "nesterov"), tuned_rates=(0.003, 1.0))
class SgdRule(UpdateRule):
    is_linear = True

    def slots(self, optimizer: Optimizer) -> int:
        return 1 if optimizer.momentum else 0

    def step(
        self,
        optimizer: Optimizer,
        params: Tensor,
        gradient: Tensor,
        state: Tensor | None,
        done: Tensor,
        learning_rate: Tensor,
    ) -> None:
        _add_decay(optimizer, params, gradient)
        if state is not None:
            # torch starts the velocity at the first gradient; a zero state gives the same.
            if optimizer.dampening:
                gradient.mul_(1 - optimizer.dampening * (done > 0).to(gradient.dtype))
            state.mul_(optimizer.momentum).add_(gradient)
            gradient = gradient.add_(state, alpha=optimizer.momentum) if optimizer.nesterov else state
        params.addcmul_(gradient, learning_rate, value=-1.0)


@kind("adam", uses=("betas", "epsilon"), tuned_rates=(0.0001, 0.03))
class AdamRule(UpdateRule):
    def slots(self, optimizer: Optimizer) -> int:
        return 2

    def step(
        self,
        optimizer: Optimizer,
        params: Tensor,
        gradient: Tensor,
        state: Tensor | None,
        done: Tensor,
        learning_rate: Tensor,
    ) -> None:
        _add_decay(optimizer, params, gradient)
        _adam(optimizer, params, gradient, state, done, learning_rate)


@kind("adamw", uses=("betas", "epsilon"), tuned_rates=(0.0001, 0.03))
class AdamWRule(UpdateRule):
    def slots(self, optimizer: Optimizer) -> int:
        return 2

    def step(
        self,
        optimizer: Optimizer,
        params: Tensor,
        gradient: Tensor,
        state: Tensor | None,
        done: Tensor,
        learning_rate: Tensor,
    ) -> None:
        if optimizer.weight_decay:
            params.mul_(1 - learning_rate * optimizer.weight_decay)
        _adam(optimizer, params, gradient, state, done, learning_rate)


if TYPE_CHECKING:
    OptimizerKind = str
else:
    OptimizerKind = Literal[tuple(RULES)]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Settings of a client's optimizer, except the learning rate, which each training job states.

    Semantics are those of torch.optim: weight decay of sgd and adam is added to the gradient, weight decay of
    adamw shrinks the parameters directly. Momentum applies to sgd, with dampening or in Nesterov's form: the
    velocity v is the gradient g in the first step, and then v <- momentum v + (1 - dampening) g. A gradient
    longer than `clip_norm` is first shortened to it, as by torch.nn.utils.clip_grad_norm_. The scenario's
    section refuses invalid combinations.
    """

    kind: OptimizerKind = "sgd"
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip_norm: float | None = None
    slots: int = field(init=False, repr=False)
    """Number of state vectors of the parameters' width: 0 for plain SGD, 1 with momentum, 2 for Adam."""
    rule: UpdateRule = field(init=False, repr=False, compare=False)
    """Update rule of the kind, looked up once and not for each step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", self._known_rule())
        object.__setattr__(self, "slots", self.rule.slots(self))

    def _known_rule(self) -> UpdateRule:
        if self.kind not in RULES:
            known = ", ".join(RULES)
            raise ValueError(f"optimizer {self.kind!r}: must be one of {known}, or a new class in {__file__}")
        return RULES[self.kind]

    @property
    def is_plain(self) -> bool:
        """True if a step is only the learning rate times the gradient."""
        return self.kind == "sgd" and not self.momentum and not self.weight_decay and self.clip_norm is None

    def apply(
        self, params: Tensor, gradient: Tensor, state: Tensor | None, done: Tensor, learning_rate: Tensor
    ) -> None:
        """Step params [n, P] and state [n, slots * P] in place, and overwrite gradient [n, P].

        All of these, and learning_rate [n, 1], are float32. done [n, 1] float64: number of earlier steps with
        this state.
        """
        if self.clip_norm is not None:
            length = gradient.norm(dim=1, keepdim=True)
            gradient.mul_((self.clip_norm / (length + _CLIP_EPSILON)).clamp(max=1.0))
        self.rule.step(self, params, gradient, state, done, learning_rate)


def _add_decay(optimizer: Optimizer, params: Tensor, gradient: Tensor) -> None:
    """Add weight decay to the gradient."""
    if optimizer.weight_decay:
        gradient.add_(params, alpha=optimizer.weight_decay)


def _adam(
    optimizer: Optimizer,
    params: Tensor,
    gradient: Tensor,
    state: Tensor | None,
    done: Tensor,
    learning_rate: Tensor,
) -> None:
    assert state is not None
    width = params.shape[1]
    mean, square = state[:, :width], state[:, width:]
    if width >= _FUSED_MIN and params.device.type == "cpu":
        _adam_fused(optimizer, params, gradient, (mean, square), done, learning_rate)
        return
    beta1, beta2 = optimizer.betas
    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    # In float64: float32 represents 1 - 0.999 to five digits only.
    mean_bias = (1 - beta1 ** (done + 1)).to(params.dtype)
    square_bias = (1 - beta2 ** (done + 1)).sqrt().to(params.dtype)
    step = mean / square.sqrt().div_(square_bias).add_(optimizer.epsilon)
    params.addcmul_(step, learning_rate / mean_bias, value=-1.0)


def _adam_fused(
    optimizer: Optimizer,
    params: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    done: Tensor,
    learning_rate: Tensor,
) -> None:
    """Compute the step in one pass over each row, not a dozen; the kernel takes one rate per call."""
    import torch  # only here: this file is read before anything is computed

    steps, (beta1, beta2) = (done + 1).to(params.dtype), optimizer.betas
    rates = learning_rate[:, 0].tolist()
    for rate in dict.fromkeys(rates):
        alike = [row for row, of_row in enumerate(rates) if of_row == rate]
        values, gradients, means, squares, done_steps = [
            each.unbind() if len(alike) == len(rates) else [each[row] for row in alike]
            for each in (params, gradient, *moments, steps)
        ]
        torch._fused_adam_(
            values,
            gradients,
            means,
            squares,
            [],
            done_steps,
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=optimizer.epsilon,
            amsgrad=False,
            maximize=False,
        )

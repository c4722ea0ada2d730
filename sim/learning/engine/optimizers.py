"""SGD, Adam and AdamW on stacked parameter rows: one update rule serves a single client and a thousand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Settings of a client's optimizer, but for the learning rate, which is given with every training job.

    `kind` is "sgd", "adam" or "adamw". Semantics are those of torch.optim: weight decay of sgd and adam is
    added to the gradient, that of adamw shrinks the parameters directly. Momentum and Nesterov's form of it
    belong to sgd. ValueError for what does not fit together.
    """

    kind: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.kind not in ("sgd", "adam", "adamw"):
            raise ValueError(f'the optimizer is "sgd", "adam" or "adamw", not {self.kind!r}')
        if self.momentum and self.kind != "sgd":
            raise ValueError(f"momentum belongs to sgd, not to {self.kind}")
        if self.nesterov and not self.momentum:
            raise ValueError("Nesterov's form needs momentum")

    @property
    def slots(self) -> int:
        """Vectors of the parameters' width in the state: 0 for plain SGD, 1 with momentum, 2 for Adam."""
        if self.kind == "sgd":
            return 1 if self.momentum else 0
        return 2

    def apply(
        self, params: Tensor, gradient: Tensor, state: Tensor | None, done: Tensor, learning_rate: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """One step. params, gradient [n, P], state [n, slots * P] and learning_rate [n, 1] are float32.

        done [n, 1] float64: steps taken before with this state. Returns the new parameters and the new state;
        inputs are left alone.
        """
        if self.kind == "sgd":
            return self._sgd(params, gradient, state, learning_rate)
        return self._adam(params, gradient, state, done, learning_rate)

    def _sgd(
        self, params: Tensor, gradient: Tensor, state: Tensor | None, learning_rate: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * params
        if state is not None:
            # torch starts the velocity at the first gradient; a zero state gives the same.
            state = self.momentum * state + gradient
            gradient = gradient + self.momentum * state if self.nesterov else state
        return params - learning_rate * gradient, state

    def _adam(
        self, params: Tensor, gradient: Tensor, state: Tensor | None, done: Tensor, learning_rate: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        assert state is not None
        width = params.shape[1]
        mean, square = state[:, :width], state[:, width:]
        if self.weight_decay:
            if self.kind == "adamw":
                params = params * (1 - learning_rate * self.weight_decay)
            else:
                gradient = gradient + self.weight_decay * params
        beta1, beta2 = self.betas
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient * gradient
        # In float64: float32 knows 1 - 0.999 to five digits only.
        mean_bias = (1 - beta1 ** (done + 1)).to(params.dtype)
        square_bias = (1 - beta2 ** (done + 1)).sqrt().to(params.dtype)
        params = params - learning_rate / mean_bias * mean / (square.sqrt() / square_bias + self.epsilon)
        return params, torch.cat((mean, square), dim=1)

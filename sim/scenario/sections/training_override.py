"""Exceptions from `[training]` for some clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import PositiveInt, ValidationError, model_validator

from actors.settings.base import SettingError, Settings, at_least_one, exactly_one
from actors.settings.quantities import (
    ClientList,
    Count,
    CountOrZero,
    PositiveWeight,
    ShareAboveZero,
    ShareBelowOne,
    Weight,
    Within,
)
from sim.learning.engine.optimizers import OptimizerKind
from sim.learning.schedules import RateSchedule

BatchSize = Annotated[PositiveInt, Within(1, 1_000_000, "no data set has more samples")]

_SELECTORS = ("clients", "share", "cluster")
_OF_PROTOCOL = ("local_steps", "local_epochs")
_OF_ENGINE = ("precision",)


class TrainingOverride(Settings):
    """Exceptions for the training of some clients. Omitted keys are as in `[training]`.

    Select the clients by exactly one of `clients`, `share` and `cluster`. If several entries state a key for
    a client, the last entry applies.
    """

    clients: ClientList | None = None
    """The clients."""
    share: ShareAboveZero | None = None
    """Share of the clients, drawn at random, instead of `clients`."""
    cluster: CountOrZero | None = None
    """True cluster, instead of `clients`: all clients in it."""
    optimizer: OptimizerKind | None = None
    """Optimizer of these clients. Settings that it does not use, such as `momentum`, get their defaults."""
    learning_rate: PositiveWeight | None = None
    """Step size of these clients. A `[[change]]` of the step size does not affect them."""
    schedule: RateSchedule | None = None
    """Schedule of the step size of these clients."""
    clip_norm: PositiveWeight | None = None
    """Maximum Euclidean norm of the gradient."""
    momentum: ShareBelowOne | None = None
    """Momentum."""
    dampening: ShareBelowOne | None = None
    """Dampening of the momentum."""
    nesterov: bool | None = None
    """True for Nesterov's momentum."""
    weight_decay: Weight | None = None
    """Weight decay."""
    betas: tuple[ShareBelowOne, ShareBelowOne] | None = None
    """Decay rates of the two moments."""
    epsilon: PositiveWeight | None = None
    """Constant in the denominator."""
    batch_size: BatchSize | None = None
    """Samples per step. A step of a larger batch takes longer on a device with a `speed`."""
    local_steps: Count | None = None
    """Training steps of these clients in an iteration or a round. They replace those of `[protocol]`, also
    after a `[[change]]`. Only for protocols with this setting."""
    local_epochs: Count | None = None
    """Passes over the client's samples in an iteration or a round, instead of `local_steps`."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Precision of products in the computations of these clients, instead of `engine.precision`. Evaluations
    have the precision of the engine. Virtual times do not depend on the precision."""

    @model_validator(mode="after")
    def _consistent(self) -> TrainingOverride:
        exactly_one(self, *_SELECTORS)
        at_least_one(self, *[key for key in type(self).model_fields if key not in _SELECTORS])
        if self.local_steps is not None and self.local_epochs is not None:
            raise SettingError("local_epochs", self.local_epochs, "set either local_steps or local_epochs")
        return self

    @cached_property
    def _stated(self) -> dict[str, Any]:
        return {key: value for key, value in self if value is not None and key not in _SELECTORS}

    def of_training(self) -> dict[str, Any]:
        """Return the stated keys of `[training]`."""
        beside = _OF_PROTOCOL + _OF_ENGINE
        return {key: value for key, value in self._stated.items() if key not in beside}

    def of_protocol(self) -> dict[str, Any]:
        """Return the stated keys of `[protocol]`."""
        return {key: value for key, value in self._stated.items() if key in _OF_PROTOCOL}


def own_settings(settings: Settings, entries: Mapping[int, TrainingOverride]) -> dict[str, Any]:
    """Return the settings of a protocol that these overrides replace. Raises SettingError.

    A stated number of steps or epochs replaces both settings: the other has its default.
    """
    own: dict[str, Any] = {}
    for number, entry in entries.items():
        for key, value in entry.of_protocol().items():
            full = f"training.override.{number}.{key}"
            _require_setting(settings, full, key, value)
            others = {each: field for each, field in type(settings).model_fields.items() if each != key}
            own = {each: others[each].default for each in _OF_PROTOCOL if each in others} | {key: value}
            stated = settings.model_dump(mode="json", by_alias=True) | own
            try:
                type(settings).model_validate(stated)
            except ValidationError as error:
                problem = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise SettingError(full, value, problem) from None
    return own


def _require_setting(settings: Settings, full: str, key: str, value: int) -> None:
    fields = type(settings).model_fields
    if key not in fields:
        known = next((each for each in _OF_PROTOCOL if each in fields), None)
        instead = f"use '{known}'" if known else "the method determines its steps itself; remove the key"
        raise SettingError(full, value, f"the protocol has no setting '{key}': {instead}")

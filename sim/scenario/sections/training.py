"""Local training steps, exceptions for some clients, and augmentation of images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError, model_validator

from actors.settings.base import SettingError, Settings, at_least_one, require_defaults
from actors.settings.quantities import (
    Count,
    PositiveWeight,
    Share,
    ShareBelowOne,
    Weight,
    Within,
)
from sim.learning.engine.graph.batches import Sampling
from sim.learning.engine.optimizers import RULES, OptimizerKind
from sim.learning.schedules import RateSchedule
from sim.scenario.sections.selection import SelectedClients

_CropShare = Annotated[float, Field(gt=0, le=1), Within(0.0001, 1)]
_Ratio = Annotated[PositiveFloat, Within(0.01, 100)]
_Change = Annotated[NonNegativeFloat, Within(0, 100)]
_Turn = Annotated[float, Field(ge=0, le=0.5)]


class AugmentationSection(Settings):
    """Random changes to the images of training batches; evaluations use unchanged images."""

    crop_scale: tuple[_CropShare, _CropShare] = (0.2, 1.0)
    """Share of the image that the crop keeps; the crop is enlarged to the image's size."""
    crop_ratio: tuple[_Ratio, _Ratio] = (3 / 4, 4 / 3)
    """Width over height of the crop."""
    jitter: tuple[_Change, _Change, _Change, _Turn] = (0.4, 0.4, 0.4, 0.1)
    """Change of brightness, contrast and saturation by up to this share, and of hue by up to this share of
    the color circle."""
    jitter_probability: Share = 0.8
    """Probability of the color jitter, per image."""
    grayscale: Share = 0.2
    """Probability that an image is converted to grayscale."""
    blur: Share = 0.5
    """Probability that an image is blurred, by a Gaussian kernel as wide as a tenth of the image."""
    blur_sigma: tuple[_Ratio, _Ratio] = (0.1, 2.0)
    """Standard deviation of the blur, in pixels."""
    flip: Share = 0.5
    """Probability of a horizontal flip."""

    @model_validator(mode="after")
    def _ordered(self) -> AugmentationSection:
        for name in ("crop_scale", "crop_ratio", "blur_sigma"):
            low, high = getattr(self, name)
            if low > high:
                raise SettingError(name, (low, high), "must list the smaller number first")
        return self


BatchSize = Annotated[PositiveInt, Within(1, 1_000_000, "no data set has more samples")]

_SELECTORS = tuple(SelectedClients.model_fields)
_OF_PROTOCOL = ("local_steps", "local_epochs")
_OF_ENGINE = ("precision",)


class TrainingOverride(SelectedClients):
    """Exceptions for the training of some clients. Omitted keys are as in `[training]`.

    Select the clients by exactly one of `clients`, `share` and `cluster`. If several entries state a key for
    a client, the last entry applies.
    """

    optimizer: OptimizerKind | None = None
    """Optimizer of these clients. Settings that this optimizer does not use get the default values."""
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
    """Training steps of these clients in an iteration or a round. They replace the settings of the same names
    in `[protocol]`, even after a `[[change]]`. Only for protocols with this setting."""
    local_epochs: Count | None = None
    """Passes over the client's samples in an iteration or a round, instead of `local_steps`."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Precision of products in the computations of these clients, instead of `engine.precision`. Evaluations
    have the precision of the engine. Virtual times do not depend on the precision."""

    @model_validator(mode="after")
    def _consistent(self) -> TrainingOverride:
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


class Training(Settings):
    """Local training steps."""

    optimizer: OptimizerKind = "sgd"
    """The optimizer; each client has a separate state."""
    learning_rate: PositiveWeight
    """Step size."""
    schedule: RateSchedule | None = None
    """Schedule of the step size: by a client's steps, by the rounds of a server (the same step size for all
    clients that train in a round), or by virtual time. It does not affect training for which the method sets
    the step size."""
    clip_norm: PositiveWeight | None = None
    """Maximum Euclidean norm of the gradient of a model: a longer gradient is scaled down to it, before
    momentum and weight decay."""
    momentum: ShareBelowOne = 0.0
    """Momentum of sgd."""
    dampening: ShareBelowOne = 0.0
    """Dampening of sgd's momentum: the velocity adds 1 - dampening of each gradient except the first, which
    it adds in full. If it equals the momentum, the velocity is a moving average of the gradients that starts
    with the first one."""
    nesterov: bool = False
    """True for Nesterov's momentum, for sgd with momentum."""
    weight_decay: Weight = 0.0
    """Weight decay: decoupled in adamw, and otherwise added to the gradient."""
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    """Decay rates of the two moments of adam and adamw."""
    epsilon: PositiveWeight = 1e-8
    """Constant that adam and adamw add to the denominator."""
    batch_size: BatchSize
    """Samples per step."""
    sampling: Sampling = "shuffled"
    """Source of batches: shuffled epochs, or independent draws with replacement."""
    augmentation: AugmentationSection | None = None
    """Random changes of images each time that a client trains on them; only for data sets of images."""
    override: tuple[TrainingOverride, ...] = ()
    """Exceptions for the training of some clients."""

    @model_validator(mode="after")
    def _fits_optimizer(self) -> Training:
        self._require_fitting_optimizer()
        for number, entry in enumerate(self.override):
            self.with_overrides({number: entry})
        return self

    def with_overrides(self, entries: Mapping[int, TrainingOverride]) -> Training:
        """Return the training of clients with these overrides, by their numbers. Raises SettingError."""
        training = self
        for number, entry in entries.items():
            stated = entry.of_training()
            kind = stated.get("optimizer", training.optimizer)
            if kind != training.optimizer:
                unused = {key for rule in RULES.values() for key in rule.uses} - set(RULES[kind].uses)
                stated = {key: Training.model_fields[key].default for key in sorted(unused)} | stated
            training = training.model_copy(update=stated)
            try:
                training._require_fitting_optimizer()
            except SettingError as error:
                raise SettingError(f"override.{number}.{error.key}", error.value, error.problem) from None
        return training

    def _require_fitting_optimizer(self) -> None:
        users: dict[str, list[str]] = {}
        for kind, rule in RULES.items():
            for key in rule.uses:
                users.setdefault(key, []).append(kind)
        for key, kinds in users.items():
            if self.optimizer not in kinds:
                *others, last = kinds
                names = f"{', '.join(others)} and {last}" if others else last
                only = f"only {names} use{'s' * (not others)} it"
                require_defaults(self, f'{only}, and optimizer is "{self.optimizer}"', key)
        if self.nesterov and not self.momentum:
            raise SettingError("nesterov", True, "needs momentum > 0")
        if self.dampening and (self.nesterov or not self.momentum):
            problem = "needs momentum > 0, and must be 0 for nesterov = true"
            raise SettingError("dampening", self.dampening, problem)


def overridden_settings(settings: Settings, entries: Mapping[int, TrainingOverride]) -> dict[str, Any]:
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

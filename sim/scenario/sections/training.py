"""Local training steps, and augmentation of their images."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from actors.settings.base import SettingError, Settings, require_defaults
from actors.settings.quantities import PositiveWeight, Share, ShareBelowOne, Weight, Within
from sim.learning.engine.graph.batches import Sampling
from sim.learning.engine.optimizers import RULES, OptimizerKind
from sim.learning.schedules import RateSchedule
from sim.scenario.sections.training_override import BatchSize, TrainingOverride

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
    def _ordered(self) -> "AugmentationSection":
        for name in ("crop_scale", "crop_ratio", "blur_sigma"):
            low, high = getattr(self, name)
            if low > high:
                raise SettingError(name, (low, high), "must list the smaller number first")
        return self


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
    def _fits_optimizer(self) -> "Training":
        self._require_fitting_optimizer()
        for number, entry in enumerate(self.override):
            self.with_overrides({number: entry})
        return self

    def with_overrides(self, entries: Mapping[int, TrainingOverride]) -> "Training":
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

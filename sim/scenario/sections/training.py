"""A local training step, and how images are changed before it."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from actors.settings.base import SettingError, Settings, idle
from actors.settings.quantities import PositiveWeight, Share, ShareBelowOne, Weight, Within
from sim.learning.engine.graph.batches import Sampling
from sim.learning.engine.optimizers import OptimizerKind
from sim.learning.schedules import RateSchedule

_CropShare = Annotated[float, Field(gt=0, le=1), Within(0.0001, 1)]
_Ratio = Annotated[PositiveFloat, Within(0.01, 100)]
_Change = Annotated[NonNegativeFloat, Within(0, 100)]
_Turn = Annotated[float, Field(ge=0, le=0.5)]


class AugmentationSection(Settings):
    """Random changes of the images of training batches; testing and losses see them unchanged."""

    crop_scale: tuple[_CropShare, _CropShare] = (0.2, 1.0)
    """Share of the image that is cropped, and enlarged to the image's size."""
    crop_ratio: tuple[_Ratio, _Ratio] = (3 / 4, 4 / 3)
    """Width over height of the crop."""
    jitter: tuple[_Change, _Change, _Change, _Turn] = (0.4, 0.4, 0.4, 0.1)
    """Change of brightness, contrast and saturation by up to this share, and of hue by up to this share of
    the colour circle."""
    jitter_probability: Share = 0.8
    """How likely an image's colours are changed so."""
    grayscale: Share = 0.2
    """How likely an image loses its colours."""
    blur: Share = 0.5
    """How likely an image is blurred, by a Gaussian as wide as a tenth of it."""
    blur_sigma: tuple[_Ratio, _Ratio] = (0.1, 2.0)
    """Standard deviation of the blur, in pixels."""
    flip: Share = 0.5
    """How likely left and right are swapped."""

    @model_validator(mode="after")
    def _ordered(self) -> "AugmentationSection":
        for name in ("crop_scale", "crop_ratio", "blur_sigma"):
            low, high = getattr(self, name)
            if low > high:
                raise SettingError(name, (low, high), "must begin with the smaller number")
        return self


class Training(Settings):
    """A local training step."""

    optimizer: OptimizerKind = "sgd"
    """The optimizer; each client has its own state."""
    learning_rate: PositiveWeight
    """Step size."""
    schedule: RateSchedule | None = None
    """How the step size changes: with a client's own steps, the rounds of a server (the same size for all who
    train in one), or virtual time. A method that states the step size of a training itself is left alone."""
    clip_norm: PositiveWeight | None = None
    """Longest gradient, in the Euclidean norm of a model's: a longer one is shortened to it, before momentum
    and weight decay."""
    momentum: ShareBelowOne = 0.0
    """Momentum of sgd."""
    dampening: ShareBelowOne = 0.0
    """Dampening of sgd's momentum: the velocity takes 1 - dampening of each gradient but the first, which it
    takes whole; with as much as the momentum it is a mean of the gradients that begins at full size."""
    nesterov: bool = False
    """Nesterov's momentum, for sgd with momentum."""
    weight_decay: Weight = 0.0
    """Weight decay: added to the gradient by sgd and adam, decoupled in adamw."""
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    """Decay of the two moments of adam and adamw."""
    epsilon: PositiveWeight = 1e-8
    """Added to the denominator by adam and adamw."""
    batch_size: Annotated[PositiveInt, Within(1, 1_000_000, "no data set has more samples")]
    """Samples per step."""
    sampling: Sampling = "shuffled"
    """Batches from shuffled epochs, or each drawn independently with replacement."""
    augmentation: AugmentationSection | None = None
    """Change images at random, each time that they are trained on; only for data sets of images."""

    @model_validator(mode="after")
    def _fits_optimizer(self) -> "Training":
        if self.momentum and self.optimizer != "sgd":
            raise SettingError(
                "momentum", self.momentum, f'belongs to optimizer "sgd", this is "{self.optimizer}"'
            )
        if self.nesterov and not self.momentum:
            raise SettingError("nesterov", True, "needs momentum > 0")
        if self.dampening and (self.nesterov or not self.momentum):
            problem = "needs momentum > 0, and must be 0 for nesterov = true"
            raise SettingError("dampening", self.dampening, problem)
        if self.optimizer not in ("adam", "adamw"):
            idle(self, f'they are of adam and adamw, and optimizer is "{self.optimizer}"', "betas", "epsilon")
        return self

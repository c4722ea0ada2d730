"""The sections of training and of the engine."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
    model_validator,
)

from protocols.settings import (
    PositiveWeight,
    SettingError,
    Settings,
    Size,
    Weight,
    Within,
    default,
)
from sim.settings.shared import Share, ShareBelowOne

# Training ------------------------------------------------------------------------------------------------


_CropShare = Annotated[float, Field(gt=0, le=1), Within(0.0001, 1)]
_Ratio = Annotated[PositiveFloat, Within(0.01, 100)]
_Change = Annotated[NonNegativeFloat, Within(0, 100)]
_Turn = Annotated[float, Field(ge=0, le=0.5)]


class Augmentation(Settings):
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
    def _ordered(self) -> "Augmentation":
        for name in ("crop_scale", "crop_ratio", "blur_sigma"):
            low, high = getattr(self, name)
            if low > high:
                raise SettingError(name, (low, high), "must begin with the smaller number")
        return self


class Training(Settings):
    """A local training step."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimizer; each client has its own state."""
    learning_rate: PositiveWeight
    """Step size."""
    momentum: ShareBelowOne = 0.0
    """Momentum of sgd."""
    dampening: ShareBelowOne = 0.0
    """Of sgd with momentum: the velocity takes 1 - dampening of each gradient but the first, which it takes
    whole; with as much as the momentum it is a mean of the gradients that begins at full size."""
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
    sampling: Literal["shuffled", "replacement"] = "shuffled"
    """Batches from shuffled epochs, or each drawn independently with replacement."""
    augmentation: Augmentation | None = None
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
        return self


# The engine ------------------------------------------------------------------------------------------------


_THREADS_MAX = 1_024


def _threads(value: Any) -> int | str:
    if value == "fastest" or (type(value) is int and 1 <= value <= _THREADS_MAX):
        return value
    raise ValueError(f'must be a whole number from 1 to {_THREADS_MAX:,}, or "fastest"')


_Threads = Annotated[
    int | Literal["fastest"],
    BeforeValidator(_threads),
    WithJsonSchema(
        {
            "x-allowed": f'a whole number from 1 to {_THREADS_MAX:,}, or "fastest"',
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": _THREADS_MAX}, {"const": "fastest"}],
        }
    ),
]


class Engine(Settings):
    """How the numbers are computed; changes their speed, not their meaning (but see `precision`)."""

    way: Literal["auto", "fastest", "dense", "vmap", "compiled", "loop"] = "auto"
    """All clients of a batch as matrix products ("dense": only linear layers and ReLUs under cross-entropy),
    in one vmapped call, in one that torch.compile made faster ("compiled": takes up to minutes at the start
    and needs a compiler, on a CPU one of C++), or one client after the other. "auto" is the one that is
    usually the fastest for the model and the device, and never compiles; "fastest" is the one that is when
    all are measured before the run, without the time to compile. The scenario in the results names the way
    that was taken."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """How models and their gradients are computed. "tf32" (CUDA only) and "bfloat16" round the factors of
    matrix products and convolutions, to 11 and 8 significant bits: faster on devices made for it, and the
    numbers of the run change. Parameters, sums of them and the optimizer's state stay float32."""
    deferred: bool = True
    """Compute only when something reads a number, in large batches."""
    pending_limit: Size = default("512 MB")
    """Compute when the pending results would take more memory."""
    threads: _Threads = 1
    """CPU threads that compute a batch. With another number, products and convolutions are other sums, and
    the last bits of the run's numbers change; while none is stated, a run is the same on any number of cores.
    "fastest": as many as are the fastest when measured before the run, and no more than the cores that this
    process may use; the scenario in the results names the number. More than one pays for large convolutional
    models on cores that nothing else uses, and where there is only one run to do."""

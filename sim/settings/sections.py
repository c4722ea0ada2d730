"""A scenario file as a whole, and its short sections.

Every section is frozen and refuses unknown keys. After validation quantities are plain numbers in SI units.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
    model_validator,
)

from actors.units import DURATION, SIZE
from protocols.settings import (
    Count,
    PositiveDuration,
    PositiveWeight,
    SettingError,
    Settings,
    Size,
    Weight,
    Within,
    default,
    limited_duration,
)
from sim.learning.data import Data
from sim.learning.models import Model
from sim.settings.budget import Budget
from sim.settings.churn import Churn, ChurnProcess
from sim.settings.devices import Devices
from sim.settings.network import Network
from sim.settings.shared import Share, ShareBelowOne, kind_alone
from sim.settings.topology import Topology

# Run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateEvery:
    """When the observer evaluates: every so many virtual seconds or iterations; the other one is None."""

    seconds: float | None = None
    iterations: int | None = None

    @classmethod
    def parse(cls, value: Any) -> "EvaluateEvery":
        """From ``"15 s"`` or ``"100 iterations"``."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+)\s*iterations?\s*", value)):
            if len(match[1]) > 9:  # thousands of digits would be more than int() takes
                raise ValueError("must be at most 999,999,999 iterations")
            iterations = int(match[1])
            if iterations == 0:
                raise ValueError(
                    'must be at least 1; write a duration, or iterations, such as "100 iterations"'
                )
            return cls(iterations=iterations)
        try:
            seconds = limited_duration(value)
        except ValueError as error:
            raise ValueError(f'{error}, or iterations, such as "100 iterations"') from None
        if seconds == 0:
            raise ValueError(
                f'must be more than 0; write {DURATION.allowed}, or iterations, such as "100 iterations"'
            )
        return cls(seconds=seconds)

    def __str__(self) -> str:
        return f"{self.iterations} iterations" if self.seconds is None else DURATION.format(self.seconds)


_EvaluateEvery = Annotated[
    EvaluateEvery,
    BeforeValidator(EvaluateEvery.parse),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "x-allowed": f'{DURATION.allowed}, or iterations, such as "100 iterations"',
            "pattern": rf"^([0-9.eE+]+ *({'|'.join(DURATION.units)})|[0-9]+ *iterations?)$",
            "examples": ["15 s", "100 iterations"],
        }
    ),
]


NAME_BYTES_MAX = 180
"""File systems allow 255 for a directory's name, in which seed and hash stand as well."""


def _name(value: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", value):
        raise ValueError(f"must be {_NAME_ALLOWED}, and begin with none of . and -")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"must have at most {NAME_BYTES_MAX} bytes, this has {len(value.encode()):,}")
    return value


_NAME_ALLOWED = "letters, digits, and . _ -"
_Name = Annotated[
    str,
    AfterValidator(_name),
    # Letters of all scripts: JavaScript's \w is ASCII only, so that this lists what is not allowed.
    WithJsonSchema({"type": "string", "x-allowed": _NAME_ALLOWED, "pattern": r"^[^ -,/:-@\[-^`{-~]+$"}),
]


class Run(Settings):
    """What is run, how long, and what is recorded."""

    name: _Name | None = None
    """Name in results; by default the file's name without its ending, with "-" for spaces and other signs."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random number of the run."""
    duration: PositiveDuration | None = None
    """Virtual time after which the run ends."""
    iterations: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """The run ends once every running client has done so many iterations."""
    budget: Budget | None = None
    """How much each client may train, for comparisons of methods; the run ends once all have spent it who are
    up or will come."""
    evaluate_every: _EvaluateEvery
    """Time between two evaluations by the observer, which cost no virtual time."""
    compare_alone: bool = False
    """Also train each client alone, for as many steps as it took, to know who is better off than alone; see
    `protocol.alone` for what a run of its own tells."""
    shuffle_ties: bool = False
    """Order events of the same time at random, not first come, first served: exposes hidden dependence."""
    keep_messages: bool = True
    """Keep each message in events.parquet; otherwise only counts, totals and the trace hash."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Mean accuracy for which the time and the bytes needed are reported."""
    settled_iterations: PositiveInt | None = None
    """Iterations in its present life from which on a client counts as settled, where clients come during the
    run; by default a tenth of the median of those that were there all along."""

    @model_validator(mode="after")
    def _ends(self) -> "Run":
        if self.duration is None and self.iterations is None:
            if self.budget is None:
                problem = "state 'duration', 'iterations', 'budget' or several (the first one ends the run)"
                raise SettingError("duration", None, problem)
            if self.budget.bytes is not None:
                problem = "needs 'duration' or 'iterations' beside it, as who sends nothing never spends it"
                raise SettingError("budget.bytes", SIZE.format(self.budget.bytes), problem)
        every = self.evaluate_every.seconds
        if self.duration is not None and every is not None and every > self.duration:
            raise SettingError(
                "evaluate_every",
                str(self.evaluate_every),
                f"must be at most the duration ({DURATION.format(self.duration)})",
            )
        return self


class FreshStart(Settings):
    """Newcomers start from the initial model."""

    kind: Literal["fresh"]


class PeerStart(Settings):
    """Newcomers start from the model of a random peer."""

    kind: Literal["peer"]
    patience: PositiveDuration = default("10 s")
    """How long a newcomer waits for the answer, before it asks another peer; the third time is the last. A
    peer that is a newcomer itself says so, and another one is asked at once."""


class MeanStart(Settings):
    """Newcomers start from the mean of the models of some random peers."""

    kind: Literal["mean"]
    peers: Count = 5
    """How many are asked."""
    patience: PositiveDuration = default("10 s")
    """How long a newcomer waits for answers; if there is none at all, it asks others, up to three times.
    Peers that are newcomers themselves say so, and where all do, others are asked at once."""


Newcomers = Annotated[
    Annotated[FreshStart | PeerStart | MeanStart, Field(discriminator="kind")],
    kind_alone("fresh", "peer", "mean"),
]


class Clients(Settings):
    """The clients and who knows whom."""

    count: Annotated[PositiveInt, Within(1, 1_000_000, "more would not fit in memory")]
    """Number of clients, those that join later included."""
    topology: Topology = default("complete")
    """Who may talk to whom: a kind, or a table with its settings."""
    newcomers: Newcomers = default("fresh")
    """What a client that joins, or comes back without its state, starts from."""


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


# The rest -------------------------------------------------------------------------------------------------


class ProtocolChoice(Settings):
    """Which protocol the clients run; its own settings stand beside the name, checked by its class."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1)]
    """A known protocol, ``package.module:Class``, or ``my_file.py:Class``."""


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

    way: Literal["auto", "fastest", "dense", "vmap", "loop"] = "auto"
    """All clients of a batch as matrix products ("dense": only linear layers and ReLUs under cross-entropy),
    in one vmapped call, or one client after the other. "auto" is the one that is usually the fastest for the
    model and the device; "fastest" is the one that is when all are measured before the run. The scenario in
    the results names the way that was taken."""
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


class Supervision(Settings):
    """What happens to a client whose code fails."""

    on_failure: Literal["stop", "restart"] = "stop"
    """Stop the client, or start it anew."""
    max_restarts: Annotated[NonNegativeInt, Within(0, 1000)] = 3
    """Stop it after so many restarts."""


class Sections(Settings):
    """A scenario file of coterie."""

    run: Run
    clients: Clients
    data: Data
    model: Model
    training: Training
    protocol: ProtocolChoice
    network: Network
    devices: Devices
    churn: tuple[Churn, ...] = ()
    churn_process: tuple[ChurnProcess, ...] = ()
    engine: Engine = Engine()
    supervision: Supervision = Supervision()

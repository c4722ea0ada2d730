"""How the numbers are computed."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from actors.settings.base import Settings, default
from actors.settings.quantities import Count, Size

_THREADS_MAX = 1_024
_GPU = re.compile(r"cuda:(0|[1-9]\d{0,2})")


def _number_or(word: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """What a number of threads may be, beside one word."""
    allowed = f'a whole number from 1 to {_THREADS_MAX:,}, or "{word}"'

    def number(value: Any) -> int | str:
        if value == word or (type(value) is int and 1 <= value <= _THREADS_MAX):
            return value
        raise ValueError(f"must be {allowed}")

    whole = {"type": "integer", "minimum": 1, "maximum": _THREADS_MAX}
    return BeforeValidator(number), WithJsonSchema({"x-allowed": allowed, "anyOf": [whole, {"const": word}]})


_Threads = Annotated[int | Literal["fastest"], *_number_or("fastest")]
_Workers = Annotated[int | Literal["auto"], *_number_or("auto")]


_DEVICES = 'two or more different GPUs, such as ["cuda:0", "cuda:1"]'


def _devices(value: Any) -> Any:
    named = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    if value is None or (named and len(set(value)) == len(value) > 1 and all(map(_GPU.fullmatch, value))):
        return value
    raise ValueError(f"must be {_DEVICES}")


_Devices = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_devices),
    WithJsonSchema(
        {
            "x-allowed": _DEVICES,
            "type": "array",
            "minItems": 2,
            "uniqueItems": True,
            "items": {"type": "string", "pattern": f"^{_GPU.pattern}$"},
        }
    ),
]


class EngineSection(Settings):
    """How the numbers are computed; changes their speed, not their meaning (but see `precision`)."""

    way: Literal["auto", "fastest", "dense", "vmap", "loop"] = "auto"
    """All clients of a batch as matrix products ("dense": only for linear layers, ReLUs and batch norms, with
    a loss of coterie's), in one vmapped call (no recurrent layers), or one client after the other. "auto" is
    the one that is usually the fastest for the model and the device; "fastest" is the one that is when all
    are measured before the run. The scenario in the results names the way that was taken."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """How models and their gradients are computed. "tf32" (CUDA only) and "bfloat16" round the factors of
    matrix products and convolutions, to 11 and 8 significant bits: faster on devices made for it, and the
    numbers of the run change. Parameters, sums of them and the optimizer's state stay float32."""
    micro_batch: Count | None = None
    """The samples of a batch that are computed at once, where all of them take too much memory: gradients are
    added up over the parts. By default all. For models without batch norms and dropouts."""
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
    workers: _Workers = "auto"
    """How many parts of a batch, or of an evaluation, are computed at the same time on CPUs: models that are
    trained one after the other, such as those with convolutions, or parts of a large batch. The results are
    the same with any number. "auto": one for each core that this process may use, in a sweep shared by the
    runs, or on a Ray cluster one for each of its cores."""
    devices: _Devices = None
    """GPUs of one kind on which parts of a batch, or of an evaluation, are computed at the same time: models
    that are trained one after the other, or parts of a batch that is too large for one call. The results are
    the same with any number of them. The first has all vectors; the others have a copy of the data, and are
    sent what a part needs. By default the one of `--device`, beside which this key is refused, as with
    `--on ray`."""

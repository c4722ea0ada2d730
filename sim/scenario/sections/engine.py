"""Settings of the engine that computes training and evaluation."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from actors.settings.base import Settings, default
from actors.settings.quantities import Count, Size

_THREADS_MAX = 1_024
_GPU = re.compile(r"cuda:(0|[1-9]\d{0,2})")


def _number_or_word_type(word: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return validator and schema of a number of threads, or one word."""
    allowed = f'a whole number from 1 to {_THREADS_MAX:,}, or "{word}"'

    def number(value: Any) -> int | str:
        if value == word or (type(value) is int and 1 <= value <= _THREADS_MAX):
            return value
        raise ValueError(f"must be {allowed}")

    whole = {"type": "integer", "minimum": 1, "maximum": _THREADS_MAX}
    return BeforeValidator(number), WithJsonSchema({"x-allowed": allowed, "anyOf": [whole, {"const": word}]})


_Threads = Annotated[int | Literal["fastest"], *_number_or_word_type("fastest")]
_Workers = Annotated[int | Literal["auto"], *_number_or_word_type("auto")]


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
    """Computation of training and evaluation. Keys other than `precision` affect the speed, and the results
    at most by rounding."""

    way: Literal["auto", "fastest", "dense", "vmap", "loop"] = "auto"
    """Computation of the clients of a batch: all as matrix products ("dense": only for linear layers, ReLUs
    and batch norms, with a loss of coterie), all in one vmapped call ("vmap": no recurrent layers), or one
    client at a time ("loop"). "auto" selects the backend that is usually the fastest for the model and the
    device; "fastest" measures all backends before the run and selects the fastest. The scenario in the
    results names the selected one."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Precision of models and gradients. "tf32" (CUDA only) and "bfloat16" round the factors of matrix
    products and convolutions to 11 and 8 significant bits: this is faster on devices made for it, and the
    run's values change. Parameters, sums of them and the optimizer's state stay float32."""
    micro_batch: Count | None = None
    """Samples of a batch that are computed at once, if the whole batch takes too much memory: gradients are
    summed over the parts. By default all. Only for models without batch normalization and dropout layers."""
    deferred: bool = True
    """Compute only when a value is read, in large batches."""
    pending_limit: Size = default("512 MB")
    """Memory of pending results above which they are computed."""
    threads: _Threads = 1
    """CPU threads that compute a batch. With another number, products and convolutions are summed in another
    order, and the last bits of the run's values change; with the default, a run is the same on any number of
    cores. "fastest": the number that is the fastest when measured before the run, at most the cores that this
    process may use; the scenario in the results names the number. More than one thread helps for large
    convolutional models on idle cores, if there is only one run."""
    workers: _Workers = "auto"
    """Parts of a batch, or of an evaluation, that CPUs compute at the same time: models that are trained one
    at a time, such as those with convolutions, or parts of a large batch. The results are the same with any
    number. "auto": one for each core that this process may use, shared by the runs of a sweep, or on a Ray
    cluster one for each core of the cluster."""
    devices: _Devices = None
    """GPUs of one kind that compute parts of a batch, or of an evaluation, at the same time: models that are
    trained one at a time, or parts of a batch that is too large for one call. The results are the same with
    any number of GPUs. The first GPU holds all vectors; the others hold a copy of the data and receive the
    vectors that their part needs. By default the device of `--device`. This key cannot be combined with
    `--device` or `--on ray`."""

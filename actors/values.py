"""Messages as values: they arrive as they were sent, whatever the sender changes afterwards.

Immutable objects (numbers, text, handles, frozen dataclasses and tuples of these) are sent without copies.
Lists, dicts, arrays and tensors are copied, at any depth, which has the same effect as encoding them. An
object of another class with an `__array__` is also copied, and arrives as a numpy array, unless its class
sets `immutable = True`, which makes it a handle. `actors.codec.size` rejects all other objects.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from actors.codec import can_be_altered
from actors.message import Envelope

Copier = Callable[[Any], Any]
"""Function that returns an immutable argument itself, and otherwise a copy without shared mutable parts."""


def with_immutable_message(envelope: Envelope) -> Envelope:
    """Return an envelope with an immutable message; the same envelope, unless part of the message is mutable.

    A transport need not call it if `size` has found no mutable part.
    """
    message = envelope.message
    value = _COPIERS[type(message)](message)
    if value is message:
        return envelope
    asks = (envelope.request, envelope.answer_to, envelope.error)
    return Envelope(envelope.sender, envelope.receiver, value, *asks)


def _as_it_is(value: Any) -> Any:
    return value


def _copy_of_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    copies = tuple([_COPIERS[type(item)](item) for item in value])
    return value if all(map(_is_same_object, copies, value)) else copies


def _copy_of_list(value: list[Any]) -> list[Any]:
    return [_COPIERS[type(item)](item) for item in value]


def _copy_of_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {_COPIERS[type(key)](key): _COPIERS[type(item)](item) for key, item in value.items()}


def _copy_of_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if hasattr(value, "detach") and hasattr(value, "clone"):  # torch's
        return value.detach().clone()
    return np.asarray(value).copy()  # in two steps: `__array__` may return an array that the object keeps


def _is_same_object(first: object, second: object) -> bool:
    return first is second


def _dataclass_copier(cls: type) -> Copier:
    names = [field.name for field in fields(cls)]

    def dataclass_copy(obj: Any) -> Any:
        values = [getattr(obj, name) for name in names]
        copies = [_COPIERS[type(value)](value) for value in values]
        if all(map(_is_same_object, copies, values)):
            return obj
        copied: Any = object.__new__(cls)  # copy.copy() would set slots by the frozen class's own __setattr__
        attributes = {**getattr(obj, "__dict__", {}), **dict(zip(names, copies, strict=True))}
        for name, value in attributes.items():
            object.__setattr__(copied, name, value)
        return copied

    return dataclass_copy


class _Copiers(dict[type, Copier]):
    """Copy functions by class; each is determined when an object of its class is first copied."""

    def __missing__(self, cls: type) -> Copier:
        copier = (
            _copy_of_tensor
            if can_be_altered(cls)
            else _dataclass_copier(cls)
            if is_dataclass(cls)
            else _as_it_is
        )
        self[cls] = copier
        return copier


_COPIERS = _Copiers({tuple: _copy_of_tuple, list: _copy_of_list, dict: _copy_of_dict})

"""Codec of the messages between processes, with checks of incoming messages."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import is_dataclass

import numpy as np

from actors.codec import Codec
from actors.scan import DecodeError
from sim.learning.engine import Engine, Vector
from sim.learning.engine.handles import known_values_handle

_NEW_WIDTHS_MAX = 64  # of vectors from other processes: rows of a width stay allocated


def codec_for_actors(kinds: Iterable[type], engine: Engine) -> Codec:
    """Return the codec of messages of actors of these classes. Vectors are decoded as handles of the engine.

    The codec rejects vectors that are not finite, vectors wider than the widest vector of the engine, and
    vectors of more new widths than any method uses.
    """
    new_widths: set[int] = set()

    def handle(values: np.ndarray) -> Vector:
        if values.dtype != np.float32 or values.ndim > 1:
            raise DecodeError("a vector must be a one-dimensional array of float32")
        if values.ndim and values.size not in engine.pools:
            if len(new_widths) >= _NEW_WIDTHS_MAX or values.size > max(engine.pools):
                raise DecodeError("a vector must be as wide as a model or a part of one")
            new_widths.add(values.size)
        if not np.isfinite(values).all():
            raise DecodeError("a vector must be finite")
        return known_values_handle(engine, np.array(values))

    return Codec(*message_types(kinds), handle=handle)


def message_types(kinds: Iterable[type]) -> list[type]:
    """Return the classes of messages that actors of these classes may use: the classes in their modules.

    If two classes have the same name, the one nearer to the given classes is used.
    """
    found: dict[str, type] = {}
    pending = [base.__module__ for kind in kinds for base in kind.__mro__ if base is not object]
    pending += [name for name in sorted(sys.modules) if name.startswith("protocols.membership")]
    seen: set[str] = set()
    while pending:
        name = pending.pop(0)
        if name in seen or name not in sys.modules:
            continue
        seen.add(name)
        for each in [value for value in vars(sys.modules[name]).values() if isinstance(value, type)]:
            if is_dataclass(each) and each.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                found.setdefault(each.__name__, each)
            if each.__module__.startswith("protocols."):
                pending.append(each.__module__)
    return [each for each in found.values() if not each.__module__.startswith("actors.")]

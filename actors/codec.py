"""Encoding of messages as msgpack, and computation of their encoded size without encoding them.

On the wire a dataclass is extension type 2, holding the packed array `[class name, *fields]`, and a tensor is
extension type 1, holding `[dtype, shape, raw bytes in C order]`. A vector that is a handle (its class sets
`immutable`) is extension type 3, with the same content. A simulation never makes these bytes: it only calls
`size`.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from math import prod
from operator import attrgetter
from typing import Any
from weakref import ref

import msgpack
import numpy as np

from actors.message import (
    Envelope,
    InProgress,
    LastingQuestion,
    Question,
    RepeatRequest,
    RoundMark,
    describe,
)
from actors.scan import Budget, Buffer, DecodeError, read_array_items, read_bytes_content, read_extension
from actors.source_location import definition_location

TENSOR = 1
DATACLASS = 2
HANDLE = 3
LARGE_BYTES = 2**15
"""Size from which copying costs more than writing or reading in pieces."""

# Dtypes with the same raw bytes on every machine, by name. Other names never reach numpy, which parses names
# as if they were source code.
_DTYPES = {
    str(dtype): dtype
    for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
    for dtype in (np.dtype(f"<{kind}"), np.dtype(f">{kind}"))
}
_LENGTH_MAX = 2**32 - 1  # msgpack counts bytes in at most 32 bits
_FIXED_EXTENSIONS = frozenset((1, 2, 4, 8, 16))  # lengths that msgpack writes without a length byte

Sizer = Callable[[Any, list[object]], int]
"""Function that computes the size of an object and extends a list: see `size`."""


def size(obj: object, alterable: list[object] | None = None) -> int:
    """Return the length in bytes of `Codec.encode(obj)`, without reading any tensor's values.

    alterable: a list, to which this function appends each part of `obj` that its owner could alter after
    sending it. Nearly all messages have no such part; `actors.values.with_immutable_message` then need not be
    called. Raises TypeError, naming the field, for any object that cannot be encoded.
    """
    return _SIZERS[type(obj)](obj, [] if alterable is None else alterable)


class Codec:
    """Encoder and decoder of messages of the given types.

    Both sides need the same types; the types of this package are always included. Tuples and lists are
    decoded as tuples, tensors as read-only numpy arrays, numpy scalars as Python numbers; all other objects
    are decoded as equal objects. Raises TypeError for a class that is not a frozen dataclass, and ValueError
    for two classes with the same name. handle: makes a handle from its array, and may raise DecodeError; None
    keeps the array.
    """

    def __init__(self, *message_types: type, handle: Callable[[np.ndarray], object] | None = None) -> None:
        self._types: dict[str, type] = {}
        self._handle = handle
        ours = (Envelope, Question, LastingQuestion, InProgress, RoundMark, RepeatRequest)
        for cls in dict.fromkeys((*ours, *message_types)):
            _require_message_type(cls)
            if cls.__name__ in self._types:
                raise ValueError(f"two message types have the same name: {self._types[cls.__name__]}, {cls}")
            self._types[cls.__name__] = cls

    def encode(self, obj: object) -> bytes:
        """Return `obj` as bytes. Raises TypeError as `size` does, and for types not given to this codec."""
        size(obj)  # rejects, naming the field, also objects that msgpack itself would accept
        return self._pack(obj)

    def pieces(self, obj: object) -> list[Buffer]:
        """Return the bytes of `encode` in pieces: arrays of `LARGE_BYTES` or more are views of their memory.

        Arrays inside dicts and arrays that are not contiguous are copied.

        Other large arrays must not change until they are written. Raises TypeError as `encode` does.
        """
        size(obj)
        found: list[Buffer] = []
        self._put(obj, found)
        return found

    def decode(self, data: Buffer) -> Any:
        """Return the object that `encode` turned into `data`. Large arrays in it are views of `data`.

        Raises DecodeError, and no other error, for all other bytes: also for objects nested more than 64
        deep, for objects that would take more memory than 32 times their length (plus a megabyte), and for
        values that a message class itself rejects.
        """
        try:
            whole = data if len(data) < LARGE_BYTES else memoryview(data)
            return self._unpack(whole, 0, Budget(len(data), frozenset((TENSOR, DATACLASS, HANDLE))))
        except DecodeError:
            raise
        except Exception as error:
            raise DecodeError(f"not an encoded message: {describe(error):.200}") from error

    def _pack(self, obj: object) -> bytes:
        # strict_types sends subclasses (and tuples) to _default instead of packing them as their base class.
        return msgpack.packb(obj, default=self._default, strict_types=True)

    def _default(self, obj: Any) -> object:
        cls = type(obj)
        if cls is tuple:
            return list(obj)
        if self._types.get(cls.__name__) is cls:
            values = [getattr(obj, name) for name in _field_names(cls)]
            return msgpack.ExtType(DATACLASS, self._pack([cls.__name__, *values]))
        if isinstance(obj, np.generic):
            return obj.item()
        if hasattr(cls, "__array__"):
            array = np.asarray(obj)
            return msgpack.ExtType(
                _array_code(cls), self._pack([str(array.dtype), list(array.shape), array.tobytes()])
            )
        raise TypeError(f"message type {cls.__name__!r} is unknown to this codec")

    def _put(self, obj: Any, found: list[Buffer]) -> None:
        """Append the pieces of an object to `found`; large tuples, lists, messages and arrays are split."""
        cls = type(obj)
        if size(obj) < LARGE_BYTES or cls in (str, bytes, dict):
            found.append(self._pack(obj))
        elif cls in (tuple, list):
            found.append(_array_head(len(obj)))
            for item in obj:
                self._put(item, found)
        elif self._types.get(cls.__name__) is cls:
            values = [getattr(obj, name) for name in _field_names(cls)]
            length = _items_head_size(1 + len(values)) + size(cls.__name__) + sum(map(size, values))
            found.append(_extension_head(DATACLASS, length) + _array_head(1 + len(values)))
            found.append(self._pack(cls.__name__))
            for value in values:
                self._put(value, found)
        elif hasattr(cls, "__array__"):
            array = np.asarray(obj)
            about = self._pack(str(array.dtype)) + self._pack(list(array.shape))
            about = _array_head(3) + about + _head(array.nbytes, _BYTES_HEADS)
            found.append(_extension_head(_array_code(cls), len(about) + array.nbytes) + about)
            found.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        else:
            found.append(self._pack(obj))  # raises

    def _unpack(self, data: Buffer, depth: int, budget: Budget) -> Any:
        budget.scan(data, depth)
        return self._made(data, depth, budget)

    def _made(self, data: Buffer, depth: int, budget: Budget) -> Any:
        """Return the object that scanned bytes encode.

        Large parts are decoded separately, so they are copied only once.
        """
        if len(data) >= LARGE_BYTES:
            if (extension := read_extension(data)) is not None:
                return self._extension(depth + 1, budget, *extension)
            if (items := read_array_items(data)) is not None:
                return tuple([self._made(item, depth, budget) for item in items])
        hook = partial(self._extension, depth + 1, budget)
        return msgpack.unpackb(data, use_list=False, strict_map_key=False, ext_hook=hook)

    def _extension(self, depth: int, budget: Budget, code: int, data: Buffer) -> object:
        if code in (TENSOR, HANDLE) and len(data) >= LARGE_BYTES:
            budget.scan(data, depth)
            items = read_array_items(data) or []
            content = (
                *[self._made(item, depth, budget) for item in items[:-1]],
                *map(read_bytes_content, items[-1:]),
            )
        else:
            content = self._unpack(data, depth, budget)
        match code, content:
            case int(code), (str(dtype), tuple(shape), bytes() | memoryview() as raw) if code != DATACLASS:
                array = _tensor_of(dtype, shape, raw)
                return array if code == TENSOR or self._handle is None else self._handle(array)
            case int(code), (str(name), *values) if code == DATACLASS:
                cls = self._types.get(name)
                if cls is None:
                    raise DecodeError(f"message type {name!r:.60} is unknown to this codec")
                return cls(**dict(zip(_field_names(cls), values, strict=True)))
        raise DecodeError(f"malformed extension of type {code}")


def _array_code(cls: type) -> int:
    return HANDLE if getattr(cls, "immutable", False) else TENSOR


def _tensor_of(name: str, shape: tuple[Any, ...], raw: Buffer) -> np.ndarray:
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise DecodeError(f"unknown dtype {name!r:.60}")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise DecodeError("the lengths of a shape must be whole numbers of 0 or more")
    if prod(shape) * dtype.itemsize != len(raw):
        raise DecodeError(f"{len(raw)} bytes do not match a {dtype} of shape {shape!r:.60}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _require_message_type(cls: type) -> None:
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        line = definition_location(cls)
        must = f"{cls.__name__} must be a frozen dataclass: write @dataclass(frozen=True)"
        raise TypeError(f"{line}: {must}" if line else must)


def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls) if field.init)


def _numeric_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a name, without torch's prefix. Raises TypeError unless it is numeric."""
    dtype = _DTYPES.get(name.removeprefix("torch."))
    if dtype is None:
        known = f"use one of {', '.join(list(_DTYPES)[:1] + [key for key in _DTYPES if key[0] in 'iufc'])}"
        raise TypeError(f"dtype {name:.60} cannot be sent; {known}: convert the tensor before you send it")
    return dtype


# --- sizes: one function for each exact class, because a subclass would not be decoded as itself -----------


def _require_encodable_length(length: int) -> int:
    if length > _LENGTH_MAX:
        raise TypeError(f"{length} bytes are more than msgpack can encode")
    return length


_BYTES_HEADS = ((0xC4, 1), (0xC5, 2), (0xC6, 4))
_EXTENSION_HEADS = ((0xC7, 1), (0xC8, 2), (0xC9, 4))
_ARRAY_HEADS = ((0xDC, 2), (0xDD, 4))


def _array_head(count: int) -> bytes:
    return bytes((0x90 + count,)) if count < 16 else _head(count, _ARRAY_HEADS)


def _extension_head(code: int, length: int) -> bytes:
    return _head(length, _EXTENSION_HEADS) + bytes((code,))


def _head(count: int, heads: tuple[tuple[int, int], ...]) -> bytes:
    """Return msgpack's header for `count` bytes or items.

    heads: (first byte, width of the count in bytes) of each kind of header, narrowest first.
    """
    first, width = next((first, width) for first, width in heads if count < 1 << 8 * width)
    return bytes((first,)) + count.to_bytes(width, "big")


def _items_head_size(count: int) -> int:
    return 1 if count < 16 else 3 if count <= 0xFFFF else 5


def _size_of_binary(length: int) -> int:
    if length <= 0xFF:
        return length + 2
    return length + 3 if length <= 0xFFFF else _require_encodable_length(length) + 5


def _size_of_extension(length: int) -> int:
    if 0xFF < length <= 0xFFFF:
        return length + 4
    if length <= 0xFF:
        return length + (2 if length in _FIXED_EXTENSIONS else 3)
    return _require_encodable_length(length) + 6


def _size_of_int(value: int, _: object = None) -> int:
    if -32 <= value < 128:
        return 1
    bits = value.bit_length() if value >= 0 else (~value).bit_length() + 1
    if bits > 64:
        raise TypeError(f"the integer {value} does not fit into 64 bits")
    return 2 if bits <= 8 else 3 if bits <= 16 else 5 if bits <= 32 else 9


def _size_of_str(value: str, _: object = None) -> int:
    length = len(value) if value.isascii() else len(value.encode())
    return length + 1 if length < 32 else _size_of_binary(length)


def _size_of_tuple(value: tuple | list, alterable: list[object]) -> int:
    total = _items_head_size(len(value))
    for item in value:
        total += _SIZERS[type(item)](item, alterable)
    return total


def _size_of_list(value: list, alterable: list[object]) -> int:
    alterable.append(value)
    return _size_of_tuple(value, alterable)


def _size_of_dict(value: dict, alterable: list[object]) -> int:
    alterable.append(value)
    total = _items_head_size(len(value))
    for key, item in value.items():
        total += _SIZERS[type(key)](key, alterable) + _SIZERS[type(item)](item, alterable)
    return total


def _size_of_scalar(value: np.generic, _: list[object]) -> int:
    return size(value.item())


def _size_of_handle(value: Any, _: list[object]) -> int:
    return _tensor_size(value.dtype, value.shape)


def _size_of_tensor(value: Any, alterable: list[object]) -> int:
    alterable.append(value)
    return _tensor_size(value.dtype, value.shape)


def can_be_altered(cls: type) -> bool:
    """Return whether objects of `cls` are arrays that can change; classes of handles set `immutable`."""
    return _is_array(cls) and getattr(cls, "immutable", False) is not True


def _is_array(cls: type) -> bool:
    return hasattr(cls, "__array__") and not issubclass(cls, np.generic)


@lru_cache(maxsize=1024)  # a run uses few shapes, millions of times
def _tensor_size(dtype: object, shape: tuple[int, ...]) -> int:
    numeric = _numeric_dtype(str(dtype))
    raw = _size_of_binary(prod(shape) * numeric.itemsize)
    head = _items_head_size(3) + _size_of_str(str(numeric))
    return _size_of_extension(head + _size_of_tuple(tuple(shape), []) + raw)


def _dataclass_sizer(cls: type) -> Sizer:
    names = _field_names(cls)
    unseen = len(names) < len(fields(cls))  # some fields are not sent: their content is not inspected
    fixed = _items_head_size(1 + len(names)) + _size_of_str(cls.__name__)
    if len(names) < 2:
        values_of: Callable[[object], Any] = lambda obj: [getattr(obj, name) for name in names]  # noqa: E731
    else:
        values_of = attrgetter(*names)

    def dataclass_size(obj: object, alterable: list[object]) -> int:
        total = fixed
        try:
            for value in values_of(obj):
                total += _SIZERS[type(value)](value, alterable)
        except TypeError:
            for name in names:  # again, to name the field in the error
                try:
                    size(getattr(obj, name))
                except TypeError as error:
                    raise TypeError(f"{cls.__name__}.{name}: {error}") from None
            raise
        if unseen:
            alterable.append(obj)
        return _size_of_extension(total)

    return dataclass_size


_last_sized: tuple[Callable[[], object], int] = (lambda: None, 0)  # a weak reference, and its size in bytes
_size_of_name = lru_cache(maxsize=1 << 16)(_size_of_str)  # many connections of few names
_ENVELOPE_HEAD = _items_head_size(1 + len(_field_names(Envelope))) + _size_of_str(Envelope.__name__)


def head_size(sender: str, receiver: str) -> int:
    """Return the head's size in bytes in envelopes from `sender` to `receiver`, for `size_behind_head`."""
    return _ENVELOPE_HEAD + _size_of_name(sender) + _size_of_name(receiver)


def size_behind_head(envelope: Envelope, head_bytes: int, alterable: list[object]) -> int:
    """Return `size` of an envelope with a known `head_size`: simulations need it for every message."""
    global _last_sized
    message = envelope.message
    reference, body_bytes = _last_sized
    if reference() is not message or message is None:  # otherwise it was just sent to another receiver
        kind = type(message)
        try:
            body_bytes = _SIZERS[kind](message, alterable)
        except TypeError as error:
            raise TypeError(f"Envelope.message: {error}") from None
        if not alterable and kind.__weakrefoffset__:  # else it may change, or allows no weak reference
            _last_sized = ref(message), body_bytes
    total = head_bytes + body_bytes
    request, answer_to, failure = envelope.request, envelope.answer_to, envelope.error
    if request is answer_to is failure is None:
        return _size_of_extension(total + 3)
    for value in (request, answer_to, failure):
        total += _SIZERS[type(value)](value, alterable)
    return _size_of_extension(total)


class _Sizers(dict[type, Sizer]):
    """Size functions by class; each is determined when an object of its class is first sized."""

    def __missing__(self, cls: type) -> Sizer:
        sizer = self[cls] = self._find(cls)
        return sizer

    def _find(self, cls: type) -> Sizer:
        if issubclass(cls, (np.bool_, np.integer, np.floating)) and cls is not np.longdouble:
            return _size_of_scalar
        if _is_array(cls):
            return _size_of_tensor if can_be_altered(cls) else _size_of_handle
        if is_dataclass(cls):
            _require_message_type(cls)
            return _dataclass_sizer(cls)
        raise TypeError(
            f"{cls.__name__} cannot be sent; allowed: frozen dataclasses, tensors, numbers, str, bytes, "
            "bool, None, and tuples, lists and dicts of these"
        )


_SIZERS = _Sizers(
    {
        type(None): lambda _, __: 1,
        bool: lambda _, __: 1,
        float: lambda _, __: 9,
        int: _size_of_int,
        str: _size_of_str,
        bytes: lambda value, _: _size_of_binary(len(value)),
        tuple: _size_of_tuple,
        list: _size_of_list,
        dict: _size_of_dict,
    }
)

"""The codec: exact round trips, exact sizes without encoding, and refusals that name the field."""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from actors.codec import Codec, size
from actors.message import Envelope


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Model:
    round: int
    params: Any
    weights: dict[str, float] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class Both:
    first: Any
    second: Any


@dataclass(frozen=True)
class Derived:
    value: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")
        object.__setattr__(self, "double", 2 * self.value)


@dataclass
class Mutable:
    value: int


class Handle:
    """Parameters whose numbers do not exist yet, like the engine's handles."""

    immutable = True
    shape = (2, 3)
    dtype = "float32"

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise AssertionError("somebody wanted the numbers")


CODEC = Codec(Empty, Model, Both, Derived)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=20).map(tuple)
        | st.dictionaries(scalars, inner, max_size=20)
        | st.builds(Both, inner, inner)
        | st.builds(Model, st.integers(0, 1000), inner)
        | st.just(Empty())
    ),
    max_leaves=20,
)


@given(values)
def test_whatever_may_be_sent_comes_back_equal_and_has_the_predicted_size(value: object) -> None:
    data = CODEC.encode(value)
    assert CODEC.decode(data) == value
    assert size(value) == len(data)


@given(
    hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc"), hnp.array_shapes(min_dims=0))
)
def test_tensors_come_back_bit_for_bit(array: np.ndarray) -> None:
    data = CODEC.encode(Both(array, 1))
    back = CODEC.decode(data).first
    assert size(Both(array, 1)) == len(data)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert not back.flags.writeable


# The lengths and numbers at which msgpack changes its header.
EDGES = [0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 65535, 65536]


@pytest.mark.parametrize("n", EDGES)
def test_sizes_at_every_change_of_header(n: int) -> None:
    cases = [
        "x" * n,
        b"x" * n,
        (None,) * n,
        dict.fromkeys(range(n)),
        np.zeros(n, np.uint8),
        Both("x" * n, "é" * n),
    ]
    for case in cases:
        assert size(case) == len(CODEC.encode(case))


@pytest.mark.parametrize("bits", range(65))
def test_sizes_of_integers_around_powers_of_two(bits: int) -> None:
    for value in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1):
        if -(2**63) <= value < 2**64:
            assert size(value) == len(CODEC.encode(value)), value


def test_size_of_fixed_extensions() -> None:
    # Extensions of 1, 2, 4, 8 and 16 bytes carry no length byte; Empty's content has 7, a shorter name fewer.
    for n in range(1, 20):
        cls: type = dataclass(frozen=True)(type("N" * n, (), {}))
        assert size(cls()) == len(Codec(cls).encode(cls()))


def test_the_wire_format() -> None:
    model = Model(3, np.array([[1.0], [2.0]], np.float32))
    outer = msgpack.unpackb(CODEC.encode(model))
    assert outer.code == 2
    name, round_, tensor, weights = msgpack.unpackb(outer.data)
    assert (name, round_, weights) == ("Model", 3, {})
    assert tensor.code == 1
    assert msgpack.unpackb(tensor.data) == ["float32", [2, 1], np.array([1, 2], np.float32).tobytes()]


def test_torch_tensors_are_tensors() -> None:
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        tensor = torch.arange(6).reshape(2, 3).to(dtype).T  # not contiguous
        data = CODEC.encode(Both(tensor, None))
        assert size(Both(tensor, None)) == len(data)
        assert np.array_equal(CODEC.decode(data).first, tensor.numpy())


def test_the_size_of_a_handle_needs_no_numbers() -> None:
    assert size(Model(1, Handle())) == size(Model(1, np.zeros((2, 3), np.float32)))


def test_lists_become_tuples_and_numpy_scalars_numbers() -> None:
    value = Both([1, [2]], (np.float32(0.5), np.int64(3), np.bool_(True), np.float64(0.1)))
    data = CODEC.encode(value)
    assert size(value) == len(data)
    back = CODEC.decode(data)
    assert back == Both((1, (2,)), (0.5, 3, True, 0.1))
    assert [type(item) for item in back.second] == [float, int, bool, float]


def test_nan_survives() -> None:
    assert math.isnan(CODEC.decode(CODEC.encode(math.nan)))


def test_derived_fields_do_not_travel() -> None:
    assert CODEC.decode(CODEC.encode(Derived(4))).double == 8
    assert msgpack.unpackb(msgpack.unpackb(CODEC.encode(Derived(4))).data) == ["Derived", 4]


def test_envelopes_are_always_known() -> None:
    for envelope in (
        Envelope("client-1", "client-2", Model(1, (0.5,)), request=7),
        Envelope("client-2", "client-1", None, answer_to=7, error="ValueError: no"),
    ):
        data = CODEC.encode(envelope)
        assert CODEC.decode(data) == envelope
        assert size(envelope) == len(data)


class Color(IntEnum):
    RED = 1


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Both(1, {2, 3}), r"Both\.second: set cannot be sent; allowed: frozen dataclasses, tensors,"),
        (Both((1, [object()]), 2), r"Both\.first: object cannot be sent"),
        (Both(1, Model(1, {"a": date(2020, 1, 1)})), r"Both\.second: Model\.params: date cannot be sent"),
        (Both(Mutable(1), 1), r"Both\.first: .*test_codec\.py:\d+: Mutable must be a frozen dataclass"),
        (Both(Color.RED, 1), r"Both\.first: Color cannot be sent"),
        (Both(Pair(1, 2), 1), r"Both\.first: Pair cannot be sent"),
        (Both(bytearray(b"x"), 1), r"Both\.first: bytearray cannot be sent"),
        (Both(2**64, 1), r"Both\.first: the integer 18446744073709551616 does not fit into 64 bits"),
        (Both(-(2**63) - 1, 1), r"Both\.first: the integer .* does not fit"),
        (Both(np.array(["a"]), 1), r"Both\.first: dtype <U1 cannot be sent; use one of bool, int8, "),
        (Both(np.array([None]), 1), r"Both\.first: dtype object cannot be sent"),
        (Both(np.complex64(1), 1), r"Both\.first: complex64 cannot be sent"),
        (Both(np.longdouble(1), 1), r"Both\.first: longdouble cannot be sent"),
        (Both(torch.zeros(2, dtype=torch.bfloat16), 1), r"Both\.first: dtype torch\.bfloat16 cannot be sent"),
        (Envelope("a", "b", Both(1, {2})), r"Envelope\.message: Both\.second: set cannot be sent"),
    ],
)
def test_refusals_name_the_field(value: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        size(value)
    with pytest.raises(TypeError, match=text):
        CODEC.encode(value)


def test_both_sides_need_the_type() -> None:
    with pytest.raises(TypeError, match="'Model' is unknown to this codec"):
        Codec(Both).encode(Both(1, Model(1, ())))
    with pytest.raises(ValueError, match="'Model' is unknown to this codec"):
        Codec(Both).decode(CODEC.encode(Both(1, Model(1, ()))))


def test_a_codec_takes_frozen_dataclasses_with_different_names() -> None:
    with pytest.raises(TypeError, match="Mutable must be a frozen dataclass"):
        Codec(Mutable)
    with pytest.raises(TypeError, match=r"^int must be a frozen dataclass"):
        Codec(int)
    other: type = dataclass(frozen=True)(type("Model", (), {}))
    with pytest.raises(ValueError, match="two message types have the same name"):
        Codec(Model, other)
    assert Codec(Model, Model).decode(CODEC.encode(Model(1, ()))) == Model(1, ())


def extension(code: int, *content: object) -> bytes:
    return msgpack.packb(msgpack.ExtType(code, msgpack.packb(content)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        CODEC.encode(Both(1, 2))[:-1],
        CODEC.encode(1) + b"\x00",
        extension(2, "Both", 1),
        extension(2, "Both", 1, 2, 3),
        extension(2, 7),
        extension(2, "Derived", -1),
        extension(1, "float32", [2], b"1234"),
        extension(1, "O", [1], b"12345678"),
        extension(1, "nonsense", [1], b"1"),
        extension(1, "float32", ["a"], b"1234"),
        extension(1, "float32"),
        extension(3, 1),
        msgpack.packb({(): {}}).replace(b"\x90", b"\x80"),  # a dict as a key
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        CODEC.decode(data)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    with suppress(ValueError):
        CODEC.decode(data)


def test_hostile_nesting_is_refused() -> None:
    data = b"\xc0"
    for _ in range(2_000):
        data = msgpack.packb(msgpack.ExtType(2, data))
    with pytest.raises(ValueError):
        CODEC.decode(data)

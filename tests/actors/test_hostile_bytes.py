"""Foreign bytes: decoded, or refused with the codec's own error, and never at the price of time or memory."""

import random
import struct
import tracemalloc
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.codec import Codec
from actors.message import Envelope
from actors.scan import Budget, DecodeError


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


@dataclass(frozen=True)
class Choosy:
    """Refuses values in many ways."""

    value: Any

    def __post_init__(self) -> None:
        match self.value:
            case 0:
                raise ZeroDivisionError("zero")
            case 1:
                raise KeyError(1)
            case str():
                self.value.nothing  # noqa: B018
            case tuple():
                raise AssertionError


CODEC = Codec(Pair, Choosy)


def decoded(data: bytes) -> object:
    """What it decodes to, or None if it is refused; any other error is the test's."""
    try:
        return CODEC.decode(data)
    except DecodeError as error:
        assert len(str(error)) < 400
        return None


def array(count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count)


def extension(code: int, content: object) -> bytes:
    return msgpack.packb(msgpack.ExtType(code, msgpack.packb(content)))


def nested(levels: int) -> bytes:
    data = msgpack.packb(["Choosy", 5])
    for _ in range(levels):
        data = msgpack.packb(msgpack.ExtType(2, data))
        data = b"\x92" + msgpack.packb("Choosy") + data
    return msgpack.packb(msgpack.ExtType(2, data))


HOSTILE = {
    "a dtype that is no Python": bytes.fromhex("c7060193a12c90c400"),
    "a dtype of 600 kB": extension(1, ["(" * 600_000, [], b""]),
    "a dtype of 600 kB that numpy can read": extension(1, ["i4," * 200_000, [], b""]),
    "objects": extension(1, ["object", [1], bytes(8)]),
    "text": extension(1, ["<U1", [1], bytes(4)]),
    "1 MB of empty maps": array(2**20) + b"\x80" * 2**20,
    "98 kB of small maps": array(2**15) + b"\x81\x01\x01" * 2**15,
    "arrays that claim more than there is": array(2**32 - 1),
    "arrays in one another that claim it": b"".join(array(2**19) for _ in range(60)) + b"\xc0" * 2**19,
    "a map that claims it": b"\xdf\xff\xff\xff\xff",
    "arrays 65 deep": b"\x91" * 65 + b"\xc0",
    "arrays a million deep": b"\x91" * 10**6 + b"\xc0",
    "messages 65 deep": nested(65),
    "an extension without its end": b"\xc9\xff\xff\xff\xff\x02",
    "a moment": msgpack.packb(msgpack.Timestamp(1)),
    "an unknown extension": extension(7, 1),
    "text that is no text": b"\xa2\xff\xff",
    "a map as a key": b"\x81\x80\x01",
    "no object": b"\xc1",
    "nothing": b"",
    "too much": b"\x01\x01",
    "a negative shape": extension(1, ["int8", [-1], b"abc"]),
    "a huge shape": extension(1, ["int8", [2**63, 2**63, 0], b""]),
    "a shape of many": extension(1, ["int8", [1] * 100, b"a"]),
    "a shape of truth": extension(1, ["int8", [True], b"a"]),
    "a message that divides by zero": extension(2, ["Choosy", 0]),
    "a message without its key": extension(2, ["Choosy", 1]),
    "a message without its attribute": extension(2, ["Choosy", "text"]),
    "a message that asserts": extension(2, ["Choosy", []]),
    "an envelope of one": extension(2, ["Envelope", "a"]),
}


@pytest.mark.long
@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_hostile_is_refused_without_cost(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            CODEC.decode(HOSTILE[what])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**20 + 8 * len(HOSTILE[what])


def test_messages_as_deep_as_allowed() -> None:
    assert decoded(b"\x91" * 60 + b"\xc0") is not None
    assert decoded(nested(20)) is not None


@pytest.mark.long
def test_many_small_things_are_a_message() -> None:
    edges = tuple((i % 100, i % 90) for i in range(50_000))
    weights = {f"client-{i}": {"a": i / 7, "b": 0.5} for i in range(5_000)}
    for value in (edges, weights, tuple(range(100_000)), ("ä",) * 50_000, np.zeros(10**6).tolist()):
        assert CODEC.decode(CODEC.encode(Pair(value, 1))) == Pair(
            tuple(value) if type(value) is list else value, 1
        )


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.sampled_from(["float32", ">i2", "bool", "complex64"]).map(lambda name: np.ones((2, 1), name)),
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=5)
        | st.builds(Pair, inner, inner)
        | st.builds(Envelope, st.just("a"), st.just("b"), inner)
    ),
    max_leaves=8,
)


@given(values, st.integers(0, 2**32), st.integers(1, 5))
def test_spoiled_messages_decode_or_are_refused(value: object, seed: int, times: int) -> None:
    data, draws = CODEC.encode(value), random.Random(seed)
    for _ in range(times):
        data = spoiled(data, draws)
    decoded(data)


def spoiled(data: bytes, draws: random.Random) -> bytes:
    place = draws.randrange(len(data) + 1)
    other, byte = draws.randrange(len(data) + 1), bytes([draws.randrange(256)])
    match draws.randrange(5):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + byte + data[place:]
        case 2:
            return data[:place] + byte + data[place + 1 :]
        case 3:
            return data[:place] + data[other:]
        case _:
            return data[:place] + data[min(place, other) : max(place, other)] + data[place:]


@given(st.binary(max_size=40) | st.lists(st.sampled_from(range(0x80, 0xE0)), max_size=20).map(bytes))
def test_the_look_ahead_finds_whole_what_msgpack_finds_whole(data: bytes) -> None:
    def raw(code: int, content: bytes) -> None:
        return None

    try:
        Budget(len(data), frozenset(range(256))).scan(data, 0)
        whole = True
    except DecodeError:
        whole = False
    try:
        msgpack.unpackb(data, raw=True, use_list=False, strict_map_key=False, ext_hook=raw)
        expected = True
    except (ValueError, TypeError) as error:
        # A key that cannot be one, or no such moment, is whole all the same.
        expected = isinstance(error, TypeError) or "timestamp" in str(error).lower()
    assert whole == expected

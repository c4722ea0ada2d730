"""Large arrays on the wire: written without copying them, read with no copy but that of the bytes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from actors import codec
from actors.message import Envelope
from actors.scan import DecodeError
from tests.actors.test_codec import CODEC, Both, Empty, Handle, Model, values

ARRAYS = hnp.arrays(
    st.sampled_from(["?", "<i2", "<f2", "<f4", ">f8", "<c8"]), hnp.array_shapes(min_dims=0, max_side=5)
)


@contextmanager
def large_from(size_bytes: int) -> Iterator[None]:
    before, codec.LARGE_BYTES = codec.LARGE_BYTES, size_bytes
    try:
        yield
    finally:
        codec.LARGE_BYTES = before


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        same = first.dtype == second.dtype and first.shape == second.shape
        return same and first.tobytes() == second.tobytes()
    if isinstance(first, Both):
        return equal(first.first, second.first) and equal(first.second, second.second)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(first == second)


@given(values | ARRAYS | st.tuples(values, ARRAYS) | st.builds(Both, values, ARRAYS), st.integers(20, 60))
def test_pieces_are_the_message_and_are_read_like_it(value: object, large: int) -> None:
    whole = CODEC.encode(value)
    plain = CODEC.decode(whole)
    with large_from(large):
        assert b"".join(CODEC.pieces(value)) == whole
        assert equal(CODEC.decode(whole), plain)


@given(values | ARRAYS, st.data())
def test_damaged_bytes_are_refused_or_read_as_before(value: object, data: st.DataObject) -> None:
    spoiled = bytearray(CODEC.encode(value))
    place = data.draw(st.integers(0, len(spoiled) - 1))
    spoiled[place] = data.draw(st.integers(0, 255))
    found: list[Any] = []
    for large in (20, 2**30):
        with large_from(large):
            try:
                found.append(CODEC.decode(bytes(spoiled)))
            except DecodeError as error:
                found.append(type(error))
    assert repr(found[0]) == repr(found[1])


def peak_of(action: Any) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def envelope(content: object) -> Envelope:
    return Envelope("a", "b", Model(3, content, weights={"c": 0.5}))


def test_a_large_array_is_not_copied() -> None:
    array = np.arange(2**20, dtype=np.float32)
    message = envelope((Empty(), array))
    pieces = CODEC.pieces(message)
    assert any(isinstance(piece, memoryview) and piece.nbytes == array.nbytes for piece in pieces)
    data = b"".join(pieces)
    assert peak_of(lambda: CODEC.pieces(message)) < 2**20  # msgpack has buffers of its own
    assert peak_of(lambda: CODEC.decode(data)) < 2**20  # msgpack has buffers of its own
    decoded = CODEC.decode(data).message.params[1]
    np.testing.assert_array_equal(decoded, array)
    assert not decoded.flags.writeable


@pytest.mark.parametrize(
    "values_",
    [torch.arange(2**15, dtype=torch.float64).reshape(2, -1).T, np.arange(2**15)[::2]],
    ids=["a tensor, turned", "every second number"],
)
def test_arrays_that_are_not_in_order_are_sent_too(values_: Any) -> None:
    found = CODEC.decode(b"".join(CODEC.pieces(envelope(values_)))).message.params
    np.testing.assert_array_equal(found, np.asarray(values_))


def test_large_bytes_and_texts_are_what_they_were() -> None:
    message = envelope((bytes(2**17), "a" * 2**17, {"key": bytes(2**16)}))
    assert CODEC.decode(b"".join(CODEC.pieces(message))) == message


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(TypeError, match="is unknown to this codec"):
        codec.Codec(Model).pieces(Model(1, Both(np.zeros(2**16), 1)))
    with pytest.raises(TypeError, match=r"Model.params: "):
        CODEC.pieces(Model(1, {1, 2}))
    with pytest.raises(AssertionError, match="somebody wanted the numbers"), large_from(1):
        CODEC.pieces(Handle())

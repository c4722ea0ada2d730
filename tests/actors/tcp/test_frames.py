"""Frames: cut as they were made, however the bytes come, and never larger than allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.tcp.frames import FrameError, FrameReader, with_length_header


@given(st.lists(st.binary(max_size=50) | st.just(bytes(40_000))), st.lists(st.integers(1, 30)))
def test_frames_come_out_as_they_went_in(contents: list[bytes], lengths: list[int]) -> None:
    stream = b"".join(b"".join(with_length_header([content[:7], content[7:]])) for content in contents)
    reader, found = FrameReader(40_000), []
    for length in lengths:
        found += reader.feed(stream[:length])
        stream = stream[length:]
    found += reader.feed(stream)
    assert [bytes(frame) for frame in found] == contents
    assert reader.held_bytes == 0


def test_a_long_frame_is_refused_when_its_length_has_come() -> None:
    reader = FrameReader(10)
    assert reader.feed(b"\x00\x00\x00") == []
    with pytest.raises(FrameError, match="a frame of 2,147,483,648 bytes; at most 10 are allowed"):
        FrameReader(10).feed(b"\x80\x00\x00\x00")
    with pytest.raises(FrameError, match="a frame of 11 bytes"):
        reader.feed(b"\x0b")


def test_what_is_held_is_known() -> None:
    reader = FrameReader(100)
    reader.feed(b"\x00\x00\x00\x05ab")
    assert reader.held_bytes == 6
    assert reader.feed(b"cde\x00") == [b"abcde"]
    assert reader.held_bytes == 1

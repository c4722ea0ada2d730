"""Frames: what travels on a connection, each behind its length in four bytes, most significant first."""

from actors.scan import Buffer

HEADER_BYTES = 4
_VIEW_BYTES = 2**15  # longer frames are not copied out of what has come


class FrameError(ValueError):
    """Bytes that are no frames, or frames that are too long."""


def frame_of(pieces: list[Buffer]) -> list[Buffer]:
    """A frame that holds these pieces."""
    return [sum(map(len, pieces)).to_bytes(HEADER_BYTES, "big"), *pieces]


class FrameReader:
    """Cuts what comes on a connection into frames of at most `largest` bytes.

    A longer one is refused when its length has come. Nothing is allocated for what was merely announced.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._held: list[bytes] = []  # of the frame that is not whole yet, with its header
        self.held_bytes = 0
        self._needed_bytes = HEADER_BYTES

    def feed(self, data: bytes) -> list[Buffer]:
        """The frames that are whole now. Raises FrameError."""
        if self.held_bytes:
            self._held.append(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._needed_bytes:
                return []
            data = b"".join(self._held)
        frames, start = [], 0
        view, self._needed_bytes = memoryview(data), HEADER_BYTES
        while len(data) - start >= HEADER_BYTES:
            length = int.from_bytes(data[start : start + HEADER_BYTES], "big")
            if length > self.largest:
                raise FrameError(f"a frame of {length:,} bytes; at most {self.largest:,} are allowed")
            end = start + HEADER_BYTES + length
            if end > len(data):
                self._needed_bytes = HEADER_BYTES + length
                break
            whole = slice(start + HEADER_BYTES, end)
            frames.append(view[whole] if length > _VIEW_BYTES else data[whole])
            start = end
        self._held = [data[start:]] if start < len(data) else []
        self.held_bytes = len(data) - start
        return frames

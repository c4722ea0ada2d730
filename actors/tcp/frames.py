"""Frames on a connection, each preceded by its length in four bytes, most significant first."""

from actors.scan import Buffer

HEADER_BYTES = 4
_VIEW_BYTES = 2**15  # longer frames are views of the received bytes, not copies


class FrameError(ValueError):
    """Error: bytes that are not frames, or frames that are too long."""


def with_length_header(pieces: list[Buffer]) -> list[Buffer]:
    """Return the pieces of a frame, preceded by the header with their total length."""
    return [sum(map(len, pieces)).to_bytes(HEADER_BYTES, "big"), *pieces]


class FrameReader:
    """Splitter of the bytes of a connection into frames of at most `largest` bytes.

    A longer frame is rejected as soon as its length is known. Memory is allocated only for received bytes.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._held: list[bytes] = []  # bytes of the incomplete frame, with its header
        self.held_bytes = 0
        self._needed_bytes = HEADER_BYTES

    def feed(self, data: bytes) -> list[Buffer]:
        """Return the frames that are now complete. Raises FrameError."""
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

"""Append-only file of frames. If the writer crashes, all complete frames are readable."""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

FRAME_BYTES_MAX = 1 << 30  # longer frames are invalid
_HEADER = struct.Struct("<II")  # size of the frame, and checksum over it and all earlier frames


class Journal:
    """A writer that appends frames to a file. Raises OSError."""

    def __init__(self, path: Path, size: int = 0, checksum: int = 0) -> None:
        """Open a file that contains `size` bytes of complete frames, the last with this `checksum`."""
        self._file = path.open("r+b" if size else "xb", buffering=0)
        self._file.truncate(size)
        self._file.seek(size)
        self.size, self.checksum = size, checksum

    @classmethod
    def continued(cls, path: Path, before: Path, size: int) -> Self:
        """Create a file that starts with the first `size` bytes of `before`."""
        if size == 0:
            return cls(path)
        checksum = 0
        for frame in frames(before, size):
            checksum = zlib.crc32(frame, checksum)
        with before.open("rb") as old, path.open("xb") as new:
            shutil.copyfileobj(old, new)
        return cls(path, size, checksum)

    def append(self, frame: bytes) -> None:
        """Append a non-empty frame. It survives the end of the process, but not a power failure."""
        self.checksum = zlib.crc32(frame, self.checksum)
        whole = _HEADER.pack(len(frame), self.checksum) + frame
        written = 0
        while written < len(whole):
            written += self._file.write(whole[written:]) or 0
        self.size += len(whole)

    def sync(self) -> None:
        """Flush all frames to the disk, to survive a power failure."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def frames(path: Path, size: int | None = None) -> Iterator[bytes]:
    """Yield the complete frames of a file or of its first `size` bytes. Raises OSError."""
    checksum = 0
    with path.open("rb") as file:
        while size is None or file.tell() < size:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            length, stated = _HEADER.unpack(header)
            if length == 0:  # zero padding at the end of a preallocated file
                return
            left = os.fstat(file.fileno()).st_size - file.tell()  # bounds the memory for a damaged length
            frame = file.read(min(length, FRAME_BYTES_MAX, left))
            checksum = zlib.crc32(frame, checksum)
            if len(frame) < length or checksum != stated:
                return
            yield frame

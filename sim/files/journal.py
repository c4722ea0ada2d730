"""A file to which frames are appended. If its writer crashes, all frames but the last are readable."""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

FRAME_BYTES_MAX = 1 << 30  # what is longer is none
_HEADER = struct.Struct("<II")  # bytes of the frame, and its checksum, in which all frames before it count


class Journal:
    """Appends frames to a file. Raises OSError."""

    def __init__(self, path: Path, size: int = 0, checksum: int = 0) -> None:
        """`size` bytes of whole frames are there already, the last one of this `checksum`."""
        self._file = path.open("r+b" if size else "xb", buffering=0)
        self._file.truncate(size)
        self._file.seek(size)
        self.size, self.checksum = size, checksum

    @classmethod
    def continued(cls, path: Path, before: Path, size: int) -> Self:
        """A new one that begins with the first `size` bytes of another."""
        if size == 0:
            return cls(path)
        checksum = 0
        for frame in frames(before, size):
            checksum = zlib.crc32(frame, checksum)
        with before.open("rb") as old, path.open("xb") as new:
            shutil.copyfileobj(old, new)
        return cls(path, size, checksum)

    def append(self, frame: bytes) -> None:
        """Once this returns, the frame, which is not empty, outlives the process, though not a power cut."""
        self.checksum = zlib.crc32(frame, self.checksum)
        whole = _HEADER.pack(len(frame), self.checksum) + frame
        written = 0
        while written < len(whole):
            written += self._file.write(whole[written:]) or 0
        self.size += len(whole)

    def sync(self) -> None:
        """Once this returns, all frames outlive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def frames(path: Path, size: int | None = None) -> Iterator[bytes]:
    """The frames of a file, or those of its first `size` bytes, up to the last whole one. Raises OSError."""
    checksum = 0
    with path.open("rb") as file:
        while size is None or file.tell() < size:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            length, stated = _HEADER.unpack(header)
            if length == 0:  # none is empty: here is what a file has that was only made longer
                return
            left = os.fstat(file.fileno()).st_size - file.tell()  # a damaged length asks for any memory
            frame = file.read(min(length, FRAME_BYTES_MAX, left))
            checksum = zlib.crc32(frame, checksum)
            if len(frame) < length or checksum != stated:
                return
            yield frame

"""SVHN: house numbers in street views, as MATLAB files."""

import io
import math
import struct
import zlib
from typing import Literal

import numpy as np

from sim.files import input_file
from sim.files.input_file import InputFile, too_large_message
from sim.learning.data.images import FolderLayout, ImageArrays, ImageData, ImageFolder

_FILES = ("train_32x32.mat", "test_32x32.mat")
_NAMES = ("X", "y")
_KINDS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "single", "double")
_ZERO = 10  # MATLAB counts from 1
_HEAD_BYTES, _PACKED = 128, 15  # header of a file; type of a compressed element


def _read_part(file: InputFile, data: ImageData) -> tuple[np.ndarray, np.ndarray]:
    """Read images X, uint8 [32, 32, 3, n] in the file, and labels y [n, 1], where 10 is the digit 0."""
    from scipy.io import loadmat, whosmat

    def parse(content: bytes) -> tuple[np.ndarray, np.ndarray]:
        taken = 0
        for name, shape, kind in whosmat(io.BytesIO(content)):
            if name not in _NAMES:
                continue
            if kind not in _KINDS:  # the content of a cell is unknown before it is unpacked
                raise file.refusal(f"has MATLAB's type {kind}; must have one of {', '.join(_KINDS)}", name)
            taken += math.prod(shape) * np.dtype(kind).itemsize
            if taken > input_file.LIMIT_BYTES:
                raise file.refusal(
                    f"contains {name} with shape {shape}, which exceeds the limit of "
                    f"{input_file.LIMIT_BYTES // 2**20} MiB"
                )
        found = loadmat(io.BytesIO(_uncompressed_matlab(content, file)), variable_names=_NAMES)
        return found["X"].transpose(3, 2, 0, 1), found["y"].reshape(-1)

    images, labels = file.parsed(
        parse, "a file of SVHN in the format MATLAB 5, with X [32, 32, 3, images] and y"
    )
    return data.checked(file, images, file, np.where(labels == _ZERO, 0, labels), "y")


def _read_folder(folder: ImageFolder, data: ImageData) -> ImageArrays:
    train, test = [_read_part(folder.file(name), data) for name in _FILES]
    return ImageArrays(*train, *test)


def _uncompressed_matlab(content: bytes, file: InputFile) -> bytes:
    """Return a MATLAB 5 file without compression, so that its size bounds the memory. Raises UserError.

    The header is followed by elements, each with a type, a length, and this many bytes. A compressed element
    contains another element.
    """
    found, order = io.BytesIO(), "<" if content[126:128] == b"IM" else ">"
    found.write(content[:_HEAD_BYTES])
    offset = _HEAD_BYTES
    while offset + 8 <= len(content):
        kind, length = struct.unpack_from(f"{order}II", content, offset)
        element = content[offset : offset + 8 + length]
        offset += 8 + length
        if kind == _PACKED:
            room = input_file.LIMIT_BYTES - found.tell()
            element = zlib.decompressobj().decompress(element[8:], room + 1)
        found.write(element)
        if found.tell() > input_file.LIMIT_BYTES:
            raise file.refusal(too_large_message(input_file.LIMIT_BYTES, unpacked=True))
    return found.getvalue()


class Svhn(ImageData):
    """99,289 color images of house numbers, 32x32 pixels, 10 classes: the digit in the middle.

    Each channel is standardized: in training it has mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (3, 32, 32)
    layouts = tuple(FolderLayout(folder, _FILES, _read_folder) for folder in ("svhn", "SVHN", ""))
    torchvision = "SVHN"

    name: Literal["svhn"]
    """Name of the data set."""

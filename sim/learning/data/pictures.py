"""Encoded images, PNG or JPEG say, as arrays of pixels: all of one size and with the same channels."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sim.errors import UserError, one_line
from sim.files import machine

NUMBERS_MAX = 15 * 10**8
"""More do not come from images: 6 GB once they are float32. MiniImageNet has 1.3 * 10**9."""

_NUMBER_BYTES = 5  # as a byte, and as float32

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")  # for others Pillow may start programs: Ghostscript for EPS
_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}
"""What images of a mode become, unless the data say it."""

_DEEP = ("I", "F")  # and "I;16": numbers that 8 bits do not hold

_DEEP_CHANNELS = re.compile("(?<!BGR);16")  # as Pillow calls how pixels are stored; "BGR;16" has 16 in all

RefuseRow = Callable[[int, str], UserError]
"""The error for what is wrong with the image at this place."""


def pixels(
    encoded: Iterable[bytes | None],
    count: int,
    mode: str | None,
    refuse: RefuseRow,
    *,
    size: int | None = None,
    remedy: str,
) -> np.ndarray:
    """uint8 [count, channels, height, width] of so many images: one channel if grey, 3 if coloured, or 4.

    mode: what the data convert images to, of Pillow's modes. size: of height and width, which images then are
    resized to, whatever their shape: bilinear, and blurred as far as they become smaller. remedy: how images
    are made alike, in words. Raises what `refuse` makes of a problem.
    """
    found = np.empty(0, np.uint8)
    for place, content in enumerate(encoded):
        try:
            image = _decoded(content, mode, size, count, remedy)
        except UserError as error:
            raise refuse(place, error.problem) from None
        except Exception as error:  # damaged bytes can make any decoder fail in any way
            # Of what Pillow does not know it says where that is in memory.
            reason = "" if isinstance(error, UnidentifiedImageError) else f": {one_line(error, 100)}"
            problem = f"holds no image, of {', '.join(_FORMATS)}, or a damaged one{reason}"
            raise refuse(place, problem) from None
        if not place:
            found = np.empty((count, *image.shape), np.uint8)
        elif image.shape != found.shape[1:]:
            sizes = f"an image of {_size(image)}, and the first is of {_size(found[0])}"
            raise refuse(place, f"holds {sizes}; all must be alike: {remedy}")
        found[place] = image
    return found


def _decoded(
    content: bytes | None, mode: str | None, size: int | None, count: int, remedy: str
) -> np.ndarray:
    if content is None:
        raise UserError(
            "holds no image; leave the row out before save_to_disk, which stores images themselves"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(content), formats=_FORMATS)
        wanted = mode or _MODES.get(image.mode, image.mode)
        if wanted not in _MODES.values():
            raise UserError(f"holds an image of the mode {wanted}; must be grey or RGB: {remedy}")
        if image.mode.startswith(_DEEP):  # `convert` would cut their numbers off at 255
            raise UserError(f"holds an image of the mode {image.mode}; must have 8 bits in each channel")
        if any(_DEEP_CHANNELS.search(str(tile.args)) for tile in image.tile):  # which Pillow cuts to 8
            raise UserError("holds an image with 16 bits in each channel; must have 8")
        width, height = (size, size) if size else image.size
        numbers = width * height * Image.getmodebands(wanted)
        most = min(NUMBERS_MAX, machine.room_bytes() / _NUMBER_BYTES)
        if count * numbers > most:  # by what its head says: nothing is unpacked yet
            shape = f"{width:,} x {height:,} pixels"
            raise UserError(f"holds an image of {shape}, and {count:,} such images do not fit in memory")
        found = ImageOps.exif_transpose(image).convert(wanted)  # as the package datasets does
        array = np.asarray(found.resize((size, size), Image.Resampling.BILINEAR) if size else found)
    return array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def _size(image: np.ndarray) -> str:
    channels, height, width = image.shape
    return f"{width} x {height} pixels with {channels} channel{'s' * (channels > 1)}"

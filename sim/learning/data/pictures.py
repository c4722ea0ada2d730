"""Encoded images, for example PNG or JPEG, as arrays of pixels, all of one size and number of channels."""

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
"""Largest count of numbers from images: 6 GB as float32. MiniImageNet has 1.3 * 10**9."""

_NUMBER_BYTES = 5  # as a byte, and as float32

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")  # for others Pillow may start programs: Ghostscript for EPS
_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}
"""Mode to which images are converted, by their original mode, unless the data set defines the mode."""

_DEEP = ("I", "F")  # and "I;16": more than 8 bits

_DEEP_CHANNELS = re.compile("(?<!BGR);16")  # Pillow's storage modes; "BGR;16" has 16 bits in total

RefuseRow = Callable[[int, str], UserError]
"""Error for a problem of the image at an index."""


def pixels(
    encoded: Iterable[bytes | None],
    count: int,
    mode: str | None,
    refuse: RefuseRow,
    *,
    size: int | None = None,
    remedy: str,
) -> np.ndarray:
    """Return `count` images as uint8 [count, channels, height, width]: 1 (gray), 3 (color) or 4 channels.

    mode: Pillow's mode to which the images are converted; None: each image becomes gray, RGB or RGBA, by its
    own mode. size: height and width to which images of any shape are resized: bilinear, and blurred if they
    become smaller. remedy: description of a way to make the images equal in shape. Raises the error that
    `refuse` makes of a problem.
    """
    found = np.empty(0, np.uint8)
    for index, content in enumerate(encoded):
        try:
            image = _decoded(content, mode, size, count, remedy)
        except UserError as error:
            raise refuse(index, error.problem) from None
        except Exception as error:  # damaged bytes can make any decoder fail in any way
            # Pillow's message for an unknown format contains a memory address.
            reason = "" if isinstance(error, UnidentifiedImageError) else f": {one_line(error, 100)}"
            problem = f"does not contain an intact image ({', '.join(_FORMATS)}){reason}"
            raise refuse(index, problem) from None
        if not index:
            found = np.empty((count, *image.shape), np.uint8)
        elif image.shape != found.shape[1:]:
            sizes = f"an image of {_size_text(image)}, but the first has {_size_text(found[0])}"
            raise refuse(index, f"contains {sizes}; all must be equal: {remedy}")
        found[index] = image
    return found


def _decoded(
    content: bytes | None, mode: str | None, size: int | None, count: int, remedy: str
) -> np.ndarray:
    if content is None:
        raise UserError(
            "contains no image; leave the row out before save_to_disk, which stores the images themselves"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(content), formats=_FORMATS)
        wanted = mode or _MODES.get(image.mode, image.mode)
        if wanted not in _MODES.values():
            raise UserError(f"contains an image of the mode {wanted}; must be gray or RGB: {remedy}")
        if image.mode.startswith(_DEEP):  # `convert` would clip values at 255
            raise UserError(f"contains an image of the mode {image.mode}; must have 8 bits in each channel")
        if any(_DEEP_CHANNELS.search(str(tile.args)) for tile in image.tile):  # Pillow reduces these to 8
            raise UserError("contains an image with 16 bits in each channel; must have 8")
        width, height = (size, size) if size else image.size
        numbers = width * height * Image.getmodebands(wanted)
        most = min(NUMBERS_MAX, machine.room_bytes() / _NUMBER_BYTES)
        if count * numbers > most:  # by its header: nothing is unpacked yet
            shape = f"{width:,} x {height:,} pixels"
            raise UserError(f"contains an image of {shape}, and {count:,} such images do not fit in memory")
        found = ImageOps.exif_transpose(image).convert(wanted)  # as the package datasets does
        array = np.asarray(found.resize((size, size), Image.Resampling.BILINEAR) if size else found)
    return array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def _size_text(image: np.ndarray) -> str:
    channels, height, width = image.shape
    return f"{width} x {height} pixels with {channels} channel{'s' * (channels > 1)}"

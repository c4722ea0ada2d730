"""Images of noise in place of data sets that are not there: speed and agreement need no others."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from sim.files.data_folder import DataFolder
from sim.learning.data.images import ImageArrays, ImageData


@contextmanager
def stand_ins(per_class: int) -> Iterator[None]:
    """While it is entered, every data set of images has so many of each class, and a fifth of it for tests.

    An image is the prototype of its class, and noise.
    """

    def read(data: ImageData, folder: DataFolder) -> ImageArrays:
        random = np.random.Generator(np.random.Philox(key=data.classes))
        prototypes = random.integers(0, 128, (data.classes, *data.input_shape), dtype=np.uint8)

        def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
            y = np.tile(np.arange(data.classes), count)
            return prototypes[y] + random.integers(0, 128, (len(y), *data.input_shape), dtype=np.uint8), y

        return ImageArrays(*drawn(per_class), *drawn(per_class // 5))

    with patch.object(ImageData, "read", read):
        yield

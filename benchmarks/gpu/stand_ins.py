"""Random images that replace missing data sets: speed and agreement do not depend on the images."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from sim.files.data_folder import DataFolder
from sim.learning.data.images import ImageArrays, ImageData


@contextmanager
def stand_ins(per_class: int) -> Iterator[None]:
    """Context in which image data sets have `per_class` images of each class, and a fifth for tests.

    Each image is the prototype of its class plus noise.
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

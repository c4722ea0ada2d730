"""Images in a folder for each class: the user's images, and CINIC-10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from actors.settings.quantities import Count, Within
from sim.errors import one_line, require_packages
from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile
from sim.files.named_files import DataFile
from sim.files.picture_folder import PictureFile, picture_parts
from sim.learning.data.dataset import Dataset, names_in_one_line
from sim.learning.data.images import FolderLayout, ImageArrays, ImageData, ImageFolder, dataset_of_pixels
from sim.learning.data.user_arrays import ArraysPart, UserSamples

_CINIC_10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def _pixels(pictures: Sequence[PictureFile], mode: str, size: int | None, remedy: str) -> np.ndarray:
    """Return uint8 [pictures, channels, height, width]. Raises UserError."""
    from sim.learning.data.pictures import pixels

    files = [picture.file for picture in pictures]
    contents = (file.content() for file in files)
    return pixels(
        contents,
        len(files),
        mode,
        lambda index, problem: files[index].refusal(problem),
        size=size,
        remedy=remedy,
    )


def _labels(pictures: Sequence[PictureFile], classes: Sequence[str]) -> np.ndarray:
    """Return the index of each picture's class, int64."""
    indices: Mapping[str, int] = {name: index for index, name in enumerate(classes)}
    return np.array([indices[picture.label] for picture in pictures])


def _class_names_text(classes: Sequence[str]) -> str:
    return one_line(names_in_one_line(classes), 400)


class OwnImages(UserSamples):
    """Folder of images with a folder for each class, `source/CLASS/*.png`.

    Alternatively `source/train/CLASS`, `source/test/CLASS` for testing, and one of the folders `val`, `valid`
    and `validation` for validation. Without `test`, the models are tested on the validation folder. Classes
    are in order of their names. Each channel is standardized: in training it has mean 0 and standard
    deviation 1.
    """

    name: Literal["images"]
    """Name of the data set."""
    source: DataFile
    """Folder, with a path relative to the current folder, the scenario's folder, or the data folder. Hidden
    files are left out, links are followed."""
    size: Annotated[Count, Within(1, 4096)] | None = None
    """Height and width to which images of any shape are resized: bilinear, with antialiasing. By default no
    image is resized, and all must have one size."""
    grey: bool = False
    """True: images become gray, with one channel; by default they have three channels, RGB."""
    client_folders: bool = False
    """True: each client has a separate folder, `CLIENT/CLASS/*.png`, for `partition = "natural"`, for example
    the domains of Office-Home."""

    @property
    def is_images(self) -> bool:
        return True

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the images, decoded once; see `picture_parts`. Raises UserError."""
        require_packages("vision", 'data.name = "images"', "PIL")
        source = folder.file("data.source", self.source)
        found = picture_parts(source, by_client=self.client_folders)
        found, notices = self.with_used_validation(found, source.key)
        classes = sorted({picture.label for picture in found["train"]})
        parts = {name: self._part(name, pictures, classes) for name, pictures in found.items()}
        dataset = dataset_of_pixels(parts, self, source.refusal, classes=len(classes))
        return replace(
            dataset,
            features=f"{dataset.features}; {len(classes):,} classes: {_class_names_text(classes)}",
            notices=(*dataset.notices, *notices),
        )

    def _part(self, name: str, pictures: Sequence[PictureFile], classes: Sequence[str]) -> ArraysPart:
        x = _pixels(pictures, "L" if self.grey else "RGB", self.size, "data.size = 32, for example")
        clients = np.array([picture.client for picture in pictures]) if self.client_folders else None
        return ArraysPart(
            (f"images of {name}", f"labels of {name}", f"clients of {name}"),
            x,
            _labels(pictures, classes),
            clients,
        )


def _read_cinic_10(folder: ImageFolder, data: ImageData) -> ImageArrays:
    require_packages("vision", folder.key, "PIL")
    root = InputFile(folder.key, folder.path)
    found = picture_parts(root, by_client=False, wanted=("train", "test"))
    arrays: list[np.ndarray] = []
    for name, pictures in found.items():
        part = InputFile(folder.key, folder.path / name)
        if (classes := sorted({picture.label for picture in pictures})) != list(_CINIC_10):
            raise part.refusal(
                f"has the classes {_class_names_text(classes)}; must have {_class_names_text(_CINIC_10)}"
            )
        images = _pixels(pictures, "RGB", None, "images of CINIC-10 have 32 x 32 pixels")
        arrays += data.checked(part, images, part, _labels(pictures, _CINIC_10), "labels")
    return ImageArrays(*arrays)


class Cinic10(ImageData):
    """180,000 color images, 32x32 pixels, 10 classes: the images of CIFAR-10, and others from ImageNet.

    Half of these images are for training. The 90,000 images in `valid` are not read. Each channel is
    standardized: in training it has mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (3, 32, 32)
    layouts = tuple(
        FolderLayout(folder, ("train", "test"), _read_cinic_10) for folder in ("cinic-10", "CINIC-10")
    )
    torchvision = None

    name: Literal["cinic-10"]
    """Name of the data set."""

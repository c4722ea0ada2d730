"""Data sets of images: locations of their files in the data folder, their checks, and their arrays."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from sim.errors import UserError
from sim.files.data_folder import FOLDER_VARIABLE, DataFolder
from sim.files.input_file import InputFile
from sim.learning.data.dataset import Dataset, LabelledData
from sim.learning.data.kept import read_once
from sim.learning.data.raw_arrays import Refuse
from sim.learning.data.user_arrays import ArraysPart, UserSamples, check_parts

_BLANK_MAX = 0.01  # share of the images; a preallocated, incomplete file has many
FLOAT_BYTES = 4
"""Size of a float32."""
_PIXELS_COUNTED = 1 << 16  # in one pass
_DOWNLOAD_ERRORS = (OSError, RuntimeError, http.client.HTTPException)


@dataclass(frozen=True)
class ImageArrays:
    """Raw images uint8 [n, channels, height, width] and labels int64 [n]."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def floats_bytes(self) -> int:
        """Memory in bytes of the images and a float32 copy of them."""
        return (1 + FLOAT_BYTES) * (self.train_x.size + self.test_x.size)


@dataclass(frozen=True)
class ImageFolder:
    """Folder with the files of a data set, any of which may be compressed as .gz or .xz."""

    key: str
    path: Path

    def file(self, name: str) -> InputFile:
        """Return the file of that name, compressed or not."""
        return InputFile(self.key, self.variant(name) or self.path / name)

    def variant(self, name: str) -> Path | None:
        """Return the existing path of a file: with its name, with .gz, or with .xz."""
        variants = (self.path / f"{name}{suffix}" for suffix in ("", ".gz", ".xz"))
        return next((variant for variant in variants if os.path.exists(variant)), None)


@dataclass(frozen=True)
class FolderLayout:
    """Folder of a data set below the data folder: the files it must contain, and their reader."""

    folder: str
    files: tuple[str, ...]
    read: Callable[[ImageFolder, ImageData], ImageArrays]


class ImageData(LabelledData):
    """Images with class labels, from files; each channel is standardized by the training part."""

    classes: ClassVar[int]
    input_shape: ClassVar[tuple[int, int, int]]
    layouts: ClassVar[tuple[FolderLayout, ...]]
    torchvision: ClassVar[str | None]
    """Class of torchvision.datasets that downloads the data set; None if there is none."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        return read_once(type(self), self._files(folder.path), lambda: self._read_scaled(folder))

    def _read_scaled(self, folder: DataFolder) -> Dataset:
        arrays = self.read(folder)
        InputFile(f'data.name = "{self.name}"', folder.path).require_room(arrays.floats_bytes)
        return normalised(arrays, self.classes)

    def read(self, folder: DataFolder) -> ImageArrays:
        """Read the files of the data folder.

        A missing data set is downloaded into the folder, if downloads are allowed. Raises UserError if that
        is not possible or not allowed, and for files that are damaged or belong to another data set; the
        message lists the folders that were searched and the expected files, or the file and its invalid
        content.
        """
        from sim.learning import vision

        root = folder.path
        layout = self._find(root)
        failure = "this command does not download (coterie run downloads it)"
        if self.torchvision is None:
            failure = "coterie cannot download it"
        elif layout is None and folder.download:
            try:
                vision.download(self.torchvision, root)
            except _DOWNLOAD_ERRORS as error:
                failure = f"it could not be downloaded ({type(error).__name__}: {error})"
            else:
                layout = self._find(root)
                failure = "it was downloaded, but not found afterwards"
        if layout is None:
            looked_at = "\n".join(
                f"  {root / layout.folder}: {', '.join(layout.files)}" for layout in self.layouts
            )
            raise UserError(
                f'data.name = "{self.name}": files not found in {root} ({folder.chosen_by}), and {failure}.\n'
                "Put all files of one line below into the folder that the line names (each file may be "
                "compressed as .gz or .xz), or name another data folder with --data-dir or "
                f"{FOLDER_VARIABLE}:\n{looked_at}"
            )
        return layout.read(ImageFolder(f'data.name = "{self.name}"', root / layout.folder), self)

    def checked(
        self, file: InputFile, images: np.ndarray, label_file: InputFile, labels: np.ndarray, name: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [n, *input_shape] and their classes int64 [n].

        name: name of the labels in their file. Raises UserError for other contents.
        """
        if images.dtype != np.uint8 or images.shape[1:] != self.input_shape or not len(images):
            wanted = ", ".join(map(str, self.input_shape))
            raise file.refusal(
                f"images have type {images.dtype} and shape {images.shape}; must be bytes (uint8) of "
                f"shape (images, {wanted}), at least one image"
            )
        flat = images.reshape(len(images), -1)
        blank = int((flat.max(axis=1) == flat.min(axis=1)).sum())
        if blank > _BLANK_MAX * len(images):
            raise file.refusal(
                f"{blank:,} of {len(images):,} images have only one color: the file is damaged"
            )
        if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
            raise label_file.refusal(
                f"have type {labels.dtype} and shape {labels.shape}; must be {len(images):,} whole "
                "numbers, one for each image (train and test files swapped?)",
                name,
            )
        bad = np.flatnonzero((labels < 0) | (labels >= self.classes))
        if len(bad):
            problem = f"number {bad[0]} is {labels[bad[0]]}; must be from 0 to {self.classes - 1}"
            raise label_file.refusal(problem, name)
        return np.ascontiguousarray(images), labels.astype(np.int64)

    def _files(self, folder: Path) -> list[Path]:
        """Return the files of the data set, or none if one is missing."""
        layout = self._find(folder)
        if layout is None:
            return []
        files_in = ImageFolder("", folder / layout.folder)
        return [path for name in layout.files if (path := files_in.variant(name)) is not None]

    def _find(self, folder: Path) -> FolderLayout | None:
        for layout in self.layouts:
            files_in = ImageFolder("", folder / layout.folder)
            if all(map(files_in.variant, layout.files)):
                return layout
        return None


def normalised(arrays: ImageArrays, classes: int, *, standardise: bool = True) -> Dataset:
    """Return images as float32, each channel standardized by the training part, or only divided by 255."""
    channels = arrays.train_x.shape[1]
    mean, std = channel_statistics(arrays.train_x) if standardise else (np.zeros(channels), np.ones(channels))
    train_x, test_x = [x.astype(np.float32) for x in (arrays.train_x, arrays.test_x)]
    return Dataset(
        scaled(train_x, mean, std),
        arrays.train_y,
        scaled(test_x, mean, std),
        arrays.test_y,
        classes,
        (tuple(mean.tolist()), tuple(std.tolist())),
    )


def dataset_of_pixels(
    parts: Mapping[str, ArraysPart],
    section: UserSamples,
    refuse: Refuse,
    *,
    classes: int | None,
    standardise: bool = True,
) -> Dataset:
    """Return the data set of parts with user images x, uint8 [n, C, H, W]; see `check_parts`.

    Images for validation are scaled in the same way as images for training.
    """
    found, outputs, owners = check_parts(parts, section, refuse, classes=classes, wide=True)
    train, test = found["train"], found["test"]
    dataset = normalised(ImageArrays(train.x, train.y, test.x, test.y), outputs, standardise=standardise)
    features = f"images of {' x '.join(map(str, dataset.input_shape))} numbers"
    dataset = replace(dataset, owners=owners, features=features)
    if "validation" not in found:
        return dataset
    validation, scaling = found["validation"], dataset.scaling
    assert scaling is not None
    held_back = scaled(validation.x.astype(np.float32), *map(np.array, scaling))
    x, y = np.concatenate([dataset.train_x, held_back]), np.concatenate([dataset.train_y, validation.y])
    return replace(dataset, train_x=x, train_y=y, validation_count=len(held_back))


def scaled(x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return (pixel / 255 - mean) / std of images [n, C, H, W], float32, computed in place."""
    shift, scale = [np.reshape(each, (1, -1, 1, 1)).astype(np.float32) for each in (mean, std)]
    x /= 255
    x -= shift
    x /= scale
    return x


def channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation per channel, float64 [C], of pixels / 255 of images uint8 [n, C, H, W].

    The deviation of a constant channel counts as 1, so `scaled` makes the channel 0. Both are
    computed from counts of the 256 possible values, which is exact and takes little memory.
    """
    counts = np.zeros((images.shape[1], 256), np.int64)
    for count, channel in zip(counts, images.swapaxes(0, 1), strict=True):
        flat = channel.reshape(-1)
        for first in range(0, len(flat), _PIXELS_COUNTED):  # numpy takes eight bytes for each
            count += np.bincount(flat[first : first + _PIXELS_COUNTED], minlength=256)
    values = np.arange(256) / 255
    pixels = counts.sum(axis=1)
    mean = counts @ values / pixels
    variance = counts @ values**2 / pixels - mean**2  # may round to less than 0 for a constant channel
    is_same = np.count_nonzero(counts, axis=1) == 1
    return mean, np.where(is_same, 1.0, np.sqrt(np.maximum(variance, 0.0)))

"""Kinds of data sets.

To add a data set, write a file with its class, and add the class to `Data`. Data sets are arrays, so that a
scenario is read and checked without torch.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from actors.settings.tables import tagged
from sim.learning.data.adult import Adult
from sim.learning.data.arrays import ArrayData
from sim.learning.data.cifar import Cifar10, Cifar100
from sim.learning.data.dataset import DataSection
from sim.learning.data.digits import Digits
from sim.learning.data.huggingface import HuggingFaceData
from sim.learning.data.image_folders import Cinic10, OwnImages
from sim.learning.data.images import ImageData
from sim.learning.data.mnist import FashionMnist, Mnist
from sim.learning.data.svhn import Svhn
from sim.learning.data.synthetic import QuadraticData, SyntheticRegression
from sim.learning.data.table import TableData
from sim.learning.data.text import FourLanguages, OwnTexts

Data = Annotated[
    Digits
    | FashionMnist
    | Mnist
    | Cifar10
    | Cifar100
    | Cinic10
    | Svhn
    | Adult
    | SyntheticRegression
    | QuadraticData
    | ArrayData
    | TableData
    | OwnImages
    | HuggingFaceData
    | FourLanguages
    | OwnTexts,
    Field(discriminator="name"),
]

DATASETS: Mapping[str, type[DataSection]] = tagged(Data)
"""Class of each data set, by name."""

IMAGE_DATASETS = tuple(name for name, kind in DATASETS.items() if issubclass(kind, ImageData))
"""Names of the data sets of images."""

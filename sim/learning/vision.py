"""All that the project takes from torchvision, behind one import.

With a CPU build of torch the compiled operators of torchvision may fail to load, and then its
`torchvision._meta_registrations` (shapes for operators such as nms) stops the whole import. Data sets,
transforms and models need none of those operators, so that one module is replaced by an empty one where, and
only where, the real import fails.
"""

import importlib
import socket
import sys
from pathlib import Path
from types import ModuleType

_REGISTRATIONS = "torchvision._meta_registrations"
_CONNECT_TIMEOUT_S = 20.0
_CLASSES = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "cifar-10": "CIFAR10",
    "cifar-100": "CIFAR100",
}


def import_torchvision() -> ModuleType:
    """The module torchvision, without its compiled operators where these do not load."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        sys.modules[_REGISTRATIONS] = ModuleType(_REGISTRATIONS)
        return importlib.import_module("torchvision")


def dataset_class(name: str) -> type:
    """torchvision's class for our data set `name`."""
    return getattr(import_torchvision().datasets, _CLASSES[name])


def download(name: str, folder: Path) -> None:
    """Put the data set `name` into `folder`, in torchvision's layout, with its checksums verified.

    Raises OSError or RuntimeError (torchvision's words) when the network or the folder does not let it.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(
        _CONNECT_TIMEOUT_S
    )  # behind a firewall that swallows packets urllib waits for ever
    try:
        dataset_class(name)(root=str(folder), download=True)
    finally:
        socket.setdefaulttimeout(before)

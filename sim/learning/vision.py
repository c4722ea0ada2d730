"""Interface to torchvision: the only module that imports it.

With a CPU build of torch, the compiled operators of torchvision may fail to load, and then one of its
modules, `torchvision._meta_registrations`, stops the whole import. Data sets, transforms and models do not
need this module: if the import fails, it is replaced by an empty one.
"""

import importlib
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from sim.errors import require_packages

_REGISTRATIONS = "torchvision._meta_registrations"
_CONNECT_TIMEOUT_S = 20.0
_SPLITS = {"SVHN": ({"split": "train"}, {"split": "test"})}
"""Arguments for each part of data sets that are downloaded part by part."""


def import_torchvision() -> ModuleType:
    """Return torchvision, without its compiled operators if these do not load. Raises UserError."""
    require_packages("vision", f"{', '.join(NETWORKS)} and downloads of data", "torchvision")
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        sys.modules[_REGISTRATIONS] = ModuleType(_REGISTRATIONS)
        return importlib.import_module("torchvision")


def download(dataset_class: str, folder: Path) -> None:
    """Download a data set of torchvision.datasets to `folder`, in its layout, with verified checksums.

    Raises UserError without torchvision, and OSError or RuntimeError (with torchvision's message) for errors
    of the network or the folder.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_CONNECT_TIMEOUT_S)  # without it, urllib waits forever behind some firewalls
    try:
        for split in _SPLITS.get(dataset_class, ({},)):
            getattr(import_torchvision().datasets, dataset_class)(str(folder), download=True, **split)
    finally:
        socket.setdefaulttimeout(before)


NETWORKS: Mapping[str, tuple[str, str, Mapping[str, bool]]] = {
    "resnet18": ("resnet18", "conv1", {}),
    "shufflenet": ("shufflenet_v2_x1_0", "conv1.0", {}),
    "googlenet": (
        "googlenet",
        "conv1.conv",
        {"aux_logits": False, "transform_input": False, "init_weights": False},
    ),
}
"""torchvision's name of each network, its first convolution, and further arguments."""


def network(name: str, channels: int, outputs: int) -> nn.Module:
    """Return the network `name` of NETWORKS for images of `channels` channels, not pretrained.

    ResNet18, ShuffleNet v2 x1.0, and GoogLeNet without its auxiliary outputs, which would need an additional
    loss. Dropout is off: its masks would have to come from random streams of the clients.
    """
    theirs, path, options = NETWORKS[name]
    module: nn.Module = getattr(import_torchvision().models, theirs)(num_classes=outputs, **options)
    first: Any = module.get_submodule(path)
    if first.in_channels != channels:
        own = nn.Conv2d(
            channels,
            first.out_channels,
            first.kernel_size,
            stride=first.stride,
            padding=first.padding,
            bias=first.bias is not None,
        )
        owner, _, name = path.rpartition(".")
        setattr(module.get_submodule(owner), name, own)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module

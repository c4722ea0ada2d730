"""Decoupled models: a backbone of any kind, a head on its features, and the parts that methods add to them.

Mukherjee et al. (MAPL, "Model Agnostic Peer-to-peer Learning", section 4.1, appendix A.1) and its baselines
exchange heads, prototypes or features between clients whose backbones differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.quantities import Count
from sim.errors import UserError
from sim.learning.data.dataset import DataSection
from sim.learning.models.backbones import ANY_SHAPE, Assignment, BackboneName
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn

PARTS: Mapping[str, str] = {
    "projection": "projects features for contrastive losses: Linear, BatchNorm, ReLU, Linear",
    "head_anchor": "a copy of somebody's head, as a vector",
    "class_means": "one vector per class, as it came from others",
    "prototypes": "one vector per class, trained with the model",
}
"""The parts that a model may have besides backbone and head, in their order."""


class Decoupled(ModelSection):
    """A backbone, which may differ between clients, and a linear head on the ReLU of its features.

    The protocol adds the parts that it needs: a projection, prototypes, a copy of a head (MAPL and what it is
    compared with). "resnet18", "shufflenet" (v2 x1.0) and "googlenet" are torchvision's, not pretrained,
    without dropout and auxiliary outputs; "alexnet" is a small one of three convolutions.
    """

    tasks = ("classification",)

    initialisation: Literal["shared", "independent", "shared-backbone"] = "shared"  # type: ignore[assignment]
    """Whether all clients with the same backbone start from the same parameters, or each from its own, or
    from the same backbone with a head of its own: heads that start alike hide who has the same classes."""
    name: Literal["decoupled"]
    backbones: Annotated[tuple[BackboneName, ...], Field(min_length=1)]
    """The backbones that there are; all but those of fully connected layers (mlp) need images."""
    assign: Assignment = "in-turn"
    """Which one a client has: client id mod number; random; or slow devices the first, fast ones the last."""
    features: Count = 64
    """Length of the backbones' output, and of projections."""
    projection_hidden: Count = 128
    """Hidden units of the projection, if the protocol has one (4096 in MAPL's code)."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        shape = data.input_shape
        if shape is None or data.is_images:
            return
        if not set(self.backbones) <= set(ANY_SHAPE):
            problem = f'the inputs of data.name = "{data.name}" are {math.prod(shape)} numbers; allowed are '
            yield SettingError("model.backbones", self.backbones, problem + " and ".join(ANY_SHAPE))

    def module(
        self, input_shape: tuple[int, ...], classes: int, backbone: str = "", parts: Sequence[str] = ()
    ) -> nn.Module:
        """With this backbone, by default the first, and some of PARTS. UserError for unknown parts."""
        unknown = [part for part in parts if part not in PARTS]
        if unknown:
            raise UserError(f"unknown parts {', '.join(unknown)}; allowed: {', '.join(PARTS)}")
        from sim.learning.models.modules.backbones import backbone_module
        from sim.learning.models.modules.decoupled import DecoupledModule

        body = backbone_module(backbone or self.backbones[0], input_shape, self.features)
        return DecoupledModule(body, classes, self.features, self.projection_hidden, parts)

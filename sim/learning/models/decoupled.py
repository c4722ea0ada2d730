"""Decoupled models: a backbone of any kind, a head on its features, and parts that methods add.

Mukherjee et al. (MAPL, "Model Agnostic Peer-to-peer Learning", section 4.1, appendix A.1) and its baselines
exchange heads, prototypes or features between clients with different backbones.
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
    "head_anchor": "a copy of another client's head, as a vector",
    "class_means": "one vector per class, received from other clients",
    "prototypes": "one vector per class, trained with the model",
}
"""Parts that a model may have in addition to backbone and head, in order."""


class Decoupled(ModelSection):
    """A backbone, which may differ between clients, and a linear head on the ReLU of its features.

    The protocol adds the parts that it needs: a projection, prototypes, a copy of a head (MAPL and its
    baselines). "resnet18", "shufflenet" (v2 x1.0) and "googlenet" are torchvision's networks, not pretrained,
    without dropout and auxiliary outputs; "alexnet" is a small AlexNet with three convolutions.
    """

    tasks = ("classification",)

    initialisation: Literal["shared", "independent", "shared-backbone"] = "shared"  # type: ignore[assignment]
    """Initial parameters: equal for all clients with the same backbone, independent, or the same backbone
    with an independent head. Equal initial heads hide which clients have the same classes."""
    name: Literal["decoupled"]
    backbones: Annotated[tuple[BackboneName, ...], Field(min_length=1)]
    """Backbones of the clients. All backbones except the fully connected ones (mlp) need images."""
    assign: Assignment = "in-turn"
    """Assignment of backbones to clients: in turn, at random, or by speed (the slowest devices get the first
    backbone, the fastest devices the last)."""
    features: Count = 64
    """Length of the backbones' outputs, and of projections."""
    projection_hidden: Count = 128
    """Hidden units of the projection, if the protocol uses one (4096 in MAPL's code)."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        shape = data.input_shape
        if shape is None or data.is_images:
            return
        if not set(self.backbones) <= set(ANY_SHAPE):
            problem = f'the inputs of data.name = "{data.name}" are {math.prod(shape)} numbers; allowed: '
            yield SettingError("model.backbones", self.backbones, problem + " and ".join(ANY_SHAPE))

    def module(
        self, input_shape: tuple[int, ...], classes: int, backbone: str = "", parts: Sequence[str] = ()
    ) -> nn.Module:
        """Return a module of a backbone (default: the first) and these parts. Raises UserError if unknown."""
        unknown = [part for part in parts if part not in PARTS]
        if unknown:
            raise UserError(
                f"the method's class attribute parts: a decoupled model has no {', '.join(unknown)}; "
                f"allowed: {', '.join(PARTS)}"
            )
        from sim.learning.models.modules.backbones import backbone_module
        from sim.learning.models.modules.decoupled import DecoupledModule

        body = backbone_module(backbone or self.backbones[0], input_shape, self.features)
        return DecoupledModule(body, classes, self.features, self.projection_hidden, parts)

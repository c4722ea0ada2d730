"""Module of decoupled models."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from protocols.framework.objectives import Embedding
from sim.learning.models.modules.batch_norm import BatchNorm1d

_ORDER = ("backbone", "projection", "head", "head_anchor", "class_means", "prototypes")


class DecoupledModule(nn.Module):
    """Backbone -> z [B, d_z]; scores = head(relu(z)) [B, K]; optional projection of z -> p [B, d_z].

    Parameters are in the order backbone, projection, head.weight [K, d_z], head.bias [K], head_anchor
    [K (d_z + 1)], class_means [K, d_z], prototypes [K, d_z]. The anchor and the means are not trained.
    """

    is_decoupled = True

    def __init__(
        self, backbone: nn.Module, classes: int, features: int, projection_hidden: int, parts: Sequence[str]
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection: nn.Module | None = None
        if "projection" in parts:
            first, last = nn.Linear(features, projection_hidden), nn.Linear(projection_hidden, features)
            self.projection = nn.Sequential(first, BatchNorm1d(projection_hidden), nn.ReLU(), last)
        self.head = nn.Linear(features, classes)
        if "head_anchor" in parts:
            self.head_anchor = nn.Parameter(torch.zeros(classes * (features + 1)))
        if "class_means" in parts:
            self.class_means = nn.Parameter(torch.zeros(classes, features))
        if "prototypes" in parts:
            self.prototypes = nn.Parameter(torch.empty(classes, features))
        self.untrained = tuple(part for part in ("head_anchor", "class_means") if part in parts)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters in the order of the parts; torch's order has direct parameters first."""
        found = list(super().named_parameters("", recurse, remove_duplicate))
        found.sort(key=lambda pair: _ORDER.index(pair[0].partition(".")[0]))  # stable within a part
        yield from ((f"{prefix}.{name}" if prefix else name, value) for name, value in found)

    def reset(self, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Draw the prototypes uniformly in +-1/sqrt(d_z) (MAPL, appendix A.1).

        Set the anchor and the class means to 0. Backbone, projection and head are not among `parameters`.
        """
        for name, values in parameters.items():
            if name == "prototypes":
                bound = values.shape[1] ** -0.5
                values.uniform_(-bound, bound, generator=generator)
            else:
                values.zero_()

    def forward(self, x: Tensor, embed: bool = False) -> Tensor | Embedding:
        """Return scores [B, K] of [B, ...], or all outputs with `embed`."""
        z = self.backbone(x)
        scores = self.head(functional.relu(z))
        if not embed:
            return scores
        return Embedding(z, None if self.projection is None else self.projection(z), scores)

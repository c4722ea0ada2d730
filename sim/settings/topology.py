"""Who may talk to whom: the kinds of topology."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocols.settings import Count, Settings, Within
from sim.settings.shared import Share, exactly_one, kind_alone


class Complete(Settings):
    """Every client knows every other."""

    kind: Literal["complete"]


class Ring(Settings):
    """Each client knows the one before and the one after it."""

    kind: Literal["ring"]


class KRegular(Settings):
    """A random connected graph in which all clients have the same number of neighbours."""

    kind: Literal["k-regular"]
    degree: Count
    """Neighbours of each client."""


class ErdosRenyi(Settings):
    """A random connected graph in which each pair is linked with the same probability."""

    kind: Literal["erdos-renyi"]
    probability: Annotated[float, Field(gt=0, le=1)]
    """Probability of a link between two clients."""


class SmallWorld(Settings):
    """A ring of near neighbours (Watts and Strogatz), some of whose links lead elsewhere."""

    kind: Literal["small-world"]
    degree: Annotated[int, Field(ge=2), Within(2, 1_000_000)]
    """Near neighbours of each client before rewiring."""
    rewire: Share
    """Share of the links that are rewired at random."""


class ClusterTopology(Settings):
    """Complete inside each cluster, no link between clusters."""

    kind: Literal["clusters"]
    count: Count | None = None
    """Number of clusters, as equal in size as possible."""
    sizes: tuple[Count, ...] | None = None
    """Clients in each cluster, instead of `count`."""

    @model_validator(mode="after")
    def _one_way(self) -> "ClusterTopology":
        exactly_one(self, "count", "sizes")
        return self


class EdgeList(Settings):
    """Links from a text file: two client numbers on each line."""

    kind: Literal["edge-list"]
    file: str
    """Path, relative to the current folder or else to the scenario's."""


Topology = Annotated[
    Annotated[
        Complete | Ring | KRegular | ErdosRenyi | SmallWorld | ClusterTopology | EdgeList,
        Field(discriminator="kind"),
    ],
    kind_alone("complete", "ring"),
]

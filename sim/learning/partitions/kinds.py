"""Kinds of partitions. To add a kind, write its class, and add the class to `PartitionKind`."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from actors.settings.tables import kind_alone, tagged
from sim.learning.partitions.classes import ClassesPerClient, Dirichlet
from sim.learning.partitions.clusters import DisjointClusters, MaplClusters, PermutedClusters
from sim.learning.partitions.iid import Iid
from sim.learning.partitions.lists import FromFile, OwnPartition
from sim.learning.partitions.natural import Natural
from sim.learning.partitions.partition import PartitionSection
from sim.learning.partitions.quantity import QuantitySkew
from sim.plugins.point import PluginPoint

_Kinds = Annotated[
    Iid
    | QuantitySkew
    | Dirichlet
    | ClassesPerClient
    | PermutedClusters
    | DisjointClusters
    | MaplClusters
    | Natural
    | FromFile,
    Field(discriminator="kind"),
]
PartitionKind = Annotated[_Kinds, kind_alone(_Kinds), PluginPoint(OwnPartition)]

PARTITIONS: Mapping[str, type[PartitionSection]] = tagged(PartitionKind)
"""Class of each kind, by name."""

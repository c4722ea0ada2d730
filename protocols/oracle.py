"""The oracle baseline: federated averaging inside the true clusters, which no real client could know.

The upper reference of CoBo's tables ("Oracle"): one server for each true cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols.fedavg import FedAvg, FedAvgServer
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import ServerPlan


class Oracle(FedAvg):
    """A client of its own cluster's server."""

    @classmethod
    def servers(
        cls, settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        if clusters is None:
            raise ValueError(
                'protocol.name = "oracle" needs data with true clusters, such as '
                'data.partition.kind = "permuted-clusters" or "disjoint-clusters"'
            )
        members = {
            cluster: tuple(name for name, label in zip(clients, clusters, strict=True) if label == cluster)
            for cluster in sorted(set(clusters))
        }
        return [ServerPlan(f"server-{cluster}", FedAvgServer, names) for cluster, names in members.items()]

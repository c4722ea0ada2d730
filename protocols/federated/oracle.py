"""Oracle baseline: federated averaging inside the true clusters, which no real client could know.

Each true cluster has one server. In CoBo's tables, this baseline ("Oracle") is the upper reference.
"""

from collections.abc import Sequence

from protocols.framework.requirements import ProtocolSettings
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.framework.server import ServerPlan
from protocols.shared.server_rounds import RoundClient, RoundServer


class Oracle(RoundClient):
    """Client of the server of its true cluster."""

    search_space = SearchSpace(
        "as federated averaging",
        {
            "local_steps": LOCAL_STEPS,
        },
    )

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
        return [ServerPlan(f"server-{cluster}", RoundServer, names) for cluster, names in members.items()]

"""Who may talk to whom."""

from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np

from sim.errors import UserError
from sim.files.input_file import InputFile
from sim.scenario.scenario import Scenario
from sim.settings.topology import ClusterTopology
from sim.world import topology

_LINKS_MAX = 20_000_000  # about as many as fit in 6 GB
_ALONE_MAX = 20.0  # clients without a link, on average: one graph in 500 million has none


def require_possible(scenario: Scenario) -> None:
    """UserError for a topology that would not fit in memory or never be connected; nothing is made for it."""
    chosen, n = scenario.clients.topology, scenario.clients.count
    match chosen.kind:
        case "complete":
            links = n * (n - 1) // 2
        case "k-regular" | "small-world":
            links = n * chosen.degree // 2
        case "erdos-renyi":
            links = round(chosen.probability * n * (n - 1) / 2)
            alone = n * (1 - chosen.probability) ** (n - 1) if n > 1 else 0.0
            if alone > _ALONE_MAX:
                raise UserError(
                    f"clients.topology.probability = {chosen.probability}: leaves {alone:,.0f} of "
                    f"clients.count = {n} without a neighbour, on average, so that the graph is never "
                    "connected; must be above ln(n) / n"
                )
        case "clusters":
            links = sum(size * (size - 1) // 2 for size in _cluster_sizes(chosen, n))
        case _:
            return
    if links > _LINKS_MAX:
        raise UserError(
            f'clients.topology.kind = "{chosen.kind}": has {links:,} links among clients.count = {n}, more '
            f"than fit in memory; must be at most {_LINKS_MAX:,}: use fewer clients, or a topology with "
            "fewer neighbours, such as k-regular"
        )


def neighbour_lists(scenario: Scenario) -> list[list[int]]:
    """Each client's neighbours in the topology, by number. UserError for a graph that can't be made."""
    chosen, n, seed = scenario.clients.topology, scenario.clients.count, scenario.run.seed
    try:
        match chosen.kind:
            case "complete":
                graph = topology.complete(n)
            case "ring":
                graph = topology.ring(n)
            case "k-regular":
                graph = topology.k_regular(n, chosen.degree, seed)
            case "erdos-renyi":
                graph = topology.erdos_renyi(n, chosen.probability, seed)
            case "small-world":
                graph = topology.small_world(n, chosen.degree, chosen.rewire, seed)
            case "clusters":
                graph = topology.clusters(_cluster_sizes(chosen, n))
            case "edge-list":
                graph = _from_edge_list(InputFile("clients.topology.file", Path(chosen.file)), n)
    except ValueError as error:
        raise UserError(f"clients.topology: {error}") from None
    return topology.neighbours(graph)


def _cluster_sizes(chosen: ClusterTopology, n: int) -> Sequence[int]:
    return chosen.sizes or [len(part) for part in np.array_split(np.arange(n), chosen.count or 1)]


def _from_edge_list(file: InputFile, n: int) -> nx.Graph:
    text = file.text()
    try:
        return topology.from_edge_list(text, n)
    except ValueError as error:
        raise file.refusal(str(error)) from None

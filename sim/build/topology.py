"""Who may talk to whom."""

from pathlib import Path

import networkx as nx
import numpy as np

from sim.errors import UserError
from sim.input_file import InputFile
from sim.scenario import Scenario
from sim.world import topology


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
                sizes = chosen.sizes or [
                    len(part) for part in np.array_split(np.arange(n), chosen.count or 1)
                ]
                graph = topology.clusters(sizes)
            case "edge-list":
                graph = _from_edge_list(InputFile("clients.topology.file", Path(chosen.file)), n)
    except ValueError as error:
        raise UserError(f"clients.topology: {error}") from None
    return topology.neighbours(graph)


def _from_edge_list(file: InputFile, n: int) -> nx.Graph:
    text = file.text()
    try:
        return topology.from_edge_list(text, n)
    except ValueError as error:
        raise file.refusal(str(error)) from None

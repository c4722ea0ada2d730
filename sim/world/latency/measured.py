"""Latencies measured between real machines."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from actors.settings.quantities import PositiveDuration, SigmaOfLog
from sim.files.data_folder import DataFolder
from sim.kernel.random import stream
from sim.world.latency.nodes import LATENCY_MAX_S, LatencyByNode, NodeLatency
from sim.world.participants import Participants

# For each source: its file, then the file's names of the medians and the slices, with their units per second.
_ROUND_TRIPS = {
    "planetlab": ("planetlab_rtt_ms.npz", ("rtt_ms_median", 1e3), ("rtt_ms_slices", 1e3)),
    "seattle": ("seattle_rtt_s.npz", ("rtt_s_median", 1.0), ("rtt_centiseconds", 100.0)),
}


class TraceLatency(LatencyByNode):
    """Half of measured round-trip times between real machines. Each client is a machine, drawn by the seed.

    Each machine is used once before any machine is used twice. Two clients on one machine have the latency of
    the nearest two machines. (Zhu et al., IEEE/ACM Transactions on Networking 25, 2017.)
    """

    kind: Literal["trace"]
    source: Literal["planetlab", "seattle"]
    """Machines: 490 at universities (planetlab), or 99 phones and laptops, slower and burstier (seattle)."""
    slice: PositiveDuration | None = None
    """Duration of each slice of the trace (6 slices of planetlab, 688 of seattle); after the last slice, the
    first one follows. By default every pair has its median over time."""
    jitter: SigmaOfLog = 0.0
    """Sigma of a lognormal factor with median 1, drawn for each message and multiplied with the pair's
    latency."""

    def build(self, key: str, participants: Participants) -> NodeLatency:
        """Return the model, with each actor on a random machine."""
        medians_s, slices_s = round_trips(self.source, key, participants.data_folder)
        round_trips_s = medians_s[np.newaxis] if self.slice is None else slices_s
        nodes = sampled_nodes(
            participants.seed, participants.clients, participants.servers, round_trips_s.shape[1]
        )
        return NodeLatency(
            one_way_seconds(round_trips_s, slices_s),
            nodes,
            slice_s=self.slice,
            jitter=self.jitter,
        )


def sampled_nodes(seed: int, clients: Sequence[str], servers: Sequence[str], nodes: int) -> dict[str, int]:
    """Draw a node for each actor. Clients use each node once before they use any node twice.

    Servers use nodes from the end of the clients' order. A client's node depends on its number only, so more
    clients or servers do not move other clients. No two actors share a node if there are enough nodes for all
    clients and servers.
    """
    orders: dict[int, NDArray[np.int64]] = {}

    def node(number: int) -> int:
        turn, position = divmod(number, nodes)
        if turn not in orders:
            orders[turn] = stream(seed, "latency nodes", turn).permutation(nodes)
        return int(orders[turn][position])

    chosen = {name: node(number) for number, name in enumerate(clients)}
    return chosen | {name: node(nodes - 1 - number % nodes) for number, name in enumerate(servers)}


def one_way_seconds(round_trips_s: NDArray[np.float64], slices_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one-way latencies for `NodeLatency`, (slices, nodes, nodes): half of the measured round trips.

    A round trip of 0 was not measured, or was below the resolution of the clock: the latency is then half of
    the pair's median in `slices_s`. For a pair without measurements, and for two actors on one node, it is
    the smallest positive latency.
    """
    seconds = round_trips_s / 2
    diagonal = np.arange(seconds.shape[1])
    seconds[:, diagonal, diagonal] = 0.0
    nearest_s = seconds[seconds > 0.0].min()
    for row, column in np.argwhere((seconds == 0.0).any(axis=0)):
        measured_s = slices_s[:, row, column]
        measured_s = measured_s[measured_s > 0.0]
        replacement_s = np.median(measured_s) / 2 if len(measured_s) and row != column else nearest_s
        of_pair = seconds[:, row, column]
        of_pair[of_pair == 0.0] = replacement_s
    return seconds


def round_trips(source: str, key: str, folder: DataFolder) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return round trips in seconds: medians (nodes, nodes), slices (slices, nodes, nodes); 0: unknown."""
    name, medians, slices = _ROUND_TRIPS[source]
    file = folder.trace(key, "net-latency", name)
    arrays = file.arrays(medians[0], slices[0])
    for array, (array_name, units_per_s) in zip(arrays, (medians, slices), strict=True):
        nodes = arrays[0].shape[:1] * 2
        if array.shape[-2:] != nodes or array.ndim != (2 if array is arrays[0] else 3):
            wanted = "(nodes, nodes), or (slices, nodes, nodes)"
            raise file.refusal(f"has shape {array.shape}; must be {wanted}", array_name)
        file.require_numbers(array_name, array, least=0, most=LATENCY_MAX_S * units_per_s)
        if not array.any():
            raise file.refusal("is 0 everywhere; must contain at least one measured time", array_name)
    medians_s, slices_s = (
        array.astype(np.float64) / units for array, (_, units) in zip(arrays, (medians, slices), strict=True)
    )
    return medians_s, slices_s

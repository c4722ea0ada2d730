"""Samples of clients and servers."""

from dataclasses import dataclass

import numpy as np

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.partition import Partition
from sim.results.text import counted
from sim.scenario.scenario import Scenario

Rows = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class OwnedSamples:
    """Rows of the data set by owner, first the clients and then the servers; map of each client's labels."""

    train: Rows
    validation: Rows
    test: Rows
    label_maps: tuple[np.ndarray, ...] | None


def assign_samples(
    scenario: Scenario, partition: Partition, validation: Rows, servers: int, samples: int
) -> OwnedSamples:
    """Return the samples of each client and server; the data set has `samples` training samples.

    A server's samples are drawn at random, first from the samples that no client owns, then from the samples
    of clients. Raises UserError if there are too few for the servers, or none is left for a client.
    """
    train = partition.train
    each = 0 if scenario.server is None else scenario.server.samples
    if not each or not servers:
        return OwnedSamples(train, validation, partition.test, partition.label_maps)
    rng, taken = stream(scenario.run.seed, "samples of servers"), np.zeros(samples, dtype=bool)
    for rows in (*train, *validation):
        taken[rows] = True
    # Several clients may own a sample. A server never trains on a client's validation samples.
    of_clients = np.setdiff1d(np.concatenate(train), np.concatenate(validation))
    order = np.concatenate([rng.permutation(np.flatnonzero(~taken)), rng.permutation(of_clients)])
    if len(order) < servers * each:
        raise UserError(
            f"server.samples = {each}: {counted(servers, 'server')} would own {servers * each:,} samples, "
            f"but there are only {len(order):,}"
        )
    dealt = order[: servers * each]
    left = tuple([rows[~np.isin(rows, dealt)] for rows in train])
    for client, rows in enumerate(left):
        if not len(rows):
            raise UserError(
                f"server.samples = {each} leaves no training sample for client {client}, which owns "
                f"{counted(len(train[client]), 'sample')}"
            )
    empty = (np.empty(0, dtype=np.int64),) * servers
    maps = partition.label_maps
    if maps is not None:
        maps = (*maps, *[np.arange(len(maps[0]))] * servers)
    own = tuple([np.sort(dealt[number * each : (number + 1) * each]) for number in range(servers)])
    return OwnedSamples((*left, *own), (*validation, *empty), (*partition.test, *empty), maps)

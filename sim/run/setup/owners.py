"""What clients and servers own of the data."""

from dataclasses import dataclass

import numpy as np

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.partition import Partition
from sim.scenario.scenario import Scenario

Rows = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Owned:
    """What clients, and behind them servers, own: rows of the data set, and how each sees the labels."""

    train: Rows
    validation: Rows
    test: Rows
    label_maps: tuple[np.ndarray, ...] | None


def owned(scenario: Scenario, partition: Partition, validation: Rows, servers: int, samples: int) -> Owned:
    """What each owns of a data set of so many training samples. UserError where servers leave too few.

    A server's samples are those that no client owns, at random, and then those of clients.
    """
    train = partition.train
    each = 0 if scenario.server is None else scenario.server.samples
    if not each or not servers:
        return Owned(train, validation, partition.test, partition.label_maps)
    rng, taken = stream(scenario.run.seed, "samples of servers"), np.zeros(samples, dtype=bool)
    for rows in (*train, *validation):
        taken[rows] = True
    # Several clients may own a sample. What anybody validates on trains no server.
    of_clients = np.setdiff1d(np.concatenate(train), np.concatenate(validation))
    order = np.concatenate([rng.permutation(np.flatnonzero(~taken)), rng.permutation(of_clients)])
    if len(order) < servers * each:
        raise UserError(
            f"server.samples = {each}: {servers} of them would own {servers * each:,} samples, and there are "
            f"{len(order):,}"
        )
    dealt = order[: servers * each]
    left = tuple([rows[~np.isin(rows, dealt)] for rows in train])
    for client, rows in enumerate(left):
        if not len(rows):
            raise UserError(
                f"server.samples = {each}: leaves client {client}, who owns {len(train[client])} samples, "
                "none to train on"
            )
    nothing = (np.empty(0, dtype=np.int64),) * servers
    maps = partition.label_maps
    if maps is not None:
        maps = (*maps, *[np.arange(len(maps[0]))] * servers)
    own = tuple([np.sort(dealt[number * each : (number + 1) * each]) for number in range(servers)])
    return Owned((*left, *own), (*validation, *nothing), (*partition.test, *nothing), maps)

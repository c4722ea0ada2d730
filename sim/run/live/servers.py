"""The servers of a run: which there are, what each owns, and their lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.framework.server import Server, ServerPlan
from protocols.membership.view import MembershipView
from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions import Partition
from sim.run.live.compute import DeviceCompute
from sim.scenario.protocol_errors import called, server_plans
from sim.scenario.scenario import Scenario
from sim.scenario.sections.server import ServerCrash
from sim.world.participants import client_name

Rows = tuple[np.ndarray, ...]


def planned_servers(scenario: Scenario, clusters: Sequence[int] | None) -> tuple[ServerPlan, ...]:
    """The servers that the protocol needs, none for clients that are alone. UserError for wrong ones."""
    protocol = scenario.protocol
    if protocol.alone:
        return ()
    names = [client_name(index) for index in range(scenario.clients.count)]
    try:
        plans = called(protocol.learner, "servers", protocol.settings, names, clusters)
    except UserError as error:
        if type(error.__cause__) is ValueError:  # how a method says what does not fit it
            raise UserError(str(error.__cause__)) from None
        raise
    return tuple(server_plans(protocol.learner, plans, names))


def neighbours_with_servers(
    plans: Sequence[ServerPlan], clients: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Who may talk to whom: a client to the servers that serve it, a server to its clients and servers."""
    neighbours: dict[str, list[str]] = {name: [] for name in (*clients, *[plan.name for plan in plans])}
    for plan in plans:
        for other in (*plan.clients, *plan.servers):
            neighbours[plan.name].append(other)
            neighbours[other].append(plan.name)
    return {name: tuple(dict.fromkeys(others)) for name, others in neighbours.items()}


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


@dataclass
class ServerLife:
    """A server over all its lives: its view of the others stays, the actor may be replaced.

    `actor` is None after a crash from which it comes back with nothing, or not at all. `compute`: its device
    and data, if it has some.
    """

    name: str
    fresh: Callable[[], Server]
    membership: MembershipView
    compute: DeviceCompute | None
    crashes: Sequence[ServerCrash]
    actor: Server | None = None
    up: bool = True

    def make(self) -> Server:
        """The actor that is started: the one that there was, if anything of it was kept."""
        return self.fresh() if self.actor is None else self.actor

    def set_device(self, up: bool) -> None:
        """Its device comes up, or goes down with all its jobs."""
        if self.compute is not None:
            (self.compute.device.set_up if up else self.compute.device.set_down)()

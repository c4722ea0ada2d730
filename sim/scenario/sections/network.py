"""The network between the clients."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, at_least_one, default
from actors.settings.quantities import Bandwidth, BandwidthOrUnlimited, Count, PositiveDuration, Share, Size
from sim.members import Groups, Members, is_one_client
from sim.world.bandwidths import ClientBandwidth, PhoneBandwidth, bandwidth_of_each
from sim.world.latency.kinds import Latency, latency_model
from sim.world.latency.positions import PositionLatency
from sim.world.loss import NO_LOSS, Loss
from sim.world.membership.kinds import Membership
from sim.world.network_model import ConnectionClass, ConnectionModel, NetworkModel
from sim.world.participants import Participants
from sim.world.partitions import NetworkPartition


class ServerLinks(Settings):
    """Bandwidth of servers, for protocols that have one."""

    uplink: BandwidthOrUnlimited
    """From a server into the network."""
    downlink: BandwidthOrUnlimited
    """From the network to a server."""


# Connections ----------------------------------------------------------------------------------------------


class NetworkClass(Settings):
    """Connections that differ, inside groups, across groups or with servers; the first that fits decides.

    What is not stated is as in `[network]`, except that a reliable class has no duplicates and no reordering.
    """

    inside: Groups | None = None
    """The connections between members of the same group."""
    across: Groups | None = None
    """The connections between members of different groups."""
    servers: bool = False
    """The connections from and to servers."""
    latency: Latency | None = None
    """Propagation time of one message: a duration, or a table."""
    loss: Loss | None = None
    """Share of the transmissions that are lost, or a table for losses in bursts."""
    link: Literal["reliable", "datagram"] | None = None
    """On reliable links a loss costs a retransmission and order is kept; a lost datagram is gone."""
    retransmission_delay: PositiveDuration | None = None
    """Time that each lost transmission adds on a reliable link."""
    duplicate: Share | None = None
    """Probability that a datagram arrives twice."""
    reorder: Share | None = None
    """Probability that a datagram is held up."""
    reorder_delay: PositiveDuration | None = None
    """How long it is held up."""
    bandwidth: Bandwidth | None = None
    """Most that a single connection can carry, beside the limits of its ends."""

    @model_validator(mode="after")
    def _one_place(self) -> "NetworkClass":
        stated = [key for key in ("inside", "across", "servers") if getattr(self, key)]
        if len(stated) != 1:
            problem = "state exactly one of 'inside', 'across' or 'servers = true'"
            raise SettingError(stated[1] if stated else "inside", None, problem)
        if self.across is not None and len(self.across) < 2:
            raise SettingError("across", self.across, "needs two groups or more")
        if isinstance(self.inside, tuple) and all(is_one_client(group) for group in self.inside):
            raise SettingError("inside", self.inside, "has no connection: groups must have two members")
        at_least_one(
            self, "latency", "loss", "link", "retransmission_delay", "duplicate", "reorder", "bandwidth"
        )
        return self


class Network(Settings):
    """The network between the clients. Latency and both bandwidths must be stated: none is ever assumed."""

    latency: Latency
    """Propagation time of one message: a duration, or a table with a distribution, places or measurements."""
    uplink: ClientBandwidth
    """Bandwidth from each client into the network, shared fairly by its concurrent uploads."""
    downlink: ClientBandwidth
    """Bandwidth from the network to each client, shared fairly by its concurrent downloads."""
    loss: Loss = NO_LOSS
    """Share of the messages (reliable: of the transmissions) that are lost, or a table for bursts."""
    link: Literal["reliable", "datagram"] = "reliable"
    """On reliable links a loss costs a retransmission and order is kept; a lost datagram is gone."""
    retransmission_delay: PositiveDuration = default("200 ms")
    """Time that each lost transmission adds on a reliable link."""
    duplicate: Share = 0.0
    """Probability that a datagram arrives twice. The network's copy has a latency of its own and counts, with
    its bytes, as a message of its own."""
    reorder: Share = 0.0
    """Probability that a datagram is held up, so that later ones overtake it."""
    reorder_delay: PositiveDuration | None = None
    """How long it is held up, on top of its latency."""
    queue_limit: Count = 10_000
    """Messages from one client to one other that may wait for the transfer of an earlier one; more are
    dropped, counted as "backlog"."""
    uplink_queue: Size | None = None
    """Bytes that may be at one client's uplink, in transfer or waiting, for all receivers together; a message
    that finds it neither empty nor with room for it is dropped, counted as "uplink queue"."""
    finite: bool = False
    """Whether receivers drop messages with a number that is not finite, counted as "not finite"; what is not
    computed yet is computed for that. On real sockets they always do."""
    classes: tuple[NetworkClass, ...] = Field((), alias="class")
    """Connections that differ."""
    partition: tuple[NetworkPartition, ...] = ()
    """Scheduled cuts of the network."""
    server: ServerLinks | None = None
    """Other bandwidths for servers; without it a server has, or draws, a client's."""
    membership: Membership = default("announce")
    """How clients learn who is there: by messages and timeouts, or told at once by the simulator."""

    @model_validator(mode="after")
    def _consistent(self) -> "Network":
        if self.uplink_queue == 0:
            raise SettingError("uplink_queue", 0, "must be more than 0")
        up, down = self.uplink, self.downlink
        if isinstance(up, PhoneBandwidth) and isinstance(down, PhoneBandwidth) and up.unit != down.unit:
            problem = f'must be that of network.uplink.unit, "{up.unit}": it is one trace'
            raise SettingError("downlink.unit", down.unit, problem)
        places = (None, *range(len(self.classes)))
        for place in places:
            _check_datagrams(self, place)
        if self.reorder_delay is not None and not any(self.of_class(place, "reorder") for place in places):
            raise SettingError("reorder_delay", self.reorder_delay, "does nothing: reorder is 0 everywhere")
        return self

    def of_class(self, place: int | None, key: str) -> Any:
        """The value of `key` for the connections of class number `place`; None: for those of no class."""
        stated = None if place is None else getattr(self.classes[place], key)
        return getattr(self, key) if stated is None else stated

    def prefixed(self) -> Iterator[tuple[str, "Network | NetworkClass"]]:
        """This section and its classes, each with what its keys begin with."""
        yield "network", self
        yield from ((f"network.class.{i}", kind) for i, kind in enumerate(self.classes))

    def members(self) -> Iterator[tuple[str, Members]]:
        """The lists of clients and servers that are mentioned, each with its key."""
        grouped: dict[str, Groups | None] = {}
        for i, cut in enumerate(self.partition):
            yield f"network.partition.{i}.from", cut.sources or ()
            yield f"network.partition.{i}.to", cut.to or ()
            grouped[f"network.partition.{i}.groups"] = cut.groups
        for i, kind in enumerate(self.classes):
            grouped[f"network.class.{i}.inside"] = kind.inside
            grouped[f"network.class.{i}.across"] = kind.across
        for key, groups in grouped.items():
            if groups is not None and groups != "clusters":
                yield from ((f"{key}.{j}", group) for j, group in enumerate(groups))

    def positions(self) -> Iterator[tuple[str, PositionLatency]]:
        """The latencies by position, each with its key."""
        for prefix, section in self.prefixed():
            if isinstance(section.latency, PositionLatency):
                yield f"{prefix}.latency", section.latency

    def only_for_servers(self) -> Iterator[str]:
        """The keys that mean nothing in a network without servers."""
        if self.server is not None:
            yield "network.server"
        of_servers = [f"network.class.{i}" for i, kind in enumerate(self.classes) if kind.servers]
        for key, position in self.positions():
            if position.server_place is not None and key.removesuffix(".latency") not in of_servers:
                yield f"{key}.server_place"
        yield from of_servers

    def about_servers(self) -> Iterator[SettingError]:
        """Errors about what must not be stated in a network without servers.

        Lists that hold clients as well may stay, so that methods with and without servers share a world.
        Whether there are servers is known when the world is built.
        """
        for key in self.only_for_servers():
            yield SettingError(key, None, "must be left out")
        for key, members in self.members():
            if set(members) == {"servers"}:
                yield SettingError(key, members, "must be left out")
        for i, cut in enumerate(self.partition):
            if cut.share == 1:
                yield SettingError(f"network.partition.{i}.share", cut.share, "must be less than 1")

    def build(self, participants: Participants) -> NetworkModel:
        """The network between these clients and servers. UserError."""
        partitions = [each.build(number, participants) for number, each in enumerate(self.partition)]
        uplink_bps = bandwidth_of_each("uplink", self.uplink, participants)
        downlink_bps = bandwidth_of_each("downlink", self.downlink, participants)
        drawn = participants.names if self.server is None else participants.clients
        drawn_bps = [(name, (uplink_bps(name), downlink_bps(name))) for name in drawn]
        bandwidths = {name: both for name, both in drawn_bps if both != (None, None)}
        if self.server is not None:
            servers = (self.server.uplink, self.server.downlink)
            bandwidths |= dict.fromkeys(participants.servers, servers)
        return NetworkModel(
            self._link(None, participants),
            classes=tuple([self._class(number, participants) for number in range(len(self.classes))]),
            bandwidths=bandwidths,
            partitions=tuple([each for each in partitions if each is not None]),
            backlog=self.queue_limit,
            uplink_queue_bytes=self.uplink_queue,
        )

    def _class(self, number: int, participants: Participants) -> ConnectionClass:
        differs, link = self.classes[number], self._link(number, participants)
        if differs.servers:
            return ConnectionClass(link, dict.fromkeys(participants.servers, 0), "touching")
        where: Literal["inside", "across"] = "inside" if differs.inside is not None else "across"
        groups = participants.groups(getattr(differs, where), f"network.class.{number}.{where}")
        group_of = {name: place for place, group in enumerate(groups) for name in group}
        return ConnectionClass(link, group_of, where)

    def _link(self, number: int | None, participants: Participants) -> ConnectionModel:
        """The model of the connections of class `number`; None: of those of no class."""
        reliable = self.of_class(number, "link") == "reliable"
        key = "network.latency" if number is None else f"network.class.{number}.latency"
        return ConnectionModel(
            latency_model(self.of_class(number, "latency"), key, participants),
            reliable=reliable,
            loss=self.of_class(number, "loss"),
            rto_s=self.of_class(number, "retransmission_delay"),
            # A reliable class in a network of datagrams has none of these.
            duplicate=0.0 if reliable else self.of_class(number, "duplicate"),
            reorder=0.0 if reliable else self.of_class(number, "reorder"),
            reorder_s=self.of_class(number, "reorder_delay") or 0.0,
            bandwidth_bps=None if number is None else self.classes[number].bandwidth,
        )


def _check_datagrams(network: Network, place: int | None) -> None:
    """Duplicates and reordering belong to datagrams, and reordering needs a delay."""
    section: Network | NetworkClass = network if place is None else network.classes[place]
    prefix = "" if place is None else f"class.{place}."
    for key in ("duplicate", "reorder"):
        if getattr(section, key) and network.of_class(place, "link") == "reliable":
            problem = 'only with link = "datagram": a reliable link delivers once and in order'
            raise SettingError(f"{prefix}{key}", getattr(section, key), problem)
    if section.reorder and network.of_class(place, "reorder_delay") is None:
        raise SettingError(f"{prefix}reorder_delay", None, "is missing; say how long a datagram is held up")
    if place is not None and section.reorder_delay is not None and not network.of_class(place, "reorder"):
        problem = "does nothing: reorder is 0 for these connections"
        raise SettingError(f"{prefix}reorder_delay", section.reorder_delay, problem)

"""The network between the clients."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, at_least_one, default
from actors.settings.quantities import Bandwidth, BandwidthOrUnlimited, Count, PositiveDuration, Share, Size
from sim.members import Groups, Members, is_one_client
from sim.scenario.sections.energy import EnergyOfBytes
from sim.scenario.sections.selection import SelectedClients
from sim.world.bandwidths import (
    ClientBandwidth,
    PhoneBandwidth,
    Way,
    bandwidth_schedule,
    first_bandwidth_function,
)
from sim.world.latency.kinds import Latency, latency_model
from sim.world.latency.positions import PositionLatency
from sim.world.loss.kinds import Loss
from sim.world.loss.models import NO_LOSS
from sim.world.membership.kinds import Membership
from sim.world.network_model import ConnectionClass, ConnectionModel, NetworkModel, Schedule
from sim.world.participants import Participants
from sim.world.partitions import NetworkPartition


class ServerLinks(Settings):
    """Bandwidth of servers, for protocols with servers."""

    uplink: BandwidthOrUnlimited
    """Bandwidth from a server into the network."""
    downlink: BandwidthOrUnlimited
    """Bandwidth from the network to a server."""


# Connections ----------------------------------------------------------------------------------------------


class NetworkClass(Settings):
    """Different connections inside groups, across groups, or with servers; the first matching class applies.

    Keys that are not stated are as in `[network]`, but a reliable class has no duplicates and no reordering.
    """

    inside: Groups | None = None
    """Groups; the class applies to the connections between members of the same group."""
    across: Groups | None = None
    """Groups; the class applies to the connections between members of different groups."""
    servers: bool = False
    """True for the connections from and to servers."""
    latency: Latency | None = None
    """Propagation time of one message: a duration, or a table."""
    loss: Loss | None = None
    """Share of lost transmissions, or a table for losses in bursts."""
    link: Literal["reliable", "datagram"] | None = None
    """Reliable links retransmit after a loss and keep the order of messages; lost datagrams do not arrive."""
    retransmission_delay: PositiveDuration | None = None
    """Time that each lost transmission adds on a reliable link."""
    duplicate: Share | None = None
    """Probability that a datagram arrives twice."""
    reorder: Share | None = None
    """Probability that a datagram is delayed, so that later datagrams overtake it."""
    reorder_delay: PositiveDuration | None = None
    """Delay of a reordered datagram, in addition to its latency."""
    bandwidth: Bandwidth | None = None
    """Maximum bandwidth of a single connection, in addition to the limits of its ends."""

    @model_validator(mode="after")
    def _one_kind(self) -> "NetworkClass":
        stated = [key for key in ("inside", "across", "servers") if getattr(self, key)]
        if len(stated) != 1:
            problem = "set exactly one of 'inside', 'across' or 'servers = true'"
            raise SettingError(stated[1] if stated else "inside", None, problem)
        if self.across is not None and len(self.across) < 2:
            raise SettingError("across", self.across, "must have at least two groups")
        if isinstance(self.inside, tuple) and all(is_one_client(group) for group in self.inside):
            raise SettingError(
                "inside", self.inside, "has no connection: at least one group must have two or more members"
            )
        at_least_one(
            self, "latency", "loss", "link", "retransmission_delay", "duplicate", "reorder", "bandwidth"
        )
        return self


class NetworkOverride(SelectedClients):
    """Exceptions for the network of some clients. Omitted keys are as in `[network]`.

    Select the clients by exactly one of `clients`, `share` and `cluster`. If several entries state a
    bandwidth for a client, the last entry applies.

    `latency` and `loss` apply to messages from and to these clients, unless a `[[network.class]]` applies to
    the connection. If several entries with one of these keys select either end of a connection, the last
    entry applies.
    """

    latency: Latency | None = None
    """Propagation time of one message: a duration, or a table."""
    uplink: ClientBandwidth | None = None
    """Bandwidth from each of these clients into the network."""
    downlink: ClientBandwidth | None = None
    """Bandwidth from the network to each of these clients."""
    loss: Loss | None = None
    """Share of lost transmissions, or a table for losses in bursts or over time."""

    @model_validator(mode="after")
    def _something(self) -> "NetworkOverride":
        at_least_one(self, "latency", "uplink", "downlink", "loss")
        return self


class Network(Settings):
    """The network between the clients. Latency and both bandwidths are required: they have no defaults."""

    latency: Latency
    """Propagation time of one message: a duration, or a table with a distribution, positions or
    measurements."""
    uplink: ClientBandwidth
    """Bandwidth from each client into the network, shared fairly by its concurrent uploads."""
    downlink: ClientBandwidth
    """Bandwidth from the network to each client, shared fairly by its concurrent downloads."""
    loss: Loss = NO_LOSS
    """Share of lost messages (on reliable links: of lost transmissions), or a table for losses in bursts or
    over time."""
    link: Literal["reliable", "datagram"] = "reliable"
    """Reliable links retransmit after a loss and keep the order of messages; lost datagrams do not arrive."""
    retransmission_delay: PositiveDuration = default("200 ms")
    """Time that each lost transmission adds on a reliable link."""
    duplicate: Share = 0.0
    """Probability that a datagram arrives twice. The copy has a separate latency and counts, with its bytes,
    as a separate message."""
    reorder: Share = 0.0
    """Probability that a datagram is delayed, so that later datagrams overtake it."""
    reorder_delay: PositiveDuration | None = None
    """Delay of a reordered datagram, in addition to its latency."""
    queue_limit: Count = 10_000
    """Messages from one client or server to another that may wait for the transfer of an earlier one;
    further messages are dropped and counted as "backlog"."""
    uplink_queue: Size | None = None
    """Bytes in transfer or waiting at the uplink of one client or server, for all receivers together. A
    message that does not fit is dropped and counted as "uplink queue", unless the uplink is empty."""
    finite: bool = False
    """True if receivers drop messages with a value that is not finite, and count them as "not finite"; this
    computes pending values. On real sockets receivers always do this."""
    energy_per_byte: EnergyOfBytes | None = None
    """Energy for each byte that a client or server sends or receives: one quantity for both, or a table.
    Without this key, the energy of messages is unknown."""
    classes: tuple[NetworkClass, ...] = Field((), alias="class")
    """Classes of connections whose properties differ from those in `[network]`."""
    override: tuple[NetworkOverride, ...] = ()
    """Exceptions for the network of some clients."""
    partition: tuple[NetworkPartition, ...] = ()
    """Scheduled network partitions."""
    server: ServerLinks | None = None
    """Different bandwidths for servers. Without this section, bandwidths are stated or drawn for servers as
    for clients."""
    membership: Membership = default("announce")
    """Detection of other clients: by messages and timeouts, or immediately by the simulator."""

    @model_validator(mode="after")
    def _consistent(self) -> "Network":
        if self.uplink_queue == 0:
            raise SettingError("uplink_queue", 0, "must be more than 0")
        up, down = self.uplink, self.downlink
        if isinstance(up, PhoneBandwidth) and isinstance(down, PhoneBandwidth) and up.unit != down.unit:
            problem = f'must equal network.uplink.unit, "{up.unit}": both come from one trace'
            raise SettingError("downlink.unit", down.unit, problem)
        numbers = (None, *range(len(self.classes)))
        for number in numbers:
            _check_datagrams(self, number)
        if self.reorder_delay is not None and not any(self.of_class(each, "reorder") for each in numbers):
            raise SettingError("reorder_delay", self.reorder_delay, "has no effect: reorder is 0 everywhere")
        return self

    def of_class(self, number: int | None, key: str) -> Any:
        """Return the value of `key` for connections of class `number`; None: for connections without a
        class."""
        stated = None if number is None else getattr(self.classes[number], key)
        return getattr(self, key) if stated is None else stated

    def prefixed(self) -> Iterator[tuple[str, "Network | NetworkClass | NetworkOverride"]]:
        """Return this section, its classes and its overrides, each with the prefix of its keys."""
        yield "network", self
        yield from ((f"network.class.{i}", kind) for i, kind in enumerate(self.classes))
        yield from ((f"network.override.{i}", entry) for i, entry in enumerate(self.override))

    def members(self) -> Iterator[tuple[str, Members]]:
        """Return the stated lists of clients and servers, each with its key."""
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
        """Return the latencies by position, each with its key."""
        for prefix, section in self.prefixed():
            if isinstance(section.latency, PositionLatency):
                yield f"{prefix}.latency", section.latency

    def only_for_servers(self) -> Iterator[str]:
        """Return the stated keys that have no meaning in a network without servers."""
        if self.server is not None:
            yield "network.server"
        of_servers = [f"network.class.{i}" for i, kind in enumerate(self.classes) if kind.servers]
        for key, position in self.positions():
            if position.server_place is not None and key.removesuffix(".latency") not in of_servers:
                yield f"{key}.server_place"
        yield from of_servers

    def about_servers(self) -> Iterator[SettingError]:
        """Return errors for keys that are not allowed in a network without servers.

        Lists that also contain clients are allowed, so that methods with and without servers can use the same
        network. The caller must check that there are no servers.
        """
        for key in self.only_for_servers():
            yield SettingError(key, None, "must be removed")
        for key, members in self.members():
            if set(members) == {"servers"}:
                yield SettingError(key, members, "must be removed")
        for i, cut in enumerate(self.partition):
            if cut.share == 1:
                yield SettingError(f"network.partition.{i}.share", cut.share, "must be less than 1")

    def build(self, participants: Participants) -> NetworkModel:
        """Return the network between these clients and servers. Raises UserError."""
        partitions = [each.build(number, participants) for number, each in enumerate(self.partition)]
        overridden = [
            tuple(
                [
                    participants.clients[client]
                    for client in each.selected("network.override", i, participants)
                ]
            )
            for i, each in enumerate(self.override)
        ]
        uplinks = self._ways("uplink", overridden, participants)
        downlinks = self._ways("downlink", overridden, participants)
        bandwidths = {name: (bps, downlinks[name][0]) for name, (bps, _) in uplinks.items()}
        schedules = {name: (schedule, downlinks[name][1]) for name, (_, schedule) in uplinks.items()}
        bandwidths = {name: both for name, both in bandwidths.items() if both != (None, None)}
        if self.server is not None:
            servers = (self.server.uplink, self.server.downlink)
            bandwidths |= dict.fromkeys(participants.servers, servers)
        return NetworkModel(
            self._link(None, participants),
            classes=(
                *[self._class(number, participants) for number in range(len(self.classes))],
                *self._overriding_classes(overridden, participants),
            ),
            bandwidths=bandwidths,
            schedules={name: both for name, both in schedules.items() if both != (None, None)},
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
        group_of = {name: number for number, group in enumerate(groups) for name in group}
        return ConnectionClass(link, group_of, where)

    def _ways(
        self, way: Way, overridden: Sequence[Sequence[str]], participants: Participants
    ) -> dict[str, tuple[float | None, Schedule | None]]:
        """Return, by name, the first bandwidth in one direction, and the bandwidths over time.

        overridden: names of the clients that each override selects.
        """
        names = participants.names if self.server is None else participants.clients
        settings = dict.fromkeys(names, getattr(self, way))
        for entry, selected in zip(self.override, overridden, strict=True):
            if (stated := getattr(entry, way)) is not None:
                settings |= dict.fromkeys(selected, stated)
        kinds = {id(each): each for each in settings.values()}
        bps = {key: first_bandwidth_function(way, each, participants) for key, each in kinds.items()}
        return {
            name: (bps[id(each)](name), bandwidth_schedule(each, name, participants.seed))
            for name, each in settings.items()
        }

    def _overriding_classes(
        self, overridden: Sequence[Sequence[str]], participants: Participants
    ) -> Iterator[ConnectionClass]:
        """Yield the classes of the connections of overridden clients, the last override first."""
        for i, entry in reversed(list(enumerate(self.override))):
            if entry.latency is not None or entry.loss is not None:
                stated = {key: getattr(entry, key) for key in ("latency", "loss")}
                changed = {key: value for key, value in stated.items() if value is not None}
                link = self.model_copy(update=changed)._link(None, participants, f"network.override.{i}")
                yield ConnectionClass(link, dict.fromkeys(overridden[i], 0), "touching")

    def _link(self, number: int | None, participants: Participants, prefix: str = "") -> ConnectionModel:
        """Return the model of the connections of class `number`, or with None of connections without a class.
        prefix: prefix of the keys in the scenario, by default the class or `[network]`.
        """
        reliable = self.of_class(number, "link") == "reliable"
        prefix = prefix or ("network" if number is None else f"network.class.{number}")
        return ConnectionModel(
            latency_model(self.of_class(number, "latency"), f"{prefix}.latency", participants),
            reliable=reliable,
            loss=self.of_class(number, "loss").build(f"{prefix}.loss", participants),
            rto_s=self.of_class(number, "retransmission_delay"),
            # A reliable class in a network of datagrams has no duplicates and no reordering.
            duplicate=0.0 if reliable else self.of_class(number, "duplicate"),
            reorder=0.0 if reliable else self.of_class(number, "reorder"),
            reorder_s=self.of_class(number, "reorder_delay") or 0.0,
            bandwidth_bps=None if number is None else self.classes[number].bandwidth,
        )


def _check_datagrams(network: Network, number: int | None) -> None:
    """Require datagrams for duplicates and reordering, and a delay for reordering."""
    section: Network | NetworkClass = network if number is None else network.classes[number]
    prefix = "" if number is None else f"class.{number}."
    for key in ("duplicate", "reorder"):
        if getattr(section, key) and network.of_class(number, "link") == "reliable":
            problem = 'needs link = "datagram": a reliable link delivers each message once and in order'
            raise SettingError(f"{prefix}{key}", getattr(section, key), problem)
    if section.reorder and network.of_class(number, "reorder_delay") is None:
        raise SettingError(
            f"{prefix}reorder_delay", None, "is missing; set the delay of a reordered datagram"
        )
    if number is not None and section.reorder_delay is not None and not network.of_class(number, "reorder"):
        problem = "has no effect: reorder is 0 for these connections"
        raise SettingError(f"{prefix}reorder_delay", section.reorder_delay, problem)

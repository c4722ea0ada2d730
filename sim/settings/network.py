"""The network between the clients."""

from typing import Literal

from pydantic import Field, model_validator

from protocols.settings import (
    BandwidthOrUnlimited,
    Duration,
    PositiveDuration,
    SettingError,
    Settings,
    default,
)
from sim.settings.distributions import TimeDistribution
from sim.settings.membership import Membership
from sim.settings.shared import ClientList, ShareBelowOne


class ServerLinks(Settings):
    """Bandwidth of servers, for protocols that have one."""

    uplink: BandwidthOrUnlimited
    """From a server into the network."""
    downlink: BandwidthOrUnlimited
    """From the network to a server."""


class NetworkPartition(Settings):
    """A time in which some clients cannot reach others."""

    start: Duration
    """Begin of the cut."""
    end: PositiveDuration
    """End of the cut."""
    groups: tuple[ClientList, ...] | None = None
    """Groups that are cut off from each other, both ways; clients in no group reach everybody."""
    sources: ClientList | None = Field(None, alias="from")
    """One-way cut: messages of these clients to those in `to` are lost."""
    to: ClientList | None = None
    """One-way cut: the receivers."""

    @model_validator(mode="after")
    def _consistent(self) -> "NetworkPartition":
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        if self.groups is None and (self.sources is None or self.to is None):
            raise SettingError(
                "groups", None, "state 'groups' (two-way cut), or both 'from' and 'to' (one-way)"
            )
        if self.groups is not None and (self.sources is not None or self.to is not None):
            raise SettingError("groups", self.groups, "state either 'groups' or 'from' and 'to', not both")
        if self.groups is not None:
            members = [client for group in self.groups for client in group]
            if len(self.groups) < 2 or len(set(members)) != len(members):
                raise SettingError("groups", self.groups, "needs two or more groups without a common client")
        return self


class Network(Settings):
    """The network between the clients. Latency and both bandwidths must be stated: none is ever assumed."""

    latency: TimeDistribution
    """Propagation time of one message: a duration, or a table with a distribution."""
    uplink: BandwidthOrUnlimited
    """Bandwidth from each client into the network, shared fairly by its concurrent uploads."""
    downlink: BandwidthOrUnlimited
    """Bandwidth from the network to each client, shared fairly by its concurrent downloads."""
    loss: ShareBelowOne = 0.0
    """Share of the messages (reliable: of the transmissions) that are lost."""
    link: Literal["reliable", "datagram"] = "reliable"
    """On reliable links a loss costs a retransmission and order is kept; a lost datagram is gone."""
    retransmission_delay: PositiveDuration = default("200 ms")
    """Time that each lost transmission adds on a reliable link."""
    partition: tuple[NetworkPartition, ...] = ()
    """Scheduled cuts of the network."""
    server: ServerLinks | None = None
    """Other bandwidths for servers; without it a server has a client's."""
    membership: Membership = default("announce")
    """How clients learn who is there: by messages and timeouts, or told at once by the simulator."""

"""The network between the clients."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from actors.units import DURATION
from protocols.settings import (
    Bandwidth,
    BandwidthOrUnlimited,
    Count,
    Duration,
    PositiveDuration,
    SettingError,
    Settings,
    Size,
    default,
)
from sim.settings.distributions import BandwidthDistribution, PhoneBandwidth
from sim.settings.groups import Groups, Members
from sim.settings.latency import Latency
from sim.settings.membership import Membership
from sim.settings.shared import Share, ShareBelowOne, Shorthand

_RETRANSMISSION_DELAY = "200 ms"  # by default; a resolved scenario states it whatever its links are

ShareAboveZero = Annotated[float, Field(gt=0, le=1)]


class ServerLinks(Settings):
    """Bandwidth of servers, for protocols that have one."""

    uplink: BandwidthOrUnlimited
    """From a server into the network."""
    downlink: BandwidthOrUnlimited
    """From the network to a server."""


# Loss -----------------------------------------------------------------------------------------------------


class IndependentLoss(Settings):
    """Each transmission is lost with the same probability, whatever happened to the others."""

    kind: Literal["independent"]
    probability: ShareBelowOne
    """The probability."""


class BurstyLoss(Settings):
    """Gilbert-Elliott: a connection is in turn good and bad, for exponentially distributed times.

    The share (good * loss_good + bad * loss_bad) / (good + bad) is lost in the long run.
    """

    kind: Literal["gilbert-elliott"]
    good: PositiveDuration
    """Mean length of a good spell."""
    bad: PositiveDuration
    """Mean length of a bad spell."""
    loss_good: ShareBelowOne = 0.0
    """Probability that a transmission in a good spell is lost."""
    loss_bad: ShareAboveZero = 1.0
    """Probability that a transmission in a bad spell is lost."""

    @model_validator(mode="after")
    def _bad_is_worse(self) -> "BurstyLoss":
        if self.loss_bad <= self.loss_good:
            raise SettingError("loss_bad", self.loss_bad, f"must be more than loss_good ({self.loss_good:g})")
        return self


Loss = Annotated[
    Annotated[IndependentLoss | BurstyLoss, Field(discriminator="kind")],
    Shorthand(
        lambda value: (
            value if isinstance(value, dict | Settings) else {"kind": "independent", "probability": value}
        ),
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    ),
]

# Partitions -----------------------------------------------------------------------------------------------


class Flapping(Settings):
    """A cut that comes and goes."""

    period: PositiveDuration
    """Time from one beginning of the cut to the next."""
    share: ShareAboveZero
    """Share of each period that is cut; the rest of it, all is well."""


class NetworkPartition(Settings):
    """A time in which some clients cannot reach others."""

    start: Duration
    """Begin of the cut."""
    end: PositiveDuration
    """End of the cut."""
    groups: Groups | None = None
    """Groups that are cut off from each other, both ways; who is in no group reaches everybody."""
    share: ShareAboveZero | None = None
    """Each client is cut off, both ways, from all others and the servers with this probability, decided once
    by a coin of its own; those cut off reach each other."""
    sources: Members | None = Field(None, alias="from")
    """One-way cut: messages of these to those in `to` are lost."""
    to: Members | None = None
    """One-way cut: the receivers."""
    flapping: Flapping | None = None
    """Between start and end the cut comes and goes."""

    @model_validator(mode="after")
    def _consistent(self) -> "NetworkPartition":
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        one_way = (self.sources, self.to) != (None, None)
        if self.groups is not None and self.share is not None:
            raise SettingError("share", self.share, "state either 'groups' or 'share', not both")
        if one_way and (self.groups is not None or self.share is not None):
            key = "groups" if self.share is None else "share"
            raise SettingError(key, getattr(self, key), f"state either '{key}' or 'from' and 'to', not both")
        if one_way and (self.sources is None or self.to is None):
            raise SettingError("to" if self.to is None else "from", None, "state both 'from' and 'to'")
        if not one_way and self.groups is None and self.share is None:
            raise SettingError(
                "groups", None, "state 'groups' or 'share' (two-way cut), or both 'from' and 'to' (one-way)"
            )
        if self.groups is not None and len(self.groups) < 2:
            raise SettingError("groups", self.groups, "needs two groups or more, to cut one off from another")
        return self


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
        return self


class Network(Settings):
    """The network between the clients. Latency and both bandwidths must be stated: none is ever assumed."""

    latency: Latency
    """Propagation time of one message: a duration, or a table with a distribution, places or measurements."""
    uplink: BandwidthDistribution
    """Bandwidth from each client into the network, shared fairly by its concurrent uploads."""
    downlink: BandwidthDistribution
    """Bandwidth from the network to each client, shared fairly by its concurrent downloads."""
    loss: Loss = IndependentLoss(kind="independent", probability=0.0)
    """Share of the messages (reliable: of the transmissions) that are lost, or a table for bursts."""
    link: Literal["reliable", "datagram"] = "reliable"
    """On reliable links a loss costs a retransmission and order is kept; a lost datagram is gone."""
    retransmission_delay: PositiveDuration = default(_RETRANSMISSION_DELAY)
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
        for place in (None, *range(len(self.classes))):
            _check_datagrams(self, place)
        _check_delays(self)
        return self

    def of_class(self, place: int | None, key: str) -> Any:
        """What `key` is on the connections of class number `place`; None: on those of no class."""
        own = None if place is None else getattr(self.classes[place], key)
        return getattr(self, key) if own is None else own


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


def _check_delays(network: Network) -> None:
    """A delay that is stated must be that of some connection."""
    places = (None, *range(len(network.classes)))
    repeating = {place for place in places if network.of_class(place, "link") == "reliable"}
    holding_up = {place for place in places if place not in repeating and network.of_class(place, "reorder")}
    for key, default_s, concerned, problem in (
        (
            "retransmission_delay",
            DURATION.parse(_RETRANSMISSION_DELAY),
            repeating,
            'no datagram is repeated: only with link = "reliable"',
        ),
        (
            "reorder_delay",
            None,
            holding_up,
            'nothing is held up: only with link = "datagram" and reorder above 0',
        ),
    ):
        # What [network] states holds for the classes, too, that do not state their own.
        inherited = [place for place, kind in enumerate(network.classes) if getattr(kind, key) is None]
        if (value := getattr(network, key)) != default_s and not concerned & {None, *inherited}:
            raise SettingError(key, value, problem)
        for place, kind in enumerate(network.classes):
            if (value := getattr(kind, key)) is not None and place not in concerned:
                raise SettingError(f"class.{place}.{key}", value, problem)

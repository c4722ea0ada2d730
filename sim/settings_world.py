"""Settings of the simulated world: topology, network, devices and churn, as written in a scenario file.

After validation every quantity is a plain number in SI units. Client numbers start at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from protocols.settings import (
    BandwidthOrUnlimited,
    Compute,
    Duration,
    PositiveDuration,
    SettingError,
    Settings,
    default,
)

ClientList = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
Factor = Annotated[float, Field(gt=0)]


def exactly_one(section: Settings, *keys: str) -> None:
    """Raise unless exactly one of these optional keys is stated."""
    stated = [key for key in keys if getattr(section, key) is not None]
    if len(stated) != 1:
        names = " or ".join(repr(key) for key in keys)
        raise SettingError(stated[1] if stated else keys[0], None, f"state exactly one of {names}")


@dataclass(frozen=True, eq=False)  # annotations must be hashable, and a schema is not
class Shorthand:
    """Annotation of a table that may also be written as a plain value; `expand` makes the table of it."""

    expand: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, table: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(table)]}


def kind_alone(*kinds: str) -> Shorthand:
    """``topology = "ring"`` stands for ``{ kind = "ring" }``; for kinds without required settings."""
    return Shorthand(
        lambda value: {"kind": value} if isinstance(value, str) else value, {"enum": list(kinds)}
    )


def _constant(quantity: Any) -> Shorthand:
    """A quantity where a distribution may stand is the constant distribution."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, dict | Settings) else {"kind": "constant", "value": value}

    return Shorthand(expand, TypeAdapter(quantity).json_schema())


# Distributions, of times and of speeds --------------------------------------------------------------------


class ConstantTime(Settings):
    """The same time always."""

    kind: Literal["constant"] = "constant"
    value: Duration
    """The time."""


class UniformTime(Settings):
    """Every time between two bounds equally likely."""

    kind: Literal["uniform"]
    low: Duration
    """Smallest time."""
    high: Duration
    """Largest time."""

    @model_validator(mode="after")
    def _ordered(self) -> "UniformTime":
        if self.high < self.low:
            raise SettingError("high", self.high, f"must be at least low ({self.low:g} s)")
        return self


class LogNormalTime(Settings):
    """Logarithm normally distributed: most near the median, a long tail of slow ones."""

    kind: Literal["lognormal"]
    median: PositiveDuration
    """Half of the times are below it."""
    sigma: Annotated[float, Field(ge=0)]
    """Standard deviation of the logarithm; 0.5 makes one time in six more than 1.65 times the median."""


TimeDistribution = Annotated[
    Annotated[ConstantTime | UniformTime | LogNormalTime, Field(discriminator="kind")], _constant(Duration)
]


class ConstantSpeed(Settings):
    """The same speed for every client."""

    kind: Literal["constant"] = "constant"
    value: Compute
    """The speed."""


class UniformSpeed(Settings):
    """Every speed between two bounds equally likely."""

    kind: Literal["uniform"]
    low: Compute
    """Smallest speed."""
    high: Compute
    """Largest speed."""

    @model_validator(mode="after")
    def _ordered(self) -> "UniformSpeed":
        if self.high < self.low:
            raise SettingError("high", self.high, f"must be at least low ({self.low:g} FLOP/s)")
        return self


class LogNormalSpeed(Settings):
    """Logarithm normally distributed."""

    kind: Literal["lognormal"]
    median: Compute
    """Half of the clients are slower."""
    sigma: Annotated[float, Field(ge=0)]
    """Standard deviation of the logarithm."""


SpeedDistribution = Annotated[
    Annotated[ConstantSpeed | UniformSpeed | LogNormalSpeed, Field(discriminator="kind")], _constant(Compute)
]

# Topology -------------------------------------------------------------------------------------------------


class Complete(Settings):
    """Every client knows every other."""

    kind: Literal["complete"]


class Ring(Settings):
    """Each client knows the one before and the one after it."""

    kind: Literal["ring"]


class KRegular(Settings):
    """A random connected graph in which all clients have the same number of neighbours."""

    kind: Literal["k-regular"]
    degree: PositiveInt
    """Neighbours of each client."""


class ErdosRenyi(Settings):
    """A random connected graph in which each pair is linked with the same probability."""

    kind: Literal["erdos-renyi"]
    probability: Annotated[float, Field(gt=0, le=1)]
    """Probability of a link between two clients."""


class SmallWorld(Settings):
    """A ring of near neighbours (Watts and Strogatz), some of whose links lead elsewhere."""

    kind: Literal["small-world"]
    degree: Annotated[int, Field(ge=2)]
    """Near neighbours of each client before rewiring."""
    rewire: Share
    """Share of the links that are rewired at random."""


class ClusterTopology(Settings):
    """Complete inside each cluster, no link between clusters."""

    kind: Literal["clusters"]
    count: PositiveInt | None = None
    """Number of clusters, as equal in size as possible."""
    sizes: tuple[PositiveInt, ...] | None = None
    """Clients in each cluster, instead of `count`."""

    @model_validator(mode="after")
    def _one_way(self) -> "ClusterTopology":
        exactly_one(self, "count", "sizes")
        return self


class EdgeList(Settings):
    """Links from a text file: two client numbers on each line."""

    kind: Literal["edge-list"]
    file: str
    """Path, relative to the current folder or else to the scenario's."""


Topology = Annotated[
    Annotated[
        Complete | Ring | KRegular | ErdosRenyi | SmallWorld | ClusterTopology | EdgeList,
        Field(discriminator="kind"),
    ],
    kind_alone("complete", "ring"),
]

# Network --------------------------------------------------------------------------------------------------


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
    membership: Literal["announce", "all-knowing"] = "announce"
    """How clients learn who is there: by messages and timeouts, or told at once by the simulator."""


# Devices --------------------------------------------------------------------------------------------------


class DeviceOverride(Settings):
    """Some clients' devices differ from the distribution."""

    clients: ClientList
    """The clients."""
    slowdown: Factor | None = None
    """Factor on all their computing times; 5 is five times slower."""
    step_time: PositiveDuration | None = None
    """Their time per training step."""
    speed: Compute | None = None
    """Their speed."""

    @model_validator(mode="after")
    def _says_something(self) -> "DeviceOverride":
        if self.slowdown is None and self.step_time is None and self.speed is None:
            raise SettingError("slowdown", None, "state 'slowdown', 'step_time' or 'speed'")
        if self.step_time is not None and self.speed is not None:
            raise SettingError("speed", self.speed, "state 'step_time' or 'speed', not both")
        return self


class ScheduledSlowdown(Settings):
    """Some clients' devices are slower for a time."""

    clients: ClientList | None = None
    """The clients."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the clients, drawn at random, instead of `clients`."""
    factor: Factor
    """Factor on their computing times."""
    start: Duration
    """Begin."""
    end: PositiveDuration
    """End."""

    @model_validator(mode="after")
    def _consistent(self) -> "ScheduledSlowdown":
        exactly_one(self, "clients", "share")
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        return self


class TransientStragglers(Settings):
    """Slow spells that come to every client at random, independently of the others."""

    every: PositiveDuration
    """Mean time between two spells of a client (Poisson process)."""
    length: PositiveDuration
    """Mean length of a spell (exponential)."""
    factor: Factor
    """Factor on the computing times during a spell."""


class Devices(Settings):
    """The clients' devices: `step_time` or `speed` must be stated, exactly one of them."""

    step_time: TimeDistribution | None = None
    """Time of one training step: a duration, or a table with a distribution over clients."""
    speed: SpeedDistribution | None = None
    """Speed of the device; a job then costs its floating-point operations divided by it."""
    override: tuple[DeviceOverride, ...] = ()
    """Clients whose devices differ."""
    slowdown: tuple[ScheduledSlowdown, ...] = ()
    """Slow times at known moments."""
    transient: TransientStragglers | None = None
    """Slow times at random moments."""

    @model_validator(mode="after")
    def _one_cost(self) -> "Devices":
        exactly_one(self, "step_time", "speed")
        stated, other = ("step_time", "speed") if self.speed is None else ("speed", "step_time")
        for index, override in enumerate(self.override):
            if (value := getattr(override, other)) is not None:
                problem = f"these devices are described by '{stated}', so state that"
                raise SettingError(f"override.{index}.{other}", value, problem)
        return self


# Churn ----------------------------------------------------------------------------------------------------


class Churn(Settings):
    """One event in the life of some clients. A client whose first event is a join is absent at the start."""

    at: Duration
    """Virtual time of the event."""
    event: Literal["join", "leave", "crash", "rejoin"]
    """join: first appearance; leave: with goodbyes; crash: at once, in silence; rejoin: back after either."""
    clients: ClientList
    """The clients."""
    state: Literal["keep", "fresh"] = "keep"
    """For a rejoin: with the state it had (keep), or as a newcomer (fresh)."""

    @model_validator(mode="after")
    def _state_of_rejoin(self) -> "Churn":
        if self.state == "fresh" and self.event != "rejoin":
            raise SettingError("state", self.state, f"only a rejoin can be fresh, this is a {self.event}")
        return self

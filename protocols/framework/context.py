"""Context that the run gives to a client or a server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from actors.transport import Transport
from protocols.framework.compute import Compute
from protocols.framework.objectives import Model
from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class Links:
    """Links of a client in a directed or weighted topology.

    receivers, senders: in a topology with one-way links, the clients that it may send to, and the clients
    that may send to it; otherwise None. weights: its weight for the model of each sender; None if the
    topology sets no weights.
    """

    receivers: frozenset[str] | None = None
    senders: frozenset[str] | None = None
    weights: Mapping[str, float] | None = None


NO_LINKS = Links()
"""Links in topologies without directions and weights."""


class Membership(Protocol):
    """Peers that this client considers up. `on_change(peer, up)` is called when this changes."""

    on_change: Callable[[str, bool], None] | None

    @property
    def peers(self) -> list[str]:
        """Names of the peers considered up, sorted."""

    def suspect(self, peer: str) -> None:
        """Mark `peer` as suspect: it did not answer in time."""

    def received_from(self, sender: str) -> None:
        """Handle a message from `sender` as a sign of life."""

    def on_message(self, message: object, sender: str) -> bool:
        """Handle a `MembershipMessage`; return False for other messages."""


@dataclass(frozen=True)
class NewcomersStart:
    """Start of a client that joins later: from the mean of the models of `peers` random peers.

    If `peers` is 0, the client starts from its own initial model. `patience`: seconds that the client waits
    for the peers' answers.
    """

    peers: int = 0
    patience: float = 10.0


@dataclass(slots=True)
class Noise:
    """Noise generator that makes a client's vectors private, over all its sessions.

    `rng`: a separate random stream. `releases`: number of vectors that were made private.
    """

    rng: np.random.Generator
    releases: int = 0


def _discard_report(who: str, name: str, value: Any) -> None:
    """Discard a report, when there is no observer."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Context that the run gives a client or a server.

    `rng`: the actor's random stream. `shared_seed`: a number that all clients know before the start.
    `observe(who, name, value)`: records a metric, at no cost; `report` is the same for coterie's own
    code, with names that methods may not use. `alone`: True if there are no peers and no servers, now or
    later. `links`: the actor's links in the topology. `trainable`: returns a model with 0 for parameters that
    no optimizer changes. `compute`: the device and data of a server, if the scenario sets them; a client
    receives its `compute` separately. `model`: the model whose parameters the vectors contain; for a server,
    the model of the first client. `number`: a client's number, from 0, in the scenario and in its name; None
    for a server. `model_group`: number of its group of models. `noise`: returns the noise generator of an
    actor by name, for a `GaussianMechanism`.
    """

    transport: Transport
    membership: Membership
    rng: np.random.Generator
    shared_seed: int
    observe: Callable[[str, str, Any], None]
    newcomers: NewcomersStart = NewcomersStart()
    alone: bool = False
    links: Links = NO_LINKS
    trainable: Callable[[Vector], Vector] = lambda of: of
    compute: Compute | None = None
    model: Model | None = None
    number: int | None = None
    model_group: int = 0
    noise: Callable[[str], Noise] | None = None
    report: Callable[[str, str, Any], None] = _discard_report

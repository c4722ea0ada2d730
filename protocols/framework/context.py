"""What a client or a server is given by whoever runs it."""

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
    """What a directed or weighted topology says of a client's links.

    receivers, senders: where a link may go one way only, whom the client may send to, and who may send to it;
    else None. weights: what it gives to the model of each sender; None where the topology states no weights.
    """

    receivers: frozenset[str] | None = None
    senders: frozenset[str] | None = None
    weights: Mapping[str, float] | None = None


NO_LINKS = Links()
"""What is said of them elsewhere."""


class Membership(Protocol):
    """The peers that this client believes to be up. `on_change(peer, up)` is called when this changes."""

    on_change: Callable[[str, bool], None] | None

    @property
    def peers(self) -> list[str]:
        """Names of the peers believed to be up, sorted."""

    def suspect(self, peer: str) -> None:
        """`peer` did not answer in time."""

    def heard_from(self, sender: str) -> None:
        """A message came from `sender`."""

    def on_message(self, message: object, sender: str) -> bool:
        """Whether a `MembershipMessage` was for it, and has been dealt with."""


@dataclass(frozen=True)
class NewcomersStart:
    """What a client that comes later starts from: the mean of the models of `peers` random peers.

    With 0 it starts from its own initial model. `patience`: seconds that it waits for their answers.
    """

    peers: int = 0
    patience: float = 10.0


@dataclass(slots=True)
class Noise:
    """What makes a client's vectors private, over all its lives.

    `rng`: a random stream of its own. `releases`: how many vectors have been made private.
    """

    rng: np.random.Generator
    releases: int = 0


def _unheard(who: str, name: str, value: Any) -> None:
    """Nobody observes."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Everything that a client or a server is given by whoever runs it.

    `rng` is its own random stream; `shared_seed` is a number that all clients were given before the start;
    `observe(who, name, value)` reports to the observer and costs nothing; `report` is the same for coterie's
    own code, whose names no method may use. `alone`: there are no peers and no
    servers, and never will be. `links`: what the topology says of its links. `trainable`: a model with 0 in
    place of what no optimizer changes. `compute`: the device and data of a server that has some; a client is
    handed its own beside these. `model`: what its vectors are the parameters of; of a server, the first
    client's. `number`: of a client, from 0, by which the scenario and its name call it; None for a server.
    `noise` finds an actor's by name, for a `GaussianMechanism`.
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
    noise: Callable[[str], Noise] | None = None
    report: Callable[[str, str, Any], None] = _unheard

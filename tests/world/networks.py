"""A network with five actors, whose events are written down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from actors.codec import size
from actors.message import Envelope
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import RandomStream
from sim.world.distributions import Distribution
from sim.world.network import SimulatedNetwork
from sim.world.network_model import ConnectionModel, NetworkModel
from tests.world.quantities import constant


@dataclass(frozen=True)
class Note:
    """A message of a chosen number and a payload."""

    number: int
    payload: bytes = b""


def number_of(envelope: Envelope) -> int:
    assert isinstance(envelope.message, Note)
    return envelope.message.number


UNIT_BYTES = size(Envelope("a", "b", Note(0)))  # of a note without payload, between names of one letter


class Scripted(Distribution):
    """Gives out the listed values."""

    values: Any  # a list, which `sample` shortens

    def sample(self, draws: RandomStream) -> float:
        return self.values.pop(0)


def scripted(values: Sequence[float]) -> Scripted:
    """Gives out these values."""
    return Scripted.model_construct(values=list(values))


def network_model(**settings: Any) -> NetworkModel:
    """A model from the settings of both classes; the latency is a quarter of a second if none is given."""
    of_link = {field.name for field in fields(ConnectionModel) if field.init}
    link = ConnectionModel(
        **{"latency": constant(0.25)} | {k: v for k, v in settings.items() if k in of_link}
    )
    return NetworkModel(link, **{k: v for k, v in settings.items() if k not in of_link})


class World:
    """A network of the names a to e, all attached, whose events are written down."""

    def __init__(
        self, loop: VirtualLoop | None = None, seed: int = 0, names: str = "abcde", **model: Any
    ) -> None:
        self.loop = loop or VirtualLoop()
        self.network = SimulatedNetwork(self.loop, seed, network_model(**model), self.observe)
        self.received: list[tuple[float, str, int]] = []  # time, receiver, number
        self.events: list[tuple[float, str, int, str]] = []  # time, event, number, reason
        self.under_way: dict[int, Envelope] = {}  # by the network's own numbers
        for name in names:
            self.attach(name)

    def observe(
        self,
        event: str,
        time_s: float,
        envelope: Envelope,
        kind: str,
        size_bytes: int,
        reason: str,
        message: int,
    ) -> None:
        assert kind == "Note"
        assert time_s == self.loop.time()
        assert size_bytes == size(envelope)
        if event == "sent":
            assert message == self.network.counts.sent
            self.under_way[message] = envelope
        else:
            assert self.under_way.pop(message) == envelope
        self.events.append((time_s, event, number_of(envelope), reason))

    def attach(self, name: str) -> None:
        def deliver(envelope: Envelope) -> None:
            assert envelope.receiver == name
            self.received.append((self.loop.time(), name, number_of(envelope)))

        self.network.attach(name, deliver)

    def at(self, time_s: float, call: Callable[..., object], *args: object) -> None:
        self.loop.call_at(time_s, call, *args)

    def send(self, time_s: float, pair: str, number: int, payload: bytes = b"") -> None:
        self.at(time_s, self.network.send, Envelope(pair[0], pair[1], Note(number, payload)))

    def run(self, until_s: float = 1e6) -> "World":
        self.loop.run_until(until_s)
        return self

    def ends(self) -> list[tuple[float, str, int, str]]:
        return [event for event in self.events if event[1] != "sent"]

"""Memberships on a simulated network, without anything else: each member is a name that hears and tells."""

from collections.abc import Callable, Sequence

from actors.message import Envelope
from protocols.membership.view import MembershipView
from sim.kernel.clock import VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.network_model import ConnectionModel, NetworkModel
from tests.world.quantities import constant


class Members:
    """`make(name, loop)` gives a member's membership; `happened` collects its (time, name, peer, up)."""

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str, VirtualLoop], MembershipView],
        model: NetworkModel | None = None,
        seed: int = 1,
    ) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(
            self.loop, seed, model or NetworkModel(ConnectionModel(constant(0.01)))
        )
        self.members = {name: make(name, self.loop) for name in names}
        self.happened: list[tuple[float, str, str, bool]] = []
        self.up: set[str] = set()
        for name, member in self.members.items():
            member.on_change = self._noting(name)

    def _noting(self, name: str) -> Callable[[str, bool], None]:
        return lambda peer, up: self.happened.append((self.loop.time(), name, peer, up))

    def _attach(self, name: str) -> Callable[[str, object], None]:
        member = self.members[name]

        def deliver(envelope: Envelope) -> None:
            member.received_from(envelope.sender)
            assert member.on_message(envelope.message, envelope.sender)

        self.network.attach(name, deliver)
        self.up.add(name)
        return lambda peer, message: self.network.send(Envelope(name, peer, message))

    def start(self, *names: str) -> None:
        for name in names or tuple(self.members):
            self.members[name].start(self._attach(name))

    def join(self, name: str) -> None:
        self.members[name].join(self._attach(name))

    def leave(self, name: str) -> None:
        self.members[name].leave(lambda peer, message: self.network.send(Envelope(name, peer, message)))
        self._gone(name)

    def crash(self, name: str) -> None:
        self.members[name].crash()
        self._gone(name)

    def _gone(self, name: str) -> None:
        self.network.abort(name)
        self.up.discard(name)

    def run(self, until_s: float) -> None:
        self.loop.run_until(until_s)

    def who_knows(self, peer: str, *, up: bool) -> list[str]:
        """The members that are up and believe this of `peer`."""
        return [name for name in sorted(self.up) if name != peer and (peer in self.members[name].peers) == up]

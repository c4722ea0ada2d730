"""A table by peer follows the peers, whatever else a method does."""

from dataclasses import dataclass

import pytest

from protocols import Client, PerPeer
from protocols.framework.component import Component
from tests.protocols.worlds import QUADRATIC, churn, learner, ran


@dataclass
class Known:
    """What the method below keeps of a peer."""

    told: int = 0


@dataclass(frozen=True)
class Tick:
    """A message."""


class Counts(Client):
    """Counts messages by peer, in three ways."""

    def setup(self) -> None:
        self.known = PerPeer(self, Known)
        self.kept = PerPeer[int](self, int, on_departure=self.halved)
        self.plain = PerPeer[float](self)

    def halved(self, peer: str, count: int | None) -> int | None:
        return None if count is None else count // 2

    async def step(self) -> None:
        for peer in self.peers:
            self.tell(peer, Tick())
        await self.train()

    async def on_message(self, message: object, sender: str) -> None:
        self.known[sender].told += 1
        self.kept[sender] += 1
        self.plain[sender] = self.now


METHOD = f"protocol.name={__name__}:Counts"


def test_who_leaves_is_dropped_and_begins_anew() -> None:
    """Steps take .5 s and messages .25 s; client 1 leaves at 2.1 s, when four of its messages have come, and
    is back at 6.1 s."""
    leaves = QUADRATIC + churn("leave", 1, "2.1 s")
    with ran(leaves, METHOD, "run.duration=5 s", "run.evaluate_every=5 s") as world:
        gone = learner(world, 0)
        assert isinstance(gone, Counts)
        assert list(gone.known) == list(gone.plain) == ["client-2", "client-3"]
        assert gone.kept == {"client-1": 2, "client-2": 10, "client-3": 10}
    with ran(leaves + churn("rejoin", 1, "6.1 s"), METHOD) as world:
        back = learner(world, 0)
        assert isinstance(back, Counts)
        assert {peer: known.told for peer, known in back.known.items()} == {
            "client-2": 16,
            "client-3": 16,
            "client-1": 4,
        }
        assert back.kept == {"client-1": 6, "client-2": 16, "client-3": 16}


class OfNobody:
    """What a table needs of its client."""

    def _add_component(self, component: Component) -> None:
        self.component = component


def test_it_is_a_dict_otherwise() -> None:
    client = OfNobody()
    table = PerPeer[int](client)  # type: ignore[arg-type]
    table |= {"b": 2, "a": 1}
    assert isinstance(table, PerPeer) and table == {"b": 2, "a": 1} and "c" not in table
    with pytest.raises(KeyError):
        table["c"]
    table.replace((name, value + 1) for name, value in table.items() if name != "b")
    assert table == {"a": 2} and client.component is table
    table.peer_changed("a", up=True)
    table.peer_changed("c", up=False)
    assert table == {"a": 2}
    table.peer_changed("a", up=False)
    assert table == {}


def test_only_reading_by_the_name_makes_a_record() -> None:
    client = OfNobody()
    table = PerPeer(client, Known)  # type: ignore[arg-type]
    assert table.get("a") is None and "a" not in table
    table["a"].told += 1
    assert table["a"].told == 1

"""A client that names no server has that of federated averaging; what does not suit it is told."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest

from protocols import AsyncClient, AsyncServer, Contribution, RoundClient, RoundServer, Vector
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import QUADRATIC, make, messages

HERE = f"protocol.name={__name__}"


@dataclass(frozen=True)
class Trained:
    model: Vector


@dataclass(frozen=True)
class Weighed:
    params: Vector
    samples: int


class Other(RoundClient):
    async def work(self, task):
        self.params = await self.trained(task.params)
        return Trained(self.params)


class AsksForMore(RoundClient):
    async def work(self, task):
        self.params = await self.trained(task.model)
        return Contribution(self.params, self.samples)


class Learns(RoundClient):
    def learn(self, news):
        self.params = news.model


class OwnMistake(RoundClient):
    async def work(self, task):
        return self.settings.strength


class Averaged(RoundClient):
    async def work(self, task):
        self.params = await self.trained(task.params)
        return Weighed(self.params, self.samples)


class Collects(AsyncServer):
    def arrived(self, work, client, staleness):
        pass


class RoundsWithoutRounds(RoundClient):
    server = Collects  # type: ignore[assignment]


class NoRoundsWithRounds(AsyncClient):
    server = RoundServer  # type: ignore[assignment]


class SendsNothing(AsyncClient):
    server = Collects

    async def work(self, start):
        await self.trained(start)


@contextmanager
def failed(*scenario: str) -> Iterator[Simulation]:
    """A run whose clients or servers may fail."""
    world = make(*scenario)
    with closing(world):
        world.run()
        yield world


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Other",
            "work() returned Trained, but the server averages Contributions (params, samples): return one",
        ),
        ("AsksForMore", "reads model, which the server's Assignment does not have"),
        ("Learns", "reads model, which the server's GlobalModel does not have"),
    ],
)
def test_what_does_not_suit_the_server_is_told(name: str, said: str) -> None:
    with failed(QUADRATIC, f"{HERE}:{name}", "protocol.broadcast=all") as world:
        first = world.supervisor.failures[0]
        assert (
            first.error.startswith("TypeError: ") and said in first.error and "`server = ...`" in first.error
        )
        assert (name in first.error or name == "Other") and first.time_s < 2


def test_work_that_returns_nothing_is_named() -> None:
    with failed(QUADRATIC, f"{HERE}:SendsNothing") as world:
        first = world.supervisor.failures[0]
        assert re.match(r"TypeError: SendsNothing\.work\(\) \(.*:\d+\) returned nothing", first.error)


def test_a_mistake_of_ones_own_is_left_as_it_is() -> None:
    with failed(QUADRATIC, f"{HERE}:OwnMistake") as world:
        assert world.supervisor.failures[0].error.startswith("AttributeError: ")


def test_who_is_to_be_averaged_needs_no_server_of_its_own() -> None:
    with failed(QUADRATIC, f"{HERE}:Averaged") as world:
        assert not world.supervisor.failures and len(messages(world, "Weighed")) > 8


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("RoundsWithoutRounds", "Collects must be a subclass of RoundServer, which its clients need"),
        ("NoRoundsWithRounds", "RoundServer must be a subclass of AsyncServer, which its clients need"),
    ],
)
def test_a_server_of_another_kind_is_refused(method: str, said: str) -> None:
    """It would never ask such clients for anything, or understand what they ask."""
    with pytest.raises(UserError, match=said):
        make(QUADRATIC, f"{HERE}:{method}")

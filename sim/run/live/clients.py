"""The clients of a simulation, as seen from outside: over all their lives, and between two evaluations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.source_location import of_error, own_line
from actors.supervisor import Supervisor
from protocols.framework.client import Client
from protocols.framework.coalition import Coalition
from protocols.membership.view import MembershipView
from sim.learning.engine import Scalar, Vector
from sim.plugins.section import FAILURES
from sim.run.live.budget import Work
from sim.run.live.compute import DeviceCompute
from sim.scenario.protocol_errors import defined
from sim.world.churn.schedule import State
from sim.world.devices.device import Device


@dataclass
class ClientLife:
    """A client over all its lives: its device and its view of the others stay, its learner may be replaced.

    `learner` is None while nothing is left of it: before the first life, and after one whose state nobody
    will need. `backup` is the model that it saved last, where it may come back with that. `mute`:
    its weights() failed; `shows_only_its_model`, `shows_no_coalition`: its evaluated() or coalition() did.
    """

    index: int
    name: str
    compute: DeviceCompute
    bytes_sent: Callable[[], int]
    membership: MembershipView
    fresh: Callable[[], Client]
    up_at_start: bool
    learner: Client | None = None
    up: bool = False
    leaving: asyncio.Task[None] | None = None
    backup: Vector | None = None
    mute: bool = False
    shows_only_its_model: bool = False
    shows_no_coalition: bool = False

    def newcomer(self) -> Client:
        """A fresh learner that comes after the others."""
        learner = self.fresh()
        learner.newcomer = learner.late = True
        return learner

    def returning(self, wanted: State) -> tuple[State, Callable[[], Client]]:
        """How it comes back: its state, "fresh" where there is no other, and what makes its learner."""
        kept, backup = self.learner, self.backup
        if wanted == "keep" and kept is not None:
            return wanted, partial(self._kept, kept)
        if wanted == "stale" and backup is not None:
            return wanted, partial(self._restored, backup)
        return "fresh", self.newcomer

    def _kept(self, learner: Client) -> Client:
        learner.late = True
        return learner

    def _restored(self, backup: Vector) -> Client:
        learner = self.fresh()
        learner.params = backup
        learner.late = True
        return learner

    @property
    def params(self) -> Vector:
        """The present learner's model."""
        assert self.learner is not None and isinstance(self.learner.params, Vector)
        return self.learner.params

    @property
    def iterations(self) -> int:
        """Iterations that the present learner has done; one that starts afresh starts at 0."""
        assert self.learner is not None
        return self.learner.iterations

    @property
    def work(self) -> Work:
        """What it has done until now."""
        return Work.of(self.compute, self.bytes_sent())

    @property
    def finished(self) -> bool:
        """Whether it has spent its budget, and done what it had begun."""
        learner = self.learner
        return learner is not None and learner.finished and not self.compute.steps_begun

    def has_done(self, iterations: int) -> bool:
        """Whether it has done so many iterations, or will do no more."""
        return self.finished or self.iterations >= iterations

    @property
    def device(self) -> Device:
        """What it computes on."""
        return self.compute.device


def with_same_model(clients: Iterable[ClientLife]) -> list[list[ClientLife]]:
    """The clients in groups whose models have the same architecture, so that their vectors are as long."""
    groups: dict[str, list[ClientLife]] = {}
    for client in clients:
        groups.setdefault(client.compute.settings.architecture.key, []).append(client)
    return list(groups.values())


@dataclass
class ChurnCounts:
    """How many clients came and went so far.

    failed: stopped by an error of their own code. restarted: up again after that. turned_away: arrivals for
    whom there was no client left.
    """

    joined: int = 0
    left: int = 0
    crashed: int = 0
    rejoined: int = 0
    failed: int = 0
    restarted: int = 0
    turned_away: int = 0


def observed(name: str, value: object) -> float | Scalar:
    """A value that an actor reported: a number, perhaps one that is not computed yet. TypeError otherwise."""
    if isinstance(value, Scalar):
        return value
    try:
        if not isinstance(value, str):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        pass
    what, must = type(value).__name__, "the value must be a number"
    if isinstance(value, Awaitable):  # without its address, by which equal failures would differ
        raise TypeError(f"observe({name!r}, ...): {must}, not {what}: write `await` before what returns it")
    raise TypeError(f"observe({name!r}, {value!r:.60}): {must}, not {what}")


def weights_of(
    client: ClientLife, clients: Container[str], supervisor: Supervisor
) -> Mapping[str, float | Scalar]:
    """A client's collaboration weights, by the names of `clients`.

    If they are none, that is recorded as a failure, and the client is not asked again; it goes on, since only
    the observer wants to know.
    """
    learner = client.learner
    if learner is None or client.mute:
        return {}
    try:
        return _require_weights(learner.weights(), clients)
    except FAILURES as error:
        client.mute = True
        place = own_line(type(learner), of_error(error)) or defined(type(learner).weights)
        supervisor.record(learner, "weights", error, "go on", place)
        return {}


def coalition_of(client: ClientLife, clients: Container[str], supervisor: Supervisor) -> Coalition | None:
    """A client's coalition, whose members are among `clients`; None if it is in none.

    If it is none, that is recorded as a failure, and the client is not asked again, as with `weights_of`.
    """
    learner = client.learner
    if learner is None or client.shows_no_coalition or type(learner).coalition is Client.coalition:
        return None
    try:
        found = learner.coalition()
        if not isinstance(found, Coalition | None):
            raise TypeError(f"coalition() must return a Coalition or None, not {type(found).__name__}")
        strangers = [] if found is None else [member for member in found.members if member not in clients]
        if strangers or (found is not None and client.name not in found.members):
            raise ValueError(f"coalition() of {client.name} must name clients, itself among them")
        return found
    except FAILURES as error:
        client.shows_no_coalition = True
        place = own_line(type(learner), of_error(error)) or defined(type(learner).coalition)
        supervisor.record(learner, "coalition", error, "go on", place)
        return None


def _require_weights(weights: object, clients: Container[str]) -> Mapping[str, float | Scalar]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        what = type(weights).__name__
        raise TypeError(f"weights() must return a mapping of peers' names to numbers, or None, not {what}")
    for peer, weight in weights.items():
        if peer not in clients:
            raise ValueError(f"weights() names {peer!r:.60}, which is no client; use names from self.peers")
        if not isinstance(weight, float | int | Scalar) and not hasattr(weight, "__float__"):
            raise TypeError(f"weights() must give {peer} a number, not {type(weight).__name__}")
    return weights


class Window:
    """What one actor reported since the last evaluation. `sums`: sum and number of values, by name."""

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums: dict[str, list[Any]] = {}

    def drain(self) -> list[tuple[str, float]]:
        """(name, mean value) of everything reported, in the order of first mention, and start afresh."""
        means = [(name, total / count) for name, (total, count) in self.sums.items()]
        self.sums = {}
        return means

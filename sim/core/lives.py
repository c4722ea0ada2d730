"""Clients and servers as seen from outside: each over all its lives."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, assert_never

from protocols.framework.client import Client
from protocols.framework.context import ClientContext
from protocols.framework.server import Server
from protocols.membership.view import MembershipView
from sim.core.budget import Work
from sim.core.client_training import DeviceCompute
from sim.learning.engine import Vector
from sim.world.churn.schedule import State
from sim.world.churn.server_crash import ServerCrash
from sim.world.devices.device import Device

A = TypeVar("A", Client, Server)


@dataclass
class Life(Generic[A]):
    """A client or a server over all its lives: its device and its view of the others stay, its actor changes.

    `make` makes its actors; all clients have the same. `compute`: its device and data, if it has some.
    `returns`: when (seconds) it comes back and with what, by time; `later`: with what it may come back after
    that.
    `actor` is None while nothing is left of it: before the first life, and after one whose state nobody will
    need. `backup`: the model that it saved last, where it may come back with that.
    """

    name: str
    context: ClientContext
    make: Callable[[Any], A]
    compute: DeviceCompute | None
    returns: Sequence[tuple[float, State]] = ()
    later: State = "fresh"
    actor: A | None = None
    up: bool = False
    backup: Vector | None = None

    former_waits: tuple[int, int] = (0, 0)
    """`waits` of the actors before the present one."""

    @property
    def waits(self) -> tuple[int, int]:
        """How often it has waited for a round's messages over all its lives, and how often in vain."""
        (waits, in_vain), actor = self.former_waits, self.actor
        if actor is None:
            return waits, in_vain
        return waits + actor._round_waits, in_vain + actor._round_waits_in_vain

    def go_on_with(self, actor: A | None) -> None:
        """Have another actor from now on, or none."""
        if actor is not self.actor:
            self.former_waits, self.actor = self.waits, actor

    @property
    def membership(self) -> MembershipView:
        """Its view of the others."""
        view = self.context.membership
        assert isinstance(view, MembershipView)
        return view

    def fresh(self) -> A:
        """An actor that remembers nothing."""
        if self.compute is not None:
            self.compute.forget()
        return self.make(self)

    def begin_anew(self) -> A:
        """A fresh actor that comes after the others."""
        return self.fresh()

    def returning(self, wanted: State) -> tuple[State, Callable[[], A]]:
        """How it comes back: its state, "fresh" where there is no other, and what makes its actor."""
        kept, backup = self.actor, self.backup
        match wanted:
            case "keep" if kept is not None:
                return wanted, partial(_late, kept)
            case "stale" if backup is not None:
                return wanted, partial(self._restored, backup)
            case "keep" | "stale" | "fresh":
                return "fresh", self.begin_anew
            case _:
                assert_never(wanted)

    def _restored(self, backup: Vector) -> A:
        actor = self.fresh()
        actor.params = backup
        return _late(actor)

    def set_up(self) -> None:
        """Bring the actor up, and its device."""
        self.up = True
        if self.compute is not None:
            self.compute.device.set_up()

    def set_down(self, now_s: float) -> None:
        """Take its device down with all its jobs; unless it returns with what it had, nothing of it stays."""
        if self.compute is not None:
            self.compute.device.set_down()
        if next((state for time_s, state in self.returns if time_s >= now_s), self.later) != "keep":
            self.membership.on_change = None
            self.go_on_with(None)
            if self.compute is not None:
                self.compute.forget()


def _late(actor: A) -> A:
    actor.late = True
    return actor


@dataclass
class ServerLife(Life[Server]):
    """A server over all its lives."""

    crashes: Sequence[ServerCrash] = ()


@dataclass(kw_only=True)
class ClientLife(Life[Client]):
    """A client over all its lives.

    `bytes_sent`: by all, by name. `backup_every_s`: seconds between its backups, where it makes any.
    `failed_hooks`: those of its method, such as weights(), that the observer asks no more.
    """

    index: int
    compute: DeviceCompute
    bytes_sent: Mapping[str, int]
    up_at_start: bool
    backup_every_s: float | None = None
    leaving: asyncio.Task[None] | None = None
    failed_hooks: frozenset[str] = frozenset()

    def begin_anew(self) -> Client:
        actor = self.fresh()
        actor.newcomer = actor.late = True
        return actor

    @property
    def params(self) -> Vector:
        """The present actor's model."""
        assert self.actor is not None and isinstance(self.actor.params, Vector)
        return self.actor.params

    @property
    def iterations(self) -> int:
        """Iterations that the present actor has done; one that starts afresh starts at 0."""
        assert self.actor is not None
        return self.actor.iterations

    @property
    def work(self) -> Work:
        """The client's work until now."""
        return Work.of(self.compute, self.bytes_sent[self.name])

    @property
    def finished(self) -> bool:
        """Whether it has spent its budget, and done what it had begun."""
        return self.actor is not None and self.actor.finished and not self.compute.steps_begun

    def has_done(self, iterations: int) -> bool:
        """Whether it has done so many iterations, or will do no more."""
        return self.finished or self.iterations >= iterations

    @property
    def device(self) -> Device:
        """The device that the client computes on."""
        return self.compute.device


def least_iterations(clients: Iterable[ClientLife]) -> int | None:
    """Iterations that all have done who are up and still train; None if nobody does."""
    # A client whose protocol could not be made has none.
    begun = [client for client in clients if client.up and client.actor is not None]
    return min([client.iterations for client in begun if not client.finished], default=None)


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

"""Clients and servers in a simulation, over all their sessions."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, assert_never

from protocols.framework.client import Client
from protocols.framework.context import ClientContext
from protocols.framework.requirements import ProtocolSettings
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
    """A client or a server over all its sessions. The device and the view of peers stay the same; the actor
    changes.

    `make`: function that creates an actor. `compute`: device and data; None for a server without a device.
    `returns`: times (seconds) of returns, each with the kept state, by time; `later`: state after later
    returns. `actor`: None before the first session, and after a session whose state is not kept.
    `backup`: last saved model, if the actor may return with it.
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
    """`waits` of earlier actors."""

    own_settings: Mapping[str, Any] = field(default_factory=dict)  # of the protocol, that differ

    def own(self, settings: ProtocolSettings) -> ProtocolSettings:
        """Return the settings of the protocol for this actor."""
        return settings.model_copy(update=dict(self.own_settings)) if self.own_settings else settings

    @property
    def waits(self) -> tuple[int, int]:
        """Counts over all sessions: waits for messages of a round; waits that ended without any message."""
        (waits, in_vain), actor = self.former_waits, self.actor
        if actor is None:
            return waits, in_vain
        return waits + actor._round_waits, in_vain + actor._round_waits_in_vain

    def replace_actor(self, actor: A | None) -> None:
        """Replace the actor; None removes it."""
        if actor is not self.actor:
            self.former_waits, self.actor = self.waits, actor

    @property
    def membership(self) -> MembershipView:
        """View of the peers."""
        view = self.context.membership
        assert isinstance(view, MembershipView)
        return view

    def fresh(self) -> A:
        """Create an actor without any earlier state."""
        if self.compute is not None:
            self.compute.forget()
        return self.make(self)

    def new_actor(self) -> A:
        """Create a fresh actor that starts after the others."""
        return self.fresh()

    def returning(self, wanted: State) -> tuple[State, Callable[[], A]]:
        """Return the state of the actor after a return, and the function that creates the actor.

        The state is "fresh" if the wanted state does not exist.
        """
        kept, backup = self.actor, self.backup
        match wanted:
            case "keep" if kept is not None:
                return wanted, partial(_mark_late, kept)
            case "stale" if backup is not None:
                return wanted, partial(self._restored, backup)
            case "keep" | "stale" | "fresh":
                return "fresh", self.new_actor
            case _:
                assert_never(wanted)

    def _restored(self, backup: Vector) -> A:
        actor = self.fresh()
        actor.params = backup
        return _mark_late(actor)

    def set_up(self) -> None:
        """Mark the actor and its device as up."""
        self.up = True
        if self.compute is not None:
            self.compute.device.set_up()

    def set_down(self, now_s: float) -> None:
        """Take the device down with its jobs. Remove the actor unless its next session keeps the state."""
        if self.compute is not None:
            self.compute.device.set_down()
        if next((state for time_s, state in self.returns if time_s >= now_s), self.later) != "keep":
            self.membership.on_change = None
            self.replace_actor(None)
            if self.compute is not None:
                self.compute.forget()


def _mark_late(actor: A) -> A:
    actor.late = True
    return actor


@dataclass
class ServerLife(Life[Server]):
    """A server over all its sessions."""

    crashes: Sequence[ServerCrash] = ()


@dataclass(kw_only=True)
class ClientLife(Life[Client]):
    """A client over all its sessions.

    `bytes_sent`: sent bytes of all clients, by name. `backup_every_s`: seconds between backups; None for no
    backups. `failed_hooks`: methods such as weights() that raised an error and are not called again.
    """

    index: int
    compute: DeviceCompute
    bytes_sent: Mapping[str, int]
    up_at_start: bool
    backup_every_s: float | None = None
    leaving: asyncio.Task[None] | None = None
    failed_hooks: frozenset[str] = frozenset()

    def new_actor(self) -> Client:
        actor = self.fresh()
        actor.newcomer = actor.late = True
        return actor

    @property
    def params(self) -> Vector:
        """Model of the current actor."""
        assert self.actor is not None and isinstance(self.actor.params, Vector)
        return self.actor.params

    @property
    def iterations(self) -> int:
        """Iterations of the current actor; a fresh actor starts at 0."""
        assert self.actor is not None
        return self.actor.iterations

    @property
    def work(self) -> Work:
        """Work of the client so far."""
        return Work.of(self.compute, self.bytes_sent[self.name])

    @property
    def finished(self) -> bool:
        """True if the current actor has finished, and no training is in progress.

        An actor finishes when its budget is exhausted, or when the server's rounds are over.
        """
        return self.actor is not None and self.actor.finished and not self.compute.steps_begun

    def has_done(self, iterations: int) -> bool:
        """Return True if the client has done this many iterations, or has finished."""
        return self.finished or self.iterations >= iterations

    @property
    def device(self) -> Device:
        """Device of the client."""
        return self.compute.device


def least_iterations(clients: Iterable[ClientLife]) -> int | None:
    """Return the least iterations of clients that are up and still train; None without such clients."""
    # A client whose actor could not be created has no iterations.
    begun = [client for client in clients if client.up and client.actor is not None]
    return min([client.iterations for client in begun if not client.finished], default=None)


def group_by_architecture(clients: Iterable[ClientLife]) -> list[list[ClientLife]]:
    """Group clients by the architecture of their models, so that vectors of a group have the same length."""
    groups: dict[str, list[ClientLife]] = {}
    for client in clients:
        groups.setdefault(client.compute.settings.architecture.key, []).append(client)
    return list(groups.values())


@dataclass
class ChurnCounts:
    """Counts of arrivals and departures so far.

    failed: clients stopped by an error of their code. restarted: clients restarted after such an error.
    turned_away: arrivals for which no client was left.
    """

    joined: int = 0
    left: int = 0
    crashed: int = 0
    rejoined: int = 0
    failed: int = 0
    restarted: int = 0
    turned_away: int = 0

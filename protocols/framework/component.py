"""A part of a method that a client has: an object that follows what happens to its client."""

from __future__ import annotations

from collections.abc import Callable
from inspect import ismethod
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ProxyType, WeakMethod, proxy

if TYPE_CHECKING:
    from protocols.framework.client import Client

C = TypeVar("C", bound=Callable[..., Any])


class Component:
    """Base of the objects that methods are put together from, such as rounds or a table of peers.

    A method makes them in `begin()`, as `self.rounds = Rounds(self, ...)`. They are told what happens to
    their client, in the order in which they were made; of messages only those whose class defines `heard`.
    `client` does not keep the client alive: nothing of one that has crashed for good must stay, nor be
    computed.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client if isinstance(client, ProxyType) else proxy(client)
        client._add_component(self)

    def life_began(self) -> None:
        """The client is up and about to begin its first iteration, at first or once more."""

    def heard(self, message: object | None, sender: str) -> None:
        """Something arrived from `sender`."""

    def peer_changed(self, peer: str, up: bool) -> None:
        """`peer` was added to the client's peers, or taken out; not told of shuffles of a sampled view."""

    def step_ended(self) -> None:
        """An iteration is over and counted."""

    def budget_spent(self) -> None:
        """The client begins no iteration any more; it only serves the others."""


def weakly(method: C) -> C:
    """A bound method that does not keep its object alive, for a component to call while it lives.

    A function is returned as it is.
    """
    if not ismethod(method):
        return method
    reference = WeakMethod(method)

    def called(*arguments: Any) -> Any:
        found = reference()
        return None if found is None else found(*arguments)

    return called  # type: ignore[return-value]

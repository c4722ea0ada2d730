"""A part of a method that a client has: an object that follows what happens to its client."""

from __future__ import annotations

from collections.abc import Callable
from inspect import ismethod
from typing import Any, TypeVar
from weakref import ProxyType, WeakMethod, proxy

from protocols.framework.client import Client
from protocols.framework.listener import NodeListener

C = TypeVar("C", bound=Callable[..., Any])


class Component(NodeListener):
    """Base of the objects that methods are put together from, such as rounds or a table of peers.

    A method makes them in `begin()`, as `self.rounds = Rounds(self, ...)`. They are told what happens to
    their client, in the order in which they were made; of messages only those whose class defines `heard`.
    `client` does not keep the client alive: nothing of one that has crashed for good must stay, nor be
    computed.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client if isinstance(client, ProxyType) else proxy(client)
        client._add_component(self)


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

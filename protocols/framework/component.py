"""Components: parts of a method that follow the events of their client."""

from __future__ import annotations

from collections.abc import Callable
from inspect import ismethod
from typing import Any, TypeVar
from weakref import ProxyType, WeakMethod, proxy

from protocols.framework.client import Client
from protocols.framework.listener import NodeListener

C = TypeVar("C", bound=Callable[..., Any])


class Component(NodeListener):
    """Base class of the objects of which methods are composed, such as rounds or a table of peers.

    A method creates components in `setup()`, as in `self.rounds = Rounds(self, ...)`. The events of a client
    are reported to its components in the order in which the method created them, and messages only to
    components whose class defines `message_received`. `client` is a weak reference, so that a client that
    crashed for good is freed.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client if isinstance(client, ProxyType) else proxy(client)
        client._add_component(self)


def weak_callback(method: C) -> C:
    """Return a function that calls a bound method without keeping its object alive.

    A function is returned unchanged.
    """
    if not ismethod(method):
        return method
    reference = WeakMethod(method)

    def called(*arguments: Any) -> Any:
        found = reference()
        return None if found is None else found(*arguments)

    return called  # type: ignore[return-value]

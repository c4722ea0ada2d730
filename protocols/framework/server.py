"""A server: an actor that coordinates clients, and computes where the scenario gives it data and a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from protocols.framework.context import ClientContext
from protocols.framework.node import Node
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class ServerPlan:
    """A server that a method needs: its name, its class, and the clients it serves.

    A client may be served by several. `servers`: names of other servers that it talks to, and they to it.
    """

    name: str
    kind: type[Server]
    clients: tuple[str, ...]
    servers: tuple[str, ...] = ()

    @classmethod
    def one(cls, server: type[Server], of: type[Server], clients: Sequence[str]) -> list[ServerPlan]:
        """One server of all clients, which understand what servers of the class `of` send; TypeError else."""
        if isinstance(server, type) and not issubclass(server, of):
            raise TypeError(f"{server.__name__} is no {of.__name__}, which its clients need: `server = ...`")
        return [cls("server", server, tuple(clients))]


class Server(Node):
    """An actor that coordinates clients, as in federated averaging.

    It has data and a device of its own only where the scenario says so, in `[server]`; then it can `train`,
    measure a `gradient` or a `loss`, and `apply` functions at a cost, as a client does.
    """

    _machinery: ClassVar[bool] = True
    settings: ProtocolSettings
    """The same as its clients': those that the scenario states beside `protocol.name`."""

    def __init__(
        self, name: str, context: ClientContext, settings: ProtocolSettings, initial: Vector
    ) -> None:
        super().__init__(name, context, context.compute, initial)
        self.settings = settings
        self.begin()

    def __getattr__(self, name: str) -> Any:
        """AttributeError; for `compute` it says that the scenario gives servers no device."""
        if name in ("compute", "samples"):  # a property asks again for itself where it raises
            raise AttributeError(
                f"{self.name} has no data and no device; the scenario gives servers some by [server], with "
                "`samples` and `step_time` or `speed`"
            )
        return object.__getattribute__(self, name)  # a property of the method's says what failed in it

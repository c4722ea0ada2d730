"""Server: an actor that coordinates clients, and computes if the scenario gives it data and a device."""

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
    """Plan of a server that a method needs: its name, its class, and the clients that it serves.

    Several servers may serve a client. `servers`: names of other servers with which it communicates.
    """

    name: str
    kind: type[Server]
    clients: tuple[str, ...]
    servers: tuple[str, ...] = ()

    @classmethod
    def one(cls, server: type[Server], of: type[Server], clients: Sequence[str]) -> list[ServerPlan]:
        """Plan one server for all clients. Raises TypeError unless its class derives from `of`."""
        if isinstance(server, type) and not issubclass(server, of):
            raise TypeError(
                f"{server.__name__} must be a subclass of {of.__name__}, which its clients need: "
                "set `server = ...`"
            )
        return [cls("server", server, tuple(clients))]


class Server(Node):
    """Actor that coordinates clients, as in federated averaging.

    A server has data and a device only if the scenario sets them in `[server]`. It can then `train`, compute
    a `gradient` or a `loss`, and `apply` functions at a cost, as a client does.
    """

    _machinery: ClassVar[bool] = True
    settings: ProtocolSettings
    """Settings of the server's clients: the keys next to `protocol.name` in the scenario."""

    def __init__(
        self, name: str, context: ClientContext, settings: ProtocolSettings, initial: Vector
    ) -> None:
        super().__init__(name, context, context.compute, initial)
        self.settings = settings
        self.setup()

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for `compute` the error names the missing section of the scenario."""
        if name in ("compute", "samples"):  # a property that raises is looked up here again
            raise AttributeError(
                f"{self.name} has no data and no device; add `samples` and `step_time` or `speed` to "
                "[server] in the scenario"
            )
        return object.__getattribute__(self, name)  # raises the error of a failing property of the method

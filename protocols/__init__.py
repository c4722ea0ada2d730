"""Methods of collaborative learning, and the public names for writing methods.

A method is a file or folder with a subclass of `Client`. Import the names that your method needs from here.
`framework` contains the client and the types of its settings, `shared` the parts that several methods use
(rounds, servers, losses), `membership` the protocols by which clients learn which peers are up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from actors.message import PeerUnavailable as PeerUnavailable
    from actors.message import RemoteError as RemoteError
    from actors.settings.base import SettingError as SettingError
    from actors.settings.base import default as default
    from actors.settings.quantities import Bandwidth as Bandwidth
    from actors.settings.quantities import Count as Count
    from actors.settings.quantities import CountOrZero as CountOrZero
    from actors.settings.quantities import Duration as Duration
    from actors.settings.quantities import PositiveDuration as PositiveDuration
    from actors.settings.quantities import PositiveWeight as PositiveWeight
    from actors.settings.quantities import Share as Share
    from actors.settings.quantities import Size as Size
    from actors.settings.quantities import Weight as Weight
    from actors.settings.quantities import Within as Within
    from protocols.framework.client import Client as Client
    from protocols.framework.coalition import Coalition as Coalition
    from protocols.framework.compute import Batch as Batch
    from protocols.framework.context import ClientContext as ClientContext
    from protocols.framework.objectives import Objective as Objective
    from protocols.framework.per_peer import PerPeer as PerPeer
    from protocols.framework.privacy import GaussianMechanism as GaussianMechanism
    from protocols.framework.privacy import epsilon as epsilon
    from protocols.framework.requirements import Requirement as Requirement
    from protocols.framework.rounds import RoundModel as RoundModel
    from protocols.framework.rounds import Rounds as Rounds
    from protocols.framework.server import Server as Server
    from protocols.framework.server import ServerPlan as ServerPlan
    from protocols.framework.vectors import Scalar as Scalar
    from protocols.framework.vectors import Vector as Vector
    from protocols.framework.vectors import mix as mix
    from protocols.shared.async_server import AsyncClient as AsyncClient
    from protocols.shared.async_server import AsyncServer as AsyncServer
    from protocols.shared.async_server import AsyncSettings as AsyncSettings
    from protocols.shared.averaging import neighbour_mean as neighbour_mean
    from protocols.shared.averaging import neighbour_weights as neighbour_weights
    from protocols.shared.server_rounds import Assignment as Assignment
    from protocols.shared.server_rounds import Contribution as Contribution
    from protocols.shared.server_rounds import GlobalModel as GlobalModel
    from protocols.shared.server_rounds import RoundClient as RoundClient
    from protocols.shared.server_rounds import RoundServer as RoundServer
    from protocols.shared.server_rounds import RoundSettings as RoundSettings
    from protocols.shared.server_rounds import RoundTask as RoundTask

MODULES = {
    "PeerUnavailable": "actors.message",
    "RemoteError": "actors.message",
    "Coalition": "protocols.framework.coalition",
    "Batch": "protocols.framework.compute",
    "Client": "protocols.framework.client",
    "Requirement": "protocols.framework.requirements",
    "Server": "protocols.framework.server",
    "ServerPlan": "protocols.framework.server",
    "ClientContext": "protocols.framework.context",
    "Objective": "protocols.framework.objectives",
    "PerPeer": "protocols.framework.per_peer",
    "GaussianMechanism": "protocols.framework.privacy",
    "epsilon": "protocols.framework.privacy",
    "Bandwidth": "actors.settings.quantities",
    "Count": "actors.settings.quantities",
    "CountOrZero": "actors.settings.quantities",
    "Duration": "actors.settings.quantities",
    "PositiveDuration": "actors.settings.quantities",
    "PositiveWeight": "actors.settings.quantities",
    "SettingError": "actors.settings.base",
    "Share": "actors.settings.quantities",
    "Size": "actors.settings.quantities",
    "Weight": "actors.settings.quantities",
    "Within": "actors.settings.quantities",
    "default": "actors.settings.base",
    "Scalar": "protocols.framework.vectors",
    "Vector": "protocols.framework.vectors",
    "mix": "protocols.framework.vectors",
    "Rounds": "protocols.framework.rounds",
    "RoundModel": "protocols.framework.rounds",
    "AsyncClient": "protocols.shared.async_server",
    "AsyncServer": "protocols.shared.async_server",
    "AsyncSettings": "protocols.shared.async_server",
    "neighbour_mean": "protocols.shared.averaging",
    "neighbour_weights": "protocols.shared.averaging",
    "Assignment": "protocols.shared.server_rounds",
    "Contribution": "protocols.shared.server_rounds",
    "GlobalModel": "protocols.shared.server_rounds",
    "RoundClient": "protocols.shared.server_rounds",
    "RoundServer": "protocols.shared.server_rounds",
    "RoundSettings": "protocols.shared.server_rounds",
    "RoundTask": "protocols.shared.server_rounds",
}
"""Module of each public name."""

__all__ = sorted(MODULES)


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that unused names cost no time."""
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Methods of collaborative learning, and all that one is written with.

A method is a file, or a folder, that holds a subclass of `Learner`. What an own one needs is imported from
here. `framework` has the client and the types of its settings, `shared` what several methods have in common
(rounds, servers, losses), `membership` the protocols by which clients know of each other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.message import PeerUnavailable, RemoteError
    from protocols.framework.learner import Learner
    from protocols.framework.member import Requirement, Server, ServerPlan, Surroundings
    from protocols.framework.objectives import Objective
    from protocols.framework.settings import (
        Count,
        CountOrZero,
        Duration,
        PositiveDuration,
        PositiveWeight,
        SettingError,
        Size,
        Weight,
        Within,
        default,
    )
    from protocols.framework.vectors import Scalar, Vector, mix
    from protocols.shared.rounds import RoundLearner, RoundModel

_PLACES = {
    "actors.message": ("PeerUnavailable", "RemoteError"),
    "protocols.framework.learner": ("Learner",),
    "protocols.framework.member": ("Requirement", "Server", "ServerPlan", "Surroundings"),
    "protocols.framework.objectives": ("Objective",),
    "protocols.framework.settings": (
        "Count",
        "CountOrZero",
        "Duration",
        "PositiveDuration",
        "PositiveWeight",
        "SettingError",
        "Size",
        "Weight",
        "Within",
        "default",
    ),
    "protocols.framework.vectors": ("Scalar", "Vector", "mix"),
    "protocols.shared.rounds": ("RoundLearner", "RoundModel"),
}

__all__ = [
    "Count",
    "CountOrZero",
    "Duration",
    "Learner",
    "Objective",
    "PeerUnavailable",
    "PositiveDuration",
    "PositiveWeight",
    "RemoteError",
    "Requirement",
    "RoundLearner",
    "RoundModel",
    "Scalar",
    "Server",
    "ServerPlan",
    "SettingError",
    "Size",
    "Surroundings",
    "Vector",
    "Weight",
    "Within",
    "default",
    "mix",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, not before: a learner brings torch, which takes seconds."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

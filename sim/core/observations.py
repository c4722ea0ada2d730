"""Values that actors report, and methods of actors that the observer calls. Their errors do not end a run."""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from actors.source_location import failing_line
from actors.supervisor import Supervisor
from protocols.framework.client import Client
from protocols.framework.coalition import Coalition
from sim.core.lives import ClientLife
from sim.errors import FAILURES
from sim.learning.engine import Scalar

T = TypeVar("T")

_ROUNDING = 1e-5  # of a sum of shares that were computed as float32


def check_observed_value(name: str, value: object) -> float | Scalar:
    """Check a reported value: a number, or a handle on one. Raises TypeError for other values."""
    if isinstance(value, Scalar):
        return value
    try:
        if not isinstance(value, str):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        pass
    what, must = type(value).__name__, "the value must be a number"
    if isinstance(value, Awaitable):  # without its address, which would make equal failures differ
        raise TypeError(
            f"observe({name!r}, ...): {must}, not {what}: write `await` before the call that returns it"
        )
    raise TypeError(f"observe({name!r}, {value!r:.60}): {must}, not {what}")


def overrides_hook(clients: Sequence[ClientLife], hook: str) -> bool:
    """Return True if the class of these clients overrides a method such as weights()."""
    return getattr(type(clients[0].actor), hook) is not getattr(Client, hook)


def call_actor(client: ClientLife, hook: str, check: Callable[[Any], T], supervisor: Supervisor) -> T | None:
    """Call a method such as weights() of a client, and return its checked result; None after a failure.

    check: returns the result, or raises an error. A failure is recorded, and the method is not called again.
    The client continues, since only the observer uses the result.
    """
    actor = client.actor
    if actor is None or hook in client.failed_hooks:
        return None
    try:
        return check(getattr(actor, hook)())
    except FAILURES as error:
        client.failed_hooks |= {hook}
        place = failing_line(type(actor), error, hook)
        supervisor.record(actor, hook, error, "go on", place)
        return None


def collaboration_weights(
    client: ClientLife, clients: Container[str], supervisor: Supervisor
) -> Mapping[str, float | Scalar]:
    """Return the collaboration weights of a client for others, by name; empty if it has none or fails.

    clients: the names that are allowed.
    """
    return call_actor(client, "weights", lambda weights: _require_weights(weights, clients), supervisor) or {}


def remove_share_rounding(weights: Mapping[str, float]) -> Mapping[str, float]:
    """Remove float32 rounding from shares whose sum is 1; return other weights unchanged."""
    total = sum(weights.values())
    if not abs(total - 1) < _ROUNDING:
        return weights
    return {peer: weight / total for peer, weight in weights.items()}


def coalition_of(client: ClientLife, clients: Container[str], supervisor: Supervisor) -> Coalition | None:
    """Return the coalition of a client, with members among `clients`; None if the client has none."""

    def check(found: object) -> Coalition | None:
        if not isinstance(found, Coalition | None):
            raise TypeError(f"coalition() must return a Coalition or None, not {type(found).__name__}")
        if found is None:
            return None
        if client.name not in found.members or not all(map(clients.__contains__, found.members)):
            raise ValueError(f"coalition() of {client.name} must name only clients, and {client.name} itself")
        losses = {str(name): float(loss) for name, loss in found.losses.items()}
        return Coalition(found.members, float(found.since), losses)

    return call_actor(client, "coalition", check, supervisor)


def _require_weights(weights: object, clients: Container[str]) -> Mapping[str, float | Scalar]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        what = type(weights).__name__
        raise TypeError(f"weights() must return a mapping of peers' names to numbers, or None, not {what}")
    for peer, weight in weights.items():
        if peer not in clients:
            raise ValueError(
                f"weights() names {peer!r:.60}, which is not a client; use names from self.peers"
            )
        if not isinstance(weight, float | int | Scalar) and not hasattr(weight, "__float__"):
            raise TypeError(f"weights() must give {peer} a number, not {type(weight).__name__}")
    return {peer: weight if isinstance(weight, Scalar) else float(weight) for peer, weight in weights.items()}

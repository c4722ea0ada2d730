"""What actors report of themselves, and what the observer asks them; a wrong answer ends nothing."""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from actors.source_location import line_of
from actors.supervisor import Supervisor
from protocols.framework.client import Client
from protocols.framework.coalition import Coalition
from sim.core.lives import ClientLife
from sim.learning.engine import Scalar
from sim.plugins.section import FAILURES

T = TypeVar("T")

_ROUNDING = 1e-5  # of a sum of shares that were computed as float32


def observed(name: str, value: object) -> float | Scalar:
    """A value that an actor reported: a number, perhaps one that is not computed yet. TypeError otherwise."""
    if isinstance(value, Scalar):
        return value
    try:
        if not isinstance(value, str):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        pass
    what, must = type(value).__name__, "the value must be a number"
    if isinstance(value, Awaitable):  # without its address, by which equal failures would differ
        raise TypeError(f"observe({name!r}, ...): {must}, not {what}: write `await` before what returns it")
    raise TypeError(f"observe({name!r}, {value!r:.60}): {must}, not {what}")


def defines(clients: Sequence[ClientLife], hook: str) -> bool:
    """Whether the method of these clients, who all have the same, defines a hook such as weights()."""
    return getattr(type(clients[0].actor), hook) is not getattr(Client, hook)


def asked(client: ClientLife, hook: str, check: Callable[[Any], T], supervisor: Supervisor) -> T | None:
    """What a hook that the client's method defines says of it; None where it has failed before.

    `check` returns what was said, or raises. A failure is recorded, and the client is not asked again; it
    goes on, since only the observer wants to know.
    """
    actor = client.actor
    if actor is None or hook in client.failed_hooks:
        return None
    try:
        return check(getattr(actor, hook)())
    except FAILURES as error:
        client.failed_hooks |= {hook}
        place = line_of(type(actor), error, hook)
        supervisor.record(actor, hook, error, "go on", place)
        return None


def weights_of(
    client: ClientLife, clients: Container[str], supervisor: Supervisor
) -> Mapping[str, float | Scalar]:
    """A client's collaboration weights, by the names of `clients`."""
    return asked(client, "weights", lambda weights: _require_weights(weights, clients), supervisor) or {}


def exact_shares(weights: Mapping[str, float]) -> Mapping[str, float]:
    """Shares that add up to 1 but for the rounding of float32, without it; any other weights as they are."""
    total = sum(weights.values())
    if not abs(total - 1) < _ROUNDING:
        return weights
    return {peer: weight / total for peer, weight in weights.items()}


def coalition_of(client: ClientLife, clients: Container[str], supervisor: Supervisor) -> Coalition | None:
    """A client's coalition, whose members are among `clients`; None if it is in none."""

    def check(found: object) -> Coalition | None:
        if not isinstance(found, Coalition | None):
            raise TypeError(f"coalition() must return a Coalition or None, not {type(found).__name__}")
        if found is None:
            return None
        if client.name not in found.members or not all(map(clients.__contains__, found.members)):
            raise ValueError(f"coalition() of {client.name} must name clients, itself among them")
        losses = {str(name): float(loss) for name, loss in found.losses.items()}
        return Coalition(found.members, float(found.since), losses)

    return asked(client, "coalition", check, supervisor)


def _require_weights(weights: object, clients: Container[str]) -> Mapping[str, float | Scalar]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        what = type(weights).__name__
        raise TypeError(f"weights() must return a mapping of peers' names to numbers, or None, not {what}")
    for peer, weight in weights.items():
        if peer not in clients:
            raise ValueError(f"weights() names {peer!r:.60}, which is no client; use names from self.peers")
        if not isinstance(weight, float | int | Scalar) and not hasattr(weight, "__float__"):
            raise TypeError(f"weights() must give {peer} a number, not {type(weight).__name__}")
    return {peer: weight if isinstance(weight, Scalar) else float(weight) for peer, weight in weights.items()}

"""What a method that forms coalitions tells the observer of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Coalition:
    """With whom a client trains.

    members: sorted names, its own among them. since: when it became a member of just this coalition, in
    seconds. losses: what its validation loss is, or is expected to be, by name: "alone", with all ("full"),
    and in this coalition ("equilibrium"), as far as they are known.
    """

    members: tuple[str, ...]
    since: float
    losses: Mapping[str, float] = field(default_factory=dict)

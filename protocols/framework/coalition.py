"""Report of a coalition to the observer."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Coalition:
    """Clients that train together, from the view of one of them.

    members: sorted names, including its own. since: time in seconds at which it became a member of exactly
    this coalition. losses: its validation loss, measured or expected, by name: "alone", with all clients
    ("full"), and in this coalition ("equilibrium"), as far as they are known.
    """

    members: tuple[str, ...]
    since: float
    losses: Mapping[str, float] = field(default_factory=dict)

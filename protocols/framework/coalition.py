"""Report of a coalition, for the results."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Coalition:
    """Clients that train together, as seen by one of them.

    members: sorted names, including the client's own. since: time in seconds at which the client became a
    member of exactly this coalition. losses: the client's known validation losses, measured or expected, by
    name: "alone", with all clients ("full"), and in this coalition ("equilibrium").
    """

    members: tuple[str, ...]
    since: float
    losses: Mapping[str, float] = field(default_factory=dict)

"""Selection of some clients by a table of the scenario."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from actors.settings.base import Settings, exactly_one
from actors.settings.quantities import ClientList, CountOrZero, ShareAboveZero
from sim.errors import UserError
from sim.kernel.random import key
from sim.world.participants import Participants


class SelectedClients(Settings):
    """Clients that a table selects by exactly one of `clients`, `share` and `cluster`."""

    clients: ClientList | None = None
    """The clients."""
    share: ShareAboveZero | None = None
    """Share of the clients, drawn at random, instead of `clients`."""
    cluster: CountOrZero | None = None
    """True cluster, instead of `clients`: all clients in it."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        exactly_one(self, "clients", "share", "cluster")
        return self

    def selected(self, table: str, number: int, participants: Participants) -> tuple[int, ...]:
        """Return the numbers of the selected clients. Raises UserError if there are none.

        table, number: location in the scenario, such as "training.override" and 0.
        """
        if self.clients is not None:
            return self.clients
        where = f"{table}.{number}"
        if self.cluster is not None:
            return participants.in_cluster(self.cluster, f"{where}.cluster")
        assert self.share is not None
        count, seed = len(participants.clients), participants.seed
        # Sort by a hash per client, so that each client's draw hardly depends on the other clients.
        purpose = table.replace(".", " ").replace("_", " ")
        ordered = sorted(range(count), key=lambda client: key(seed, purpose, number, client))
        chosen = tuple(ordered[: round(self.share * count)])
        if not chosen:
            raise UserError(f"{where}.share = {self.share}: selects none of {count} clients; must be larger")
        return chosen

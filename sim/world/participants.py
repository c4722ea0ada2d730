"""Who takes part in a run: what all parts of a world are built from."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.members import Groups, Members


def client_name(index: int) -> str:
    """The actor name of client number `index`."""
    return f"client-{index}"


@dataclass(frozen=True)
class Participants:
    """The seed of a run and the names of all its clients and servers, absent ones included.

    clusters: the true cluster of each client; None if the data has none. data_folder: the folder with
    measured traces.
    """

    seed: int
    clients: Sequence[str]
    servers: Sequence[str] = ()
    clusters: Sequence[int] | None = None
    data_folder: DataFolder = field(default_factory=DataFolder)

    @property
    def names(self) -> list[str]:
        """Clients, then servers."""
        return [*self.clients, *self.servers]

    def members(self, members: Members) -> tuple[str, ...]:
        """The names of a list of client numbers and "servers"."""
        listed = [self.servers if member == "servers" else [self.clients[member]] for member in members]
        return tuple([name for names in listed for name in names])

    def groups(self, groups: Groups, key: str) -> tuple[tuple[str, ...], ...]:
        """The names in each group. key: the scenario's key of the groups, for errors. UserError."""
        if groups != "clusters":
            return tuple([self.members(group) for group in groups])
        if self.clusters is None:
            raise UserError(f'{key} = "clusters": this data has no true clusters; list the clients')
        return tuple(
            tuple([name for name, label in zip(self.clients, self.clusters, strict=True) if label == cluster])
            for cluster in sorted(set(self.clusters))
        )

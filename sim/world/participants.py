"""Participants of a run: the input of all parts of a world."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.errors import UserError, one_line
from sim.files.data_folder import DataFolder
from sim.members import Groups, Members


def client_name(index: int) -> str:
    """Return the actor name of client number `index`."""
    return f"client-{index}"


def client_number(given: int | str, names: Sequence[str], option: str = "--client") -> int:
    """Return the number of the client that is given by its number or its name. Raises UserError."""
    if isinstance(given, str) and given in names:
        return names.index(given)
    is_number = isinstance(given, int) or (given.isascii() and given.isdecimal() and len(given) < 10)
    if is_number and 0 <= int(given) < len(names):
        return int(given)
    named = "" if is_number else f", or a name, such as {names[0]}"
    raise UserError(one_line(f"{option} {given}: must be from 0 to {len(names) - 1}{named}", 300))


@dataclass(frozen=True)
class Participants:
    """Seed of a run and names of all its clients and servers, absent ones included.

    clusters: the true cluster of each client; None if the data has no clusters. data_folder: the folder with
    measured traces.
    """

    seed: int
    clients: Sequence[str]
    servers: Sequence[str] = ()
    clusters: Sequence[int] | None = None
    data_folder: DataFolder = field(default_factory=DataFolder)

    @property
    def names(self) -> list[str]:
        """Names of clients, then of servers."""
        return [*self.clients, *self.servers]

    def members(self, members: Members) -> tuple[str, ...]:
        """Return the names for a list of client numbers and "servers"."""
        listed = [self.servers if member == "servers" else [self.clients[member]] for member in members]
        return tuple([name for names in listed for name in names])

    def groups(self, groups: Groups, key: str) -> tuple[tuple[str, ...], ...]:
        """Return the names in each group. key: the groups' key in the scenario. Raises UserError."""
        if groups != "clusters":
            return tuple([self.members(group) for group in groups])
        if self.clusters is None:
            raise UserError(f'{key} = "clusters": this data has no true clusters; list the clients')
        return tuple(
            tuple([name for name, label in zip(self.clients, self.clusters, strict=True) if label == cluster])
            for cluster in sorted(set(self.clusters))
        )

    def in_cluster(self, cluster: int, key: str) -> tuple[int, ...]:
        """Return the numbers of the clients in a true cluster. key: in the scenario. Raises UserError."""
        if self.clusters is None:
            raise UserError(f"{key} = {cluster}: this data has no true clusters; set 'clients' instead")
        if cluster not in self.clusters:
            raise UserError(f"{key} = {cluster}: must be a number from 0 to {max(self.clusters)}")
        return tuple([client for client, label in enumerate(self.clusters) if label == cluster])

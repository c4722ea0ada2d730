"""Directory of the clients that are up: the views of all-knowing membership."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.membership.view import NeighbourView, Tell


class Directory:
    """Directory of the clients that are up; it informs the members that are up of all changes immediately."""

    def __init__(self, up: Iterable[str]) -> None:
        self._up = set(up)
        self._members: dict[str, DirectoryView] = {}

    def __contains__(self, name: object) -> bool:
        """Return True if the client of that name is up."""
        return name in self._up

    def enrol(self, member: DirectoryView) -> None:
        """Inform `member`, and no earlier member with the same name, of changes from now on."""
        self._members[member.name] = member

    def came_up(self, name: str) -> None:
        """Record that `name` is up, and inform the others. Does nothing if it was up."""
        if name not in self._up:
            self._up.add(name)
            for member in self._others(name):
                member.see_up(name)

    def went_down(self, name: str) -> None:
        """Record that `name` is down, and inform the others. Does nothing if it was down."""
        if name in self._up:
            self._up.remove(name)
            for member in self._others(name):
                member.see_down(name)

    def _others(self, name: str) -> list[DirectoryView]:
        """Return the members that are up, except `name`, in the order in which they first enrolled."""
        return [member for other, member in self._members.items() if other != name and other in self._up]


class DirectoryView(NeighbourView):
    """View of one member: a shared directory of the clients that are up ("all-knowing" in scenarios).

    Suspicions and late messages change nothing, as the directory is always right.
    """

    def __init__(self, name: str, neighbours: Iterable[str], directory: Directory) -> None:
        super().__init__(name, neighbours)
        self._directory = directory
        self._look_up()
        directory.enrol(self)

    def received_from(self, sender: str) -> None:
        """Do nothing: the directory is always right."""

    def on_message(self, message: object, sender: str) -> bool:
        return False

    def suspect(self, peer: str) -> None:
        """Do nothing: the directory is always right."""

    def join(self, tell: Tell) -> None:
        self._look_up()  # the directory sent no changes while it was down
        self._directory.came_up(self.name)

    def leave(self, tell: Tell) -> None:
        self._directory.went_down(self.name)

    def crash(self) -> None:
        self._directory.went_down(self.name)

    def see_up(self, peer: str) -> None:
        """Add `peer`, which came up, if it is a neighbor; the directory calls this for every client."""
        self._add(peer)

    def see_down(self, peer: str) -> None:
        """Remove `peer`, which went down, if it is a neighbor; the directory calls this for every client."""
        self._remove(peer)

    def _look_up(self) -> None:
        self._believe_down(peer for peer in self.neighbours if peer not in self._directory)

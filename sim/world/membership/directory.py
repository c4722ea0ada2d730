"""Who is up, told at once to everybody: the views of clients whose membership is all-knowing."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.membership.view import NeighbourView, Tell


class Directory:
    """Who is up, shared by all members. A change reaches at once every member that is up."""

    def __init__(self, up: Iterable[str]) -> None:
        self._up = set(up)
        self._members: dict[str, DirectoryView] = {}

    def __contains__(self, name: object) -> bool:
        """Whether the client of that name is up."""
        return name in self._up

    def enrol(self, member: DirectoryView) -> None:
        """Tell `member` of changes from now on. It replaces an earlier member of that name."""
        self._members[member.name] = member

    def came_up(self, name: str) -> None:
        """Note that `name` is up, and tell the others. Does nothing if it was up."""
        if name not in self._up:
            self._up.add(name)
            for member in self._others(name):
                member.see_up(name)

    def went_down(self, name: str) -> None:
        """Note that `name` is down, and tell the others. Does nothing if it was down."""
        if name in self._up:
            self._up.remove(name)
            for member in self._others(name):
                member.see_down(name)

    def _others(self, name: str) -> list[DirectoryView]:
        """The members that are up, except `name`, in the order in which they first enrolled."""
        return [member for other, member in self._members.items() if other != name and other in self._up]


class DirectoryView(NeighbourView):
    """The view of one member: a shared directory of who is up ("all-knowing" in scenarios).

    Suspicions and late messages change nothing, as the directory is always right.
    """

    def __init__(self, name: str, neighbours: Iterable[str], directory: Directory) -> None:
        super().__init__(name, neighbours)
        self._directory = directory
        self._look_up()
        directory.enrol(self)

    def received_from(self, sender: str) -> None:
        """No news."""

    def on_message(self, message: object, sender: str) -> bool:
        return False

    def suspect(self, peer: str) -> None:
        """No news."""

    def join(self, tell: Tell) -> None:
        self._look_up()  # it was not told of changes while it was down
        self._directory.came_up(self.name)

    def leave(self, tell: Tell) -> None:
        self._directory.went_down(self.name)

    def crash(self) -> None:
        self._directory.went_down(self.name)

    def see_up(self, peer: str) -> None:
        """Called by the directory: `peer`, a neighbour or not, is up."""
        self._add(peer)

    def see_down(self, peer: str) -> None:
        """Called by the directory: `peer`, a neighbour or not, is down."""
        self._remove(peer)

    def _look_up(self) -> None:
        self._believe_down(peer for peer in self.neighbours if peer not in self._directory)

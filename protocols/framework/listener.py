"""What follows the life of a node: the hooks that `Node` and `Client` call, each doing nothing here."""


class NodeListener:
    """Base of `Component`: it is told what happens to its node, after those that were added before it."""

    def life_began(self) -> None:
        """The client is up and about to begin its first iteration, at first or once more."""

    def heard(self, message: object | None, sender: str) -> None:
        """Something arrived from `sender`."""

    def peer_changed(self, peer: str, up: bool) -> None:
        """`peer` was added to the client's peers, or taken out; not told of shuffles of a sampled view."""

    def step_ended(self) -> None:
        """An iteration is over and counted."""

    def budget_spent(self) -> None:
        """The client begins no iteration any more; it only serves the others."""

"""Listener of the events of a node: hooks that `Node` and `Client` call; the defaults do nothing."""


class NodeListener:
    """Base of `Component`: it is notified of the events of its node, in order of registration."""

    def session_started(self) -> None:
        """React to the start of a session: the client is up and about to start its first iteration."""

    def message_received(self, message: object | None, sender: str) -> None:
        """React to a message from `sender`."""

    def peer_changed(self, peer: str, up: bool) -> None:
        """React when `peer` joins or leaves the client's peers; shuffles of a sampled view do not count."""

    def step_ended(self) -> None:
        """React to the end of an iteration, after it is counted."""

    def budget_spent(self) -> None:
        """React to the end of the budget: the client starts no further iteration and only answers others."""

"""A part of a method that a client has: an object that follows what happens to its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocols.framework.node import Node


class Component:
    """Base of the objects that methods are put together from, such as rounds or a table of peers.

    A method makes them in `begin()`, as `self.rounds = Rounds(self, ...)`. They are told what happens to
    their client, in the order in which they were made.
    """

    def __init__(self, node: Node) -> None:
        node.add_component(self)

    def life_began(self) -> None:
        """The client is up and about to begin its first iteration, at first or once more."""

    def heard(self, message: object | None, sender: str) -> None:
        """Something arrived from `sender`."""

    def peer_changed(self, peer: str, up: bool) -> None:
        """`peer` was added to the client's peers, or taken out of them."""

    def step_ended(self) -> None:
        """An iteration is over and counted."""

    def budget_spent(self) -> None:
        """The client begins no iteration any more; it only serves the others."""

"""Slow times of devices from functions of the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from pydantic import model_validator

from actors.settings.base import at_most_one
from actors.settings.quantities import FACTOR_MAX, FACTOR_MIN, ClientList, Probability
from sim.kernel.random import stream
from sim.world.devices.slowness import Piece
from sim.world.plugins import WorldPlugin

_PIECES_TRIED = 100


class OwnSlowTimes(WorldPlugin):
    """A function of your own says when a client's device is how slow.

    It gives, one after the other, pairs (until, factor): up to that virtual time, in seconds, a second of
    computing takes so many; after the last pair 1. A generator is asked only as far as time goes on. It is
    given what it takes of `rng` (a numpy generator of the client's), `shared_rng` (one that gives all clients
    the same numbers), `client` (its number) and `clients` (how many there are).
    """

    provided = ("rng", "shared_rng", "client", "clients")

    clients: ClientList | None = None
    """The clients whose devices are; by default all."""
    share: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""

    @model_validator(mode="after")
    def _one_way(self) -> OwnSlowTimes:
        at_most_one(self, "clients", "share")
        return self

    def try_out(self, number: int, seed: int, client: int, clients: int) -> None:
        """Call the function twice for a client. UserError if it fails or gives different pieces."""

        def find() -> list[Piece]:
            return [*islice(self.pieces(number, seed, client, clients), _PIECES_TRIED)]

        self.same_again(find, lambda: f"for client = {client}")

    def pieces(self, number: int, seed: int, client: int, clients: int) -> Iterator[Piece]:
        """The slow times of a client by entry `number` of the scenario. UserError."""

        def about() -> str:
            return f"for client = {client}"

        found = self.asked(
            about,
            rng=stream(seed, "own slow times", number, client),
            shared_rng=stream(seed, "own slow times", number, "shared"),
            client=client,
            clients=clients,
        )
        end_s = 0.0
        for item in self.items(found, about):
            until, by = self.row(item, "pairs (until, factor)", about)
            before_s, end_s = end_s, self.number(until, 0.0, math.inf, "a time in seconds", about)
            factor = self.number(by, FACTOR_MIN, FACTOR_MAX, "a factor", about)
            if end_s <= before_s:
                raise self.refusal(
                    f"gave the time {end_s:g} s after {before_s:g} s {about()}; each must be later than the "
                    "one before, the first later than 0"
                )
            yield end_s, factor
            if end_s == math.inf:
                return
        yield math.inf, 1.0

"""Clients know a changing sample of all others."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, default
from actors.settings.quantities import Count, PositiveDuration
from actors.settings.tables import kind_alone
from protocols.membership.active import SampledView, SamplingSettings
from sim.kernel.random import RandomStream, key, splitmix64_array
from sim.world.membership.kinds import MembershipContext, MembershipKind, ViewOf
from sim.world.membership.swim import Swim


class NoDetection(Settings):
    """A peer that does not answer leaves the view. A client that leaves tells the peers in its view."""

    kind: Literal["none"]


class Bootstrap(MembershipKind):
    """Clients know some contacts, and keep a changing sample of all others (Cyclon; Voulgaris et al. 2005).

    The topology must be complete.
    """

    kind: Literal["bootstrap"]
    contacts: Count = 3
    """How many random clients that are up a bootstrap service names to a client that comes, or whose view is
    empty."""
    view: Count = 20
    """Peers that a client knows, at most."""
    shuffle: Count = 8
    """Entries of a view that are exchanged with a peer at once."""
    shuffle_every: PositiveDuration = default("5 s")
    """Time between two exchanges that a client starts."""
    detection: Annotated[
        Annotated[Swim | NoDetection, Field(discriminator="kind")], kind_alone("swim", "none")
    ] = default("swim")
    """How dead peers are detected: by pings, or only when they do not answer."""

    @model_validator(mode="after")
    def _shuffle_in_view(self) -> "Bootstrap":
        if self.shuffle > self.view:
            raise SettingError("shuffle", self.shuffle, f"must be at most view = {self.view}")
        return self

    def views(self, context: MembershipContext) -> ViewOf:
        seed, service = (
            context.seed,
            BootstrapService(context.seed, [*context.up, *context.absent], context.up),
        )
        detection = self.detection.detection() if isinstance(self.detection, Swim) else None
        settings = SamplingSettings(self.contacts, self.view, self.shuffle, self.shuffle_every, detection)
        return lambda name, neighbours: SampledView(
            name, service, context.loop, lambda purpose: RandomStream(seed, purpose, name), settings
        )


class BootstrapService:
    """Names random clients that are up to clients that need contacts. It knows at once who is up.

    For each client, keyed hashes put all others in an order, and the first ones that are up are its contacts.
    So one client more or less changes no other contacts.
    """

    def __init__(self, seed: int, names: Sequence[str], up: Iterable[str]) -> None:
        self._seed = seed
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        self._keys = np.array([key(seed, "contact", name) for name in names], dtype=np.uint64)
        self._up = np.zeros(len(names), dtype=bool)
        for name in up:
            self.note(name, up=True)

    def note(self, name: str, *, up: bool) -> None:
        """A client has come or gone."""
        self._up[self._places[name]] = up

    def contacts(self, name: str, count: int) -> list[str]:
        """`count` clients that are up now, or all if there are fewer."""
        others = np.flatnonzero(self._up)
        others = others[others != self._places[name]]
        own_key = np.array([key(self._seed, "contacts", name)], dtype=np.uint64)
        hashes = splitmix64_array(own_key, self._keys[others])
        first = np.argpartition(hashes, count)[:count] if count < len(hashes) else np.arange(len(hashes))
        first = first[np.argsort(hashes[first])]
        return [self._names[place] for place in others[first].tolist()]

"""Silence of peers: a peer that does not answer, and is silent for the patience, is suspected."""

import math

from actors.settings.base import default
from actors.settings.quantities import PositiveDuration
from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.requirements import ProtocolSettings


class PatienceSettings(ProtocolSettings):
    """Base of the settings of methods in which clients wait for each other."""

    patience: PositiveDuration = default("1 min")
    """Silence after which a peer is suspected; lost messages are repeated long before."""


class Silence(Component):
    """Time of the last message of each peer, in this session of the client."""

    def __init__(self, client: Client, patience: float) -> None:
        super().__init__(client)
        self.patience = patience
        self._started_s = 0.0
        self._received_s: dict[str, float] = {}

    def session_started(self) -> None:
        self._started_s = self.client.now

    def message_received(self, message: object | None, sender: str) -> None:
        self._received_s[sender] = self.client.now

    def is_silent(self, peer: str, since_s: float = -math.inf) -> bool:
        """Return whether `peer` has been silent for the patience, counted from `since_s` (s) or later."""
        last_s = max(self._received_s.get(peer, -math.inf), self._started_s, since_s)
        return self.client.now - last_s >= self.patience

    def suspect_if_silent(self, peer: str) -> None:
        """Suspect `peer`, which has not answered, if it has sent no other message for the patience."""
        if self.is_silent(peer):
            self.client.suspect(peer)

"""Crashes of servers."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import CountOrZero, Duration, PositiveDuration


class ServerCrash(Settings):
    """A server crashes without an announcement, and comes back later or never."""

    at: Duration
    """Virtual time of the crash."""
    back: PositiveDuration | None = None
    """Virtual time at which the server is up again; by default it stays down."""
    state: Literal["keep", "fresh"] = "keep"
    """State after the crash: the state before it (keep), or the state at the start (fresh)."""
    servers: tuple[CountOrZero, ...] | None = None
    """Numbers of the servers, in the order in which the protocol lists them; by default all."""

    @model_validator(mode="after")
    def _in_order(self) -> ServerCrash:
        if self.back is not None and self.back <= self.at:
            raise SettingError("back", self.back, f"must be after the crash ({self.at:g} s)")
        return self

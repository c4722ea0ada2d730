"""Crashes of servers."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import CountOrZero, Duration, PositiveDuration


class ServerCrash(Settings):
    """A server is gone at once, in silence, and comes back after a while or never."""

    at: Duration
    """Virtual time of the crash."""
    back: PositiveDuration | None = None
    """Virtual time at which it is back; without it, it stays away."""
    state: Literal["keep", "fresh"] = "keep"
    """With what it comes back: all that it had, or nothing, as at the start."""
    servers: tuple[CountOrZero, ...] | None = None
    """Numbers of the servers, in the order in which the protocol names them; by default all."""

    @model_validator(mode="after")
    def _in_order(self) -> ServerCrash:
        if self.back is not None and self.back <= self.at:
            raise SettingError("back", self.back, f"must be after the crash, at {self.at:g} s")
        return self

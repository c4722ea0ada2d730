"""Who joins, leaves, crashes and comes back."""

from typing import Literal

from pydantic import model_validator

from protocols.settings import Duration, SettingError, Settings
from sim.settings.shared import ClientList


class Churn(Settings):
    """One event in the life of some clients. A client whose first event is a join is absent at the start."""

    at: Duration
    """Virtual time of the event."""
    event: Literal["join", "leave", "crash", "rejoin"]
    """join: first appearance; leave: with goodbyes; crash: at once, in silence; rejoin: back after either."""
    clients: ClientList
    """The clients."""
    state: Literal["keep", "fresh"] = "keep"
    """For a rejoin: with the state it had (keep), or as a newcomer (fresh)."""

    @model_validator(mode="after")
    def _state_of_rejoin(self) -> "Churn":
        if self.state == "fresh" and self.event != "rejoin":
            raise SettingError("state", self.state, f"only a rejoin can be fresh, this is a {self.event}")
        return self

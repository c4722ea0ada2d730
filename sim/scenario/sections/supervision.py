"""Supervision of clients: the reaction to an exception in a client's code."""

from typing import Annotated, Literal

from pydantic import NonNegativeInt

from actors.settings.base import Settings
from actors.settings.quantities import Within


class Supervision(Settings):
    """Reaction to an exception in a client's code."""

    on_failure: Literal["stop", "restart"] = "stop"
    """Stop the client, or restart it."""
    max_restarts: Annotated[NonNegativeInt, Within(0, 1000)] = 3
    """Maximum number of restarts; the next failure stops the client."""

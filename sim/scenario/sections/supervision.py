"""What happens to a client whose code fails."""

from typing import Annotated, Literal

from pydantic import NonNegativeInt

from actors.settings.base import Settings
from actors.settings.quantities import Within


class Supervision(Settings):
    """What happens to a client whose code fails."""

    on_failure: Literal["stop", "restart"] = "stop"
    """Stop the client, or start it anew."""
    max_restarts: Annotated[NonNegativeInt, Within(0, 1000)] = 3
    """Stop it after so many restarts."""

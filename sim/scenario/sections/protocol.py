"""The protocol that the clients run."""

from typing import Annotated

from pydantic import ConfigDict, Field

from actors.settings.base import Settings


class ProtocolChoice(Settings):
    """The protocol that the clients run. Its class defines and checks the other keys."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1)]
    """A known protocol, ``package.module:Class``, or ``my_file.py:Class``."""

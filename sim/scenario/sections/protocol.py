"""Which protocol the clients run."""

from typing import Annotated

from pydantic import ConfigDict, Field

from actors.settings.base import Settings


class ProtocolChoice(Settings):
    """Which protocol the clients run; its own settings stand beside the name, checked by its class."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1)]
    """A known protocol, ``package.module:Class``, or ``my_file.py:Class``."""

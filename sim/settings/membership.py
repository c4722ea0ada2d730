"""How clients learn who is there."""

from typing import Annotated, Literal

from pydantic import Field

from protocols.settings import Settings
from sim.settings.shared import kind_alone


class Announce(Settings):
    """Clients say hello and goodbye to their neighbours; a timeout is the only sign of a crash."""

    kind: Literal["announce"]


class AllKnowing(Settings):
    """The simulator tells everybody at once who is up."""

    kind: Literal["all-knowing"]


Membership = Annotated[
    Annotated[Announce | AllKnowing, Field(discriminator="kind")],
    kind_alone("announce", "all-knowing"),
]

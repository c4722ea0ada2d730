"""How clients learn who is there. A kind is one file: its keys, and the views of the clients."""

from typing import Annotated

from pydantic import Field

from actors.settings.tables import kind_alone
from sim.world.membership.all_knowing import AllKnowing
from sim.world.membership.announce import Announce
from sim.world.membership.bootstrap import Bootstrap
from sim.world.membership.swim import Swim

Membership = Annotated[
    Annotated[Announce | AllKnowing | Swim | Bootstrap, Field(discriminator="kind")],
    kind_alone("announce", "all-knowing", "swim", "bootstrap"),
]

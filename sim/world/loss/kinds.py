"""Kinds of loss: independent, in bursts, or over time."""

from typing import Annotated

from pydantic import Field

from actors.settings.base import Settings
from actors.settings.tables import Shorthand
from sim.world.loss.models import BurstyLoss, IndependentLoss
from sim.world.loss.table import TableLoss

Loss = Annotated[
    Annotated[IndependentLoss | BurstyLoss | TableLoss, Field(discriminator="kind")],
    Shorthand(
        lambda value: (
            value if isinstance(value, dict | Settings) else {"kind": "independent", "probability": value}
        ),
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    ),
]

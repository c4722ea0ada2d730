"""How models are judged by a client's own samples."""

import math
from collections.abc import Iterable

from protocols.framework.client import Client
from protocols.framework.compute import Samples
from protocols.framework.vectors import Vector


async def losses_of(client: Client, models: Iterable[Vector], on: Samples) -> list[float]:
    """The client's mean loss of each model; infinite for one that has diverged, whose loss is no number.

    Nothing is less than no number, so that such a model would be everybody's. Each is a pass over them.
    """
    losses = [float(loss) for loss in [await client.loss(model, on=on) for model in models]]
    return [loss if math.isfinite(loss) else math.inf for loss in losses]

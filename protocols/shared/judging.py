"""Evaluation of models on a client's own samples."""

import math
from collections.abc import Iterable

from protocols.framework.client import Client
from protocols.framework.compute import Samples
from protocols.framework.vectors import Vector


async def model_losses(client: Client, models: Iterable[Vector], on: Samples) -> list[float]:
    """Return the client's mean loss of each model; infinite for a diverged model, which has no finite loss.

    Comparisons with nan are False, so a diverged model could win every comparison. Each loss takes a pass
    over the samples.
    """
    losses = [float(loss) for loss in [await client.loss(model, on=on) for model in models]]
    return [loss if math.isfinite(loss) else math.inf for loss in losses]

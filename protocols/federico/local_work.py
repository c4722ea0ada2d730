"""Work of a client of FedeRiCo on its own data, in both forms."""

from collections.abc import Mapping, Sequence

from protocols.federico.collaborators import Collaborators
from protocols.federico.settings import FedericoSettings
from protocols.framework.client import Client
from protocols.framework.vectors import Vector


def steps_per_model(client: Client, settings: FedericoSettings) -> int:
    """Return the number of training steps of a model."""
    return settings.local_steps or settings.local_epochs * client.compute.steps_per_epoch


async def local_loss(
    client: Client, model: Vector, settings: FedericoSettings, *, brief: bool = False
) -> float:
    """Return the loss l of a model on the client's data (line 13); brief: always on one batch."""
    mean = float(await client.loss(model, on="batch" if brief else settings.losses_on))
    # Line 13 sums over the training samples; a mean over other samples is scaled to the same number.
    return mean * (client.samples if settings.losses == "sum" else 1)


async def train_by_weight(
    client: Client, settings: FedericoSettings, name: str, model: Vector, weight: float
) -> Vector:
    """Return the update of a candidate's model on this client's data, times its weight (line 20).

    The result is w_ib times the update of local training; for one step of SGD that is -eta w_ib times the
    gradient.
    """
    if name == client.name:
        model = client.params  # includes the updates that have arrived since it was evaluated
    return weight * await client.train(steps_per_model(client, settings), start=model, fresh_optimizer=True)


async def trained_alone(client: Client, settings: FedericoSettings) -> bool:
    """Train only the client's own model in the first `alone_first` iterations; return False afterwards."""
    if client.iterations >= settings.alone_first:
        return False
    update = await train_by_weight(client, settings, client.name, client.params, 1.0)
    client.params = client.params + update  # read after the await: others' updates may have arrived
    return True


def evaluated_models(
    client: Client, collaborators: Collaborators, settings: FedericoSettings
) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
    """Return the models to evaluate: the candidates' mixture, and the client's own model.

    There is no mixture if `predict` is "own", or if the models have no outputs.
    """
    if settings.predict == "own" or not client.compute.classes:
        return {"model": client.params}
    return {"mixture": collaborators.mixture(), "own": client.params}

"""What each client would have reached alone: the reference for `better_than_alone`."""

from __future__ import annotations

from sim.learning.engine import Engine
from sim.learning.evaluation import measure_models
from sim.simulation import Simulation


def train_alone(simulation: Simulation) -> dict[str, float]:
    """The measure (accuracy, or distance) of each client trained on nothing but its own data, by client name.

    It starts from the same parameters and takes as many steps as it took in the simulation, with the same
    batches and optimizer; when it takes them does not matter, so no world is needed. Clients that took no
    step are left out.
    """
    ran, settings = simulation.engine, simulation.settings
    engine = Engine(ran.data, seed=ran.seed, device=ran.device, way=ran.way, precision=ran.precision)
    trained = [(client, client.compute.train_alone(engine)) for client in simulation.clients]
    found = [(client, params) for client, params in trained if params is not None]
    if not found:
        return {}
    rows = engine.rows([params for _, params in found])
    kernel = engine.kernel(settings.architecture, settings.objective)
    measured = measure_models(kernel, rows, ran.data.test, [client.index for client, _ in found])
    values = measured[simulation.measure].tolist()
    return {client.name: value for (client, _), value in zip(found, values, strict=True)}

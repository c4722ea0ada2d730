"""Measurements at the end of a run: the quality that each client reaches when it trains alone."""

from collections.abc import Mapping

from sim.core.lives import group_by_architecture
from sim.core.simulation import Simulation
from sim.learning.evaluation import measure_models
from sim.results.measures import ALONE, TOTALS


def train_alone(simulation: Simulation) -> dict[str, float]:
    """Return the quality of each client's model after training alone, by the client's name.

    A client starts from the same parameters and takes the same number of steps as in the simulation, with the
    same batches and optimizer. The times of the steps do not matter, so no simulated world is needed. Clients
    without a step are left out.
    """
    ran = simulation.engine
    engine = ran.unused()
    attempts = ((client.name, client.compute.train_alone(engine)) for client in simulation.clients)
    trained = {name: params for name, params in attempts if params is not None}
    reached: dict[str, float] = {}
    for clients in group_by_architecture(client for client in simulation.clients if client.name in trained):
        rows = engine.rows([trained[client.name] for client in clients])
        first, numbers = clients[0].compute.settings, [client.index for client in clients]
        kernel = ran.kernel(first.architecture, first.objective)  # in the engine's precision
        task, measure = simulation.rules.task, simulation.observer.measure.name
        own = [each for each in simulation.rules.own_metrics if each.name == measure]
        found = measure_models(
            task,
            kernel,
            rows,
            ran.data.test,
            numbers,
            names=["loss"] if own else [measure],
            others=ran.data.others,
            workers=engine.workers,
            own=own,
        )
        values = found[measure].tolist()
        reached |= zip([client.name for client in clients], values, strict=True)
    return {client.name: reached[client.name] for client in simulation.clients if client.name in reached}


def record_final_metrics(simulation: Simulation, alone: Mapping[str, float] | None) -> None:
    """Record the metrics of each client that are known only at the end of a run.

    These metrics are the client's training steps, gradients and samples over all its sessions, and in `alone`
    the quality after training alone, by the client's name.
    """
    observer, clients = simulation.observer, simulation.clients
    now, names = simulation.loop.time(), [client.name for client in clients]
    works = [client.work for client in clients]
    totals = zip(*[(work.steps, work.gradients, work.samples) for work in works], strict=True)
    for name, values in zip(TOTALS, totals, strict=True):
        observer.metrics.add_all(now, names, name, values)
    if alone:
        observer.metrics.add_all(now, list(alone), observer.measure.name + ALONE, list(alone.values()))

"""Computing that takes the time it takes."""

from contextlib import closing
from typing import Any

import pytest

from protocols.framework.compute import TrainRequest
from sim.live.simulation import live_classes
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario


@pytest.mark.parametrize("verb", ["train", "gradient", "loss"])
def test_a_raw_job_is_computed_when_its_turn_on_the_device_has_come(verb: str) -> None:
    """Earlier, another client's reading would compute it as well, and in less time than it takes alone."""
    wanted = load_scenario("gossip", ("clients.count=2", "clients.topology.degree=1"))
    with closing(build(wanted, device="cpu", classes=live_classes(lambda: 0.0, raw=True))) as simulation:
        compute, engine = simulation.clients[0].compute, simulation.engine
        start: Any = engine.vector(simulation.clients[1].compute._initial.tensor())
        jobs = {
            "train": lambda: compute.train(TrainRequest(start)),
            "gradient": lambda: compute.gradient(start),
            "loss": lambda: compute.loss(start, "batch"),
        }
        job = jobs[verb]()
        job.send(None)  # to where it waits for the device
        engine.flush()
        assert engine.statistics.jobs == 0
        job.close()

"""Test samples of a client of an earlier run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from protocols.framework.client import Client
from sim.errors import UserError
from sim.run.resume.resuming import ResumableRun, changed_conditions
from sim.run.setup.builder import building_process, with_engine


def test_samples_of_client(
    path: Path, client: int, *, method: type[Client] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs [N, ...] and targets [N, ...] on which a run evaluates a client.

    Raises UserError for data that differ from the run's.
    """
    earlier = replace(ResumableRun.find(path, math.inf), fork_s=None)
    scenario = earlier.scenario(method=method)
    on_cpu = with_engine(scenario, way="auto", precision="float32", threads=1, devices=None)
    with building_process(on_cpu, None, "cpu") as run:  # nothing is computed, so the device does not matter
        data = run.simulation.engine.data
    before = earlier.provenance.made_by
    if problems := changed_conditions(before, {"the clients' data": data.digest()}):
        raise UserError(f"{path}: the samples differ from those of the run: {'; '.join(problems)}")
    positions = np.arange(data.test.counts[client])
    x, y = data.test.of_each(np.array([client]), positions)
    return x[0].numpy(), y[0].numpy()

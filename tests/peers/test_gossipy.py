"""Learning curves of asynchronous gossip beside gossipy's, on the same digits of the same clients."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from benchmarks import gossipy
from tests.protocols.worlds import make

pytest.importorskip("gossipy", reason="gossipy-dfl is not installed: make peers")

CLIENTS, PERIODS = 50, 20
WORLD = f"""\
# Push gossip among clients with 16 digits each, as gossipy has it.
[run]
duration = "{PERIODS} s"
evaluate_every = "1 s"

[clients]
count = {CLIENTS}
topology = {{ kind = "k-regular", degree = {gossipy.DEGREE} }}

[data]
name = "digits"
partition = {{ kind = "iid", samples_per_client = {gossipy.SAMPLES} }}

[model]
name = "logistic-regression"

[training]
learning_rate = {gossipy.LEARNING_RATE}
batch_size = {gossipy.SAMPLES}

[protocol]
name = "gossip"
period = "1 s"

[network]
latency = {{ kind = "uniform", low = "0 s", high = "100 ms" }}
uplink = "unlimited"
downlink = "unlimited"
link = "datagram"

[devices]
step_time = "1 ms"
"""


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_learning_curves_are_gossipys(loss: float) -> None:
    ours, theirs = [], []
    for seed in (1, 2):
        with closing(make(WORLD, f"network.loss={loss}", f"run.seed={seed}")) as world:
            train, test = world.engine.data.train, world.engine.data.test
            own = [train.gather(np.array([i]), np.arange(gossipy.SAMPLES)[None]) for i in range(CLIENTS)]
            x, y = ([part[which][0] for part in own] for which in (0, 1))
            [*_, first] = [client.compute.initial() for client in world.clients]
            initial = first.tensor()  # type: ignore[attr-defined]
            world.run()
            _, accuracies = world.observer.metrics.mean("accuracy")
            ours.append(list(accuracies)[1:])
            everything, model = (test.x, test.y), "logistic-regression"
            theirs.append(gossipy.accuracies(model, x, y, everything, initial, PERIODS, loss=loss, seed=seed))
    mean_ours, mean_theirs = np.mean(ours, axis=0), np.mean(theirs, axis=0)
    assert mean_theirs.shape == mean_ours.shape == (PERIODS,)
    assert mean_theirs[-1] > 0.65 > 0.4 > mean_theirs[0], "there is a curve to compare"
    # Two runs of one program with other seeds are up to 7 points apart.
    apart = abs(mean_ours - mean_theirs)
    assert apart.max() < 0.035 and apart.mean() < 0.015, (mean_ours, mean_theirs)

"""Models are compared by what is trained of them: statistics of inputs are no directions of learning."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocols.federated.clustered_fl import ClusteredFLServer
from tests.protocols.worlds import ran
from tests.simulation.worlds import write

SCENARIO = """
[run]
seed = 1
iterations = 3
evaluate_every = "3 iterations"
[clients]
count = 4
[data]
name = "DATA:two_camps"
partition = "natural"
[model]
name = "NET:Net"
[training]
learning_rate = 0.3
batch_size = 20
[protocol]
name = "clustered-fl"
local_epochs = 2
[network]
latency = "20 ms"
uplink = "10 Mbit/s"
downlink = "10 Mbit/s"
[devices]
step_time = "100 ms"
"""
DATA = '''
import numpy as np

def two_camps(rng, clients, samples: int = 120):
    """Measurements around 50 of three classes, which the second half of the clients calls otherwise."""
    n = clients * samples
    y = rng.integers(0, 3, n)
    client = np.arange(n) % clients
    x = 50 + 10 * (rng.normal(size=(n, 6)) + 3 * np.eye(6)[y])
    return x, np.where(client < clients // 2, y, (y + 1) % 3), client
'''
NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes):
        head = nn.Linear(16, classes)
        super().__init__(nn.BatchNorm1d(6), nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), head)
"""


def world(folder: Path, *overrides: str) -> Any:
    data, net = write(folder, DATA, "data.py"), write(folder, NET, "net.py")
    text = SCENARIO.replace("DATA", str(data)).replace("NET", str(net))
    return ran(text, *overrides)


def test_only_what_is_trained_is_left(tmp_path: Path) -> None:
    with world(tmp_path, "protocol.name=local") as built:
        client = built.clients[0]
        model = client.compute.settings.architecture
        ones = client.actor.vector(np.ones(model.numel))
        left = client.actor.trainable(ones).numpy()
        untrained = {part.name for part in model.untrained}
        assert untrained == {"0.running_mean", "0.running_var", "3.draw"}
        for part in model.slices:
            piece = left[part.offset : part.offset + part.numel]
            assert (piece == (0.0 if part.name in untrained else 1.0)).all()
        assert ones.numpy().all()  # what was given is what it was


def test_a_model_of_which_all_is_trained_is_the_same_object(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    net = write(
        tmp_path / "plain",
        "from torch import nn\ndef Net(classes):\n    return nn.Linear(6, classes)\n",
        "net.py",
    )
    with world(tmp_path, "protocol.name=local", f"model.name={net}:Net") as built:
        actor = built.clients[0].actor
        assert actor.trainable(actor.params) is actor.params


def test_statistics_of_inputs_do_not_make_all_updates_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in clustered FL, whose cosines decide who is parted: the camps' updates point apart."""
    seen: list[np.ndarray] = []
    advance = ClusteredFLServer.advance

    def noted(self: Any, cluster: Any, clients: Any, updates: Any, samples: Any) -> None:
        order = np.argsort(clients)
        rows = np.stack([self.trainable(update).numpy() for update in updates])[order]
        whole = np.stack([update.numpy() for update in updates])[order]
        seen.extend([rows, whole])
        advance(self, cluster, clients, updates, samples)

    monkeypatch.setattr(ClusteredFLServer, "advance", noted)
    with world(tmp_path):
        pass
    rows, whole = seen[-2:]

    def across(updates: np.ndarray) -> float:
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        return float((unit[:2] @ unit[2:].T).max())

    assert across(whole) > across(rows) + 0.3
    assert across(rows) < 0.2

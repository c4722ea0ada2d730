"""Training of single clients: `[[training.override]]`, against plain PyTorch on the same batches."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sim.core.lives import ClientLife
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.scenario.scenario import load_scenario
from tests.learning.engines import drawn, own_samples
from tests.resume.crashes import require_goes_on_anywhere
from tests.resume.same import require_same
from tests.resume.test_resume import coterie
from tests.simulation.worlds import DIGITS, simulation, write

LOCAL = DIGITS.replace('name = "gossip"\nperiod = "500 ms"', 'name = "local"').replace(
    'name = "logistic-regression"', 'name = "mlp"\nhidden = [8]'
)
OVERRIDES = """
[[training.override]]
clients = [1]
learning_rate = 0.02
batch_size = 5
momentum = 0.9
nesterov = true

[[training.override]]
clients = [2, 3]
optimizer = "adam"
learning_rate = 0.01
local_steps = 3

[[training.override]]
clients = [3]
optimizer = "adamw"
weight_decay = 0.05
batch_size = 24
schedule = { kind = "step", every = "4 steps", decay = 0.5 }

[[training.override]]
clients = [4]
clip_norm = 0.5
local_epochs = 2
"""
OPTIMIZERS = {
    0: lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    1: lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True),
    2: lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    3: lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.05),
    4: lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}
BATCH_SIZES = {1: 5, 3: 24}
STEPS_OF_AN_ITERATION = {2: 3, 3: 3, 4: 2 * (24 // 8)}


def of_torch(built: Simulation, client: ClientLife, precision: torch.dtype | None = None) -> Tensor:
    """Parameters of a client after plain PyTorch has taken its steps."""
    number, steps = client.index, client.compute.training_steps
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    nn.utils.vector_to_parameters(client.compute.initial().tensor(), module.parameters())
    optimizer = OPTIMIZERS.get(number, OPTIMIZERS[0])(module.parameters())
    x, y = own_samples(built.engine.data, number)
    for step, rows in enumerate(drawn(built.engine, number, 0, steps, BATCH_SIZES.get(number, 8))):
        if number == 3:
            optimizer.param_groups[0]["lr"] = 0.01 * 0.5 ** (step // 4)
        optimizer.zero_grad()
        with nullcontext() if precision is None else torch.autocast("cpu", dtype=precision):
            outputs = module(x[rows])
        nn.functional.cross_entropy(outputs.float(), y[rows]).backward()
        if number == 4:
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.long
@pytest.mark.parametrize("way", ["vmap", "loop", "dense"])
def test_each_client_trains_as_plain_torch(tmp_path: Path, way: str) -> None:
    with simulation(tmp_path, LOCAL + OVERRIDES, f"engine.way={way}") as built:
        built.run()
        for client in built.clients:
            assert client.compute.training_steps > 8
            trained = client.params.tensor()
            torch.testing.assert_close(trained, of_torch(built, client), rtol=1e-5, atol=1e-6)
            per_iteration = STEPS_OF_AN_ITERATION.get(client.index, 1)
            assert client.iterations == client.compute.training_steps // per_iteration
            assert client.compute.batch_size == BATCH_SIZES.get(client.index, 8)


def test_clients_without_an_override_train_as_before(tmp_path: Path) -> None:
    with simulation(tmp_path, LOCAL) as built, simulation(tmp_path, LOCAL + OVERRIDES) as other:
        built.run()
        other.run()
        for client in (0, 5):
            before, after = built.clients[client], other.clients[client]
            assert torch.equal(before.params.tensor(), after.params.tensor())


def test_time_follows_the_batch_on_devices_with_a_speed(tmp_path: Path) -> None:
    speed = LOCAL[: LOCAL.index("[devices]")] + '[devices]\nspeed = "1 MFLOP/s"\n'
    with simulation(tmp_path, speed + OVERRIDES) as built:
        plain, small, _, large, *_ = [client.compute.step_s for client in built.clients]
    assert small == pytest.approx(plain * 5 / 8, rel=1e-12)
    assert large == pytest.approx(plain * 24 / 8, rel=1e-12)


def test_one_client_computes_in_bfloat16(tmp_path: Path) -> None:
    override = '\n[[training.override]]\nclients = [5]\nprecision = "bfloat16"\n'
    with simulation(tmp_path, LOCAL + override, "engine.way=loop") as built:
        built.run()
        others, rough = built.clients[0], built.clients[5]
        torch.testing.assert_close(others.params.tensor(), of_torch(built, others), rtol=1e-5, atol=1e-6)
        exact, trained = of_torch(built, rough), rough.params.tensor()
        near = of_torch(built, rough, torch.bfloat16)
        assert (trained - near).norm() < 0.1 * (trained - exact).norm()
        assert (rough.compute.kernel.precision, others.compute.kernel.precision) == ("bfloat16", "float32")


def test_a_change_of_the_rate_leaves_own_rates(tmp_path: Path) -> None:
    change = '\n[[change]]\nat = "1 s"\ntraining = { learning_rate = 0.5 }\nprotocol = { local_steps = 2 }\n'
    with simulation(tmp_path, LOCAL + OVERRIDES + change) as built:
        built.run()
        assert [client.compute.learning_rate for client in built.clients] == [0.5, 0.02, 0.01, 0.01, 0.5, 0.5]
        steps = [client.actor.settings.local_steps for client in built.clients]  # type: ignore[union-attr]
        assert steps[:4] == [2, 2, 3, 3]
        assert built.clients[4].actor.settings.local_epochs == 2  # type: ignore[union-attr]


def test_a_share_and_a_cluster_select_clients(tmp_path: Path) -> None:
    entries = ("share = 0.5\nbatch_size = 4", "cluster = 1\nbatch_size = 2")
    chosen = "".join([f"\n[[training.override]]\n{entry}\n" for entry in entries])
    with simulation(tmp_path, LOCAL + chosen) as built:
        sizes, clusters = [client.compute.batch_size for client in built.clients], built.clusters
    assert clusters is not None
    assert [size == 2 for size in sizes] == [cluster == 1 for cluster in clusters]
    with simulation(tmp_path, LOCAL + chosen, "training.override.1.cluster=0") as built:
        others = [client.compute.batch_size for client in built.clients]
    assert sorted([*sizes, *others]).count(4) == 3
    assert sorted([*sizes, *others]).count(8) == 3


SCAFFOLD = DIGITS.replace('name = "gossip"\nperiod = "500 ms"', 'name = "scaffold"\nlocal_steps = 2')


@pytest.mark.parametrize(
    "text, entry, said",
    [
        (LOCAL, "clients = [1]\nrate = 0.1", r"training\.override\.0\.rate.*"),
        (LOCAL, "clients = [1]\nlearning_rate = 0", r"training\.override\.0\.learning_rate = 0: must be"),
        (LOCAL, "clients = [1]\nbatch_size = -1", r"training\.override\.0\.batch_size = -1: must be"),
        (LOCAL, "clients = [1]", r"training\.override\.0.*otherwise, the section has no effect"),
        (LOCAL, "learning_rate = 1.0", r"set exactly one of 'clients' or 'share' or 'cluster'"),
        (LOCAL, "clients = []\nbatch_size = 2", r"training\.override\.0\.clients = \[\]"),
        (LOCAL, "clients = [6]\nbatch_size = 2", r"there is no client 6; must be numbers from 0 to 5"),
        (LOCAL, "share = 0.01\nbatch_size = 2", r"override\.0\.share = 0\.01: selects none of 6 clients"),
        (LOCAL, "cluster = 7\nbatch_size = 2", r"override\.0\.cluster = 7: must be a number from 0 to 1"),
        (LOCAL, 'clients = [1]\noptimizer = "adam"\nmomentum = 0.5', r"override\.0\.momentum = 0\.5: has no"),
        (
            LOCAL,
            "clients = [1]\nlocal_steps = 1\nlocal_epochs = 1",
            r"set either local_steps or local_epochs",
        ),
        (DIGITS, "clients = [1]\nlocal_epochs = 2", r"no setting 'local_epochs': use 'local_steps'"),
        (
            LOCAL,
            'clients = [1]\nschedule = { kind = "constant", warm_up = "2 rounds" }',
            r"override\.0\.schedule\.warm_up = .*has no rounds of a server",
        ),
        (SCAFFOLD, 'clients = [1]\noptimizer = "adam"', r'override\.0\.optimizer = "adam": protocol\.name'),
    ],
)
def test_wrong_overrides_are_refused(tmp_path: Path, text: str, entry: str, said: str) -> None:
    with (
        pytest.raises(UserError, match=said),
        simulation(tmp_path, f"{text}\n[[training.override]]\n{entry}\n"),
    ):
        pass


def test_overrides_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    both = (
        '\n[[training.override]]\nclients = [1]\noptimizer = "adam"\n[[training.override]]\nclients = [1]\n'
    )
    with (
        pytest.raises(UserError, match=re.escape("training.override.1.momentum = 0.5: has no effect")),
        simulation(tmp_path, LOCAL + both + "momentum = 0.5\n"),
    ):
        pass


GOSSIP = DIGITS.replace('"gossip"', '"gossip"\nlocal_steps = 2') + "\n\n".join(OVERRIDES.split("\n\n")[:3])


def test_a_run_with_other_optimizers_goes_on_from_anywhere(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOSSIP))
    assert require_goes_on_anywhere(tmp_path / "run", scenario, events=40, crashes=2) >= 1


def done(*words: object) -> Path:
    result = coterie(*words, "--quiet", "--device", "cpu")
    assert result.exit_code == 0, result.output
    return Path(result.stdout.splitlines()[-1].removeprefix("report: ")).parent


@pytest.mark.long
def test_a_run_with_overrides_is_verified_and_forked(tmp_path: Path) -> None:
    """A fork that changes the rate equals the full run with the change."""
    file, out = write(tmp_path, GOSSIP), tmp_path / "runs"
    words = ("run", file, "--out", out, "--verify", "--checkpoint-at", "2 s", "--quiet", "--device", "cpu")
    assert coterie(*words).exit_code == 0
    [parent] = out.iterdir()
    fork = done("fork", parent, "--at", "2 s", "--set", "training.learning_rate=0.3")
    change = '\n[[change]]\nat = "2 s"\ntraining = { learning_rate = 0.3 }\n'
    require_same(done("run", write(tmp_path, GOSSIP + change), "--out", out), fork)

"""`protocol.alone`: each method's own training without anybody's help, beside a loop of training by hand."""

from contextlib import closing

import numpy as np
import pytest

from protocols.framework.compute import TrainRequest
from sim.core.lives import ClientLife
from sim.core.simulation import Simulation
from tests.protocols.test_survival import variants
from tests.protocols.worlds import DIGITS, QUADRATIC, churn, learner, make, ran

STEPS = 11
# Without the momentum it would not show whether the optimizer is made anew.
WORLD = (
    DIGITS.replace('duration = "8 s"\n', "").replace('"4 s"', '"100 iterations"'),
    f"run.budget.steps={STEPS}",
    "training.momentum=0.9",
    "clients.newcomers=mean",
    "model.initialisation=independent",
)
ALONE = "protocol.alone=true"
UNUSUAL = (
    "afl",
    "cga",
    "dada",
    "el-oracle",
    "fedper",
    "meta-l2c",
    "q-ffl",
    "scaffold",
    "spdb",
    "validation-trust",
)
"""Who is made for SGD without momentum, or for a common start; here each is looked at by itself."""
OF_ANOTHER_KIND = ("per-fedavg", "pfedme")
"""Whose local training is no sequence of steps of one model; see their own tests."""


def training_of(protocol: tuple[str, ...]) -> tuple[tuple[str, ...], int, bool]:
    """Further settings, the steps in one go, and whether each begins with a fresh optimizer."""
    name = protocol[0].removeprefix("protocol.name=")
    if name in ("dfedavgm", "scool"):  # independent models mean little, but here each is looked at by itself
        fresh = name == "dfedavgm"
        return ("protocol.local_steps=3", 'protocol.unusual=["model.initialisation"]'), 3, fresh
    if name.startswith("mapl"):  # an epoch of two batches
        fresh = "asynchronous" in protocol[1]
        return ("protocol.local_epochs=2", f"protocol.fresh_optimizer={str(fresh).lower()}"), 4, fresh
    by_epochs = name in (
        *(
            "afl",
            "clustered-fl",
            "ditto",
            "flexlora",
            "flora",
            "flt",
            "ifca",
            "lg-fedavg",
            "meta-l2c",
            "oracle",
            "pfedhn",
            "pfedsim",
            "q-ffl",
            "scaffold",
        ),
    )
    further = ["protocol.local_steps=3"]
    if name == "spdb":
        further.append("protocol.head_steps=0")  # else it trains its parts by turns
    if name in UNUSUAL:
        keys = ", ".join([f'"{key}"' for key in ("model.initialisation", "training.momentum")])
        further.append(f"protocol.unusual=[{keys}]")
    return tuple(further), 3, by_epochs or name.startswith("fed")


def by_hand(world: Simulation, client: ClientLife, at_once: int, fresh: bool) -> np.ndarray:
    """A client's parameters after the steps, in a loop of its own."""

    async def train() -> np.ndarray:
        params, left = client.compute.initial(), STEPS
        while left:
            steps = min(at_once, left)
            params = await client.compute.train(TrainRequest(params, steps, fresh_optimizer=fresh))
            left -= steps
        return params.numpy()

    numbers: np.ndarray = world.loop.run_until_complete(train())
    return numbers


@pytest.mark.long
@pytest.mark.parametrize(
    "protocol", [each for each in variants() if not each[0].endswith(OF_ANOTHER_KIND)], ids=" ".join
)
def test_a_method_alone_trains_as_it_does_and_sends_nothing(protocol: tuple[str, ...]) -> None:
    more, at_once, fresh = training_of(protocol)
    with ran(*WORLD, *protocol, ALONE, *more) as world, closing(make(*WORLD, *protocol, *more)) as other:
        assert world.network.counts.sent == 0
        assert world.servers == []
        for index, client in enumerate(other.clients):
            own = learner(world, index)
            assert own.iterations == -(-STEPS // at_once)
            expected = by_hand(other, client, at_once, fresh)
            assert np.abs(expected - client.compute.initial().numpy()).max() > 1e-3
            hint = "add the method to `by_epochs` if it trains by epochs"
            np.testing.assert_allclose(own.params.numpy(), expected, rtol=1e-4, atol=1e-6, err_msg=hint)
            assert not own.weights()


@pytest.mark.parametrize("membership", ["swim", "bootstrap", "announce", "all-knowing"])
def test_nobody_is_known_whatever_the_membership(membership: str) -> None:
    comings = churn("join", 3, "1 s") + churn("crash", 0, "2 s") + churn("rejoin", 0, "3 s", "fresh")
    settings = ("protocol.name=cobo", f"network.membership={membership}", "clients.newcomers=peer", ALONE)
    with ran(QUADRATIC + comings, *settings) as world:
        assert world.network.counts.sent == 0
        assert [learner(world, index).peers for index in range(4)] == [[]] * 4
        assert [client.iterations for client in world.clients] == [10, 16, 16, 14]


def test_what_a_scenario_says_of_servers_may_stay() -> None:
    server = 'network.server={ uplink = "1 Gbit/s", downlink = "1 Gbit/s" }'
    with ran(QUADRATIC, "protocol.name=fedavg", server, ALONE) as world:
        assert world.network.counts.sent == 0
        assert [client.work.steps for client in world.clients] == [16] * 4


def test_an_oracle_needs_no_clusters_where_everybody_is_alone() -> None:
    with ran(DIGITS, "protocol.name=oracle", 'data.partition={ kind = "iid" }', ALONE) as world:
        assert world.network.counts.sent == 0


def test_gossip_alone_trains_once_in_each_period() -> None:
    with ran(QUADRATIC, "protocol.name=gossip", "protocol.period=1 s", ALONE) as world:
        assert {client.work.steps for client in world.clients} <= {4, 5}

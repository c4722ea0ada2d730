"""Every protocol survives that 30% of its clients crash at once while as many newcomers arrive."""

from pathlib import Path

import pytest

from tests.simulation.worlds import DIGITS, run

SCENARIO = (
    "run.duration=75 s",
    "run.evaluate_every=3 s",
    "run.keep_messages=false",
    "data.partition.samples_per_client=48",
    "data.test_samples=100",
    "network.downlink=50 Mbit/s",
    "network.loss=0.01",
    "devices.step_time.median=200 ms",
)
# How many clients there are at first, and which of them crash; as many come.
HALF = (10, [0, 1, 5])
WHOLE = (20, [0, 1, 2, 10, 11, 12])
VARIANTS = {
    "local": ["protocol.name=local"],
    "gossip": ["protocol.period=1 s"],
    "D-PSGD": ["protocol.name=dpsgd", "protocol.mode=synchronous", "protocol.patience=2 s"],
    "AD-PSGD": ["protocol.name=dpsgd", "protocol.mode=asynchronous", "protocol.patience=2 s"],
    "FedAvg": ["protocol.name=fedavg", "protocol.patience=5 s"],
    "oracle": ["protocol.name=oracle", "protocol.patience=5 s"],
    "CoBo in rounds": ["protocol.name=cobo", "protocol.mode=synchronous", "protocol.patience=2 s"],
    "CoBo": ["protocol.name=cobo", "protocol.mode=asynchronous", "protocol.patience=2 s"],
}


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_survivors_recover_and_newcomers_catch_up(variant: str, tmp_path: Path) -> None:
    # Of ten clients in rounds few meet a newcomer: when the last has caught up is a matter of the seed.
    lived_through(tmp_path, WHOLE if variant == "CoBo in rounds" else HALF, *VARIANTS[variant])


@pytest.mark.slow
@pytest.mark.parametrize("membership", ["all-knowing", "swim", "bootstrap"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_under_every_kind_of_membership(variant: str, membership: str, tmp_path: Path) -> None:
    if membership == "bootstrap" and variant in ("FedAvg", "oracle"):
        pytest.skip("clients of a server have no other peers")
    lived_through(tmp_path, WHOLE, *VARIANTS[variant], f"network.membership={membership}")


def lived_through(folder: Path, world: tuple[int, list[int]], *overrides: str) -> None:
    there, crashing = world
    moved = len(crashing)
    coming = list(range(there, there + moved))
    churn = (
        f"churn=[{{at='30 s', event='crash', clients={crashing}}},"
        f" {{at='30 s', event='join', clients={coming}}}]"
    )
    summary = run(folder, DIGITS, *SCENARIO, f"clients.count={there + moved}", churn, *overrides).summary
    clients, population = summary["clients"], summary["population"]
    assert summary["failures"] == []
    assert (clients["initial"], clients["alive"]) == (there, there)
    assert (clients["crashed"], clients["joined"]) == (moved, moved)
    assert (population["newcomers"], population["caught_up"]) == (moved, moved)
    assert (population["went_before"], population["still_behind"]) == (0, 0)
    assert summary["accuracy"]["clients"] == summary["settled"]["clients"] == there
    assert 0 < population["catch_up_seconds"]["max"] <= 45
    assert (population["departures"], population["recovered"]) == (1, 1)
    assert population["deepest_dip"] < 0.1

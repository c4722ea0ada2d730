"""One client becomes 20 times slower: without barriers nobody else notices, with them everybody does."""

from pathlib import Path

import pytest

from sim.core.simulation import Simulation
from tests.simulation.worlds import QUADRATIC, simulation

STRAGGLER = 2
SLOW = f"devices.override=[{{clients=[{STRAGGLER}], slowdown=20}}]"
MINUTE = ("run.duration=60 s", "run.evaluate_every=20 s", "clients.count=4")


def steps_per_s(built: Simulation) -> list[float]:
    """Iterations per virtual second of every client but the straggler."""
    return [
        client.actor.iterations / built.loop.time()
        for client in built.clients
        if client.index != STRAGGLER and client.actor is not None
    ]


def pace(folder: Path, *overrides: str) -> list[float]:
    with simulation(folder, QUADRATIC, *MINUTE, *overrides) as built:
        built.run()
        return steps_per_s(built)


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        ("protocol.name=gossip",),
        ("protocol.name=dpsgd", "protocol.mode=asynchronous"),
        # In CoBo each peer also asks for gradients; they are few where pairs are sampled as seldom as 1/t.
        ("protocol.name=cobo", "protocol.sampling=time-dependent", "run.duration=2 min"),
    ],
)
def test_without_barriers_nobody_else_notices(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    assert pace(tmp_path, *overrides, SLOW) == pytest.approx(pace(tmp_path, *overrides), rel=0.01)


def test_in_gossip_not_even_the_work_changes(tmp_path: Path) -> None:
    """Clients push by their timers: the others get as many models, and train as much."""

    def busy_s(*overrides: str) -> list[float]:
        with simulation(tmp_path, QUADRATIC, *MINUTE, "protocol.name=gossip", *overrides) as built:
            built.run()
            return [client.device.busy_s for client in built.clients if client.index != STRAGGLER]

    assert busy_s(SLOW) == busy_s()


@pytest.mark.long
def test_with_many_pair_updates_cobo_never_waits_for_the_straggler(tmp_path: Path) -> None:
    """The others get faster, if anything, as it asks them for fewer gradients."""
    overrides = (*MINUTE, "protocol.name=cobo", "protocol.sampling=none", "run.duration=20 s")
    with simulation(tmp_path, QUADRATIC, *overrides, SLOW) as built:
        built.run()
        slowed = steps_per_s(built)
        assert [client.device.waiting_s for client in built.clients] == [0.0] * len(built.clients)
    even = pace(tmp_path, *overrides)
    assert all(with_straggler >= 0.99 * without for with_straggler, without in zip(slowed, even, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["dpsgd", "cobo"])
def test_with_barriers_everybody_falls_to_its_pace(tmp_path: Path, protocol: str) -> None:
    overrides = (f"protocol.name={protocol}", "protocol.mode=synchronous")
    even = pace(tmp_path, *overrides)
    with simulation(tmp_path, QUADRATIC, *MINUTE, *overrides, SLOW) as built:
        built.run()
        slowed, learner = steps_per_s(built), built.clients[STRAGGLER].actor
        assert learner is not None
        slowest = learner.iterations / built.loop.time()
    # A round behind or ahead, at the end.
    assert slowed == pytest.approx([slowest] * len(slowed), abs=1.01 / 60)
    assert max(slowed) < min(even) / 10

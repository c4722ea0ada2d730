"""What a client that comes later starts from."""

import numpy as np
import pytest

from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, cut, learner, messages, optima, params, ran

# All train alone from 0, a step takes 0.5 s, messages 0.25 s. Client 3 joins at 2 s.
LATE = QUADRATIC.replace("clusters = 1", "clusters = 4") + churn("join", 3, "2 s")


def ends(time: str) -> tuple[str, str]:
    return f"run.duration={time}", f"run.evaluate_every={time}"


def after_steps(world: Simulation, steps: int) -> np.ndarray:
    """Where gradient descent alone from 0 has come after so many steps, [N, d]."""
    factors, centres = optima(world)
    return (1 - (1 - 0.1 * factors) ** steps) * centres


@pytest.mark.parametrize(("kind", "asked"), [("fresh", 0), ("peer", 1), ("mean", 3)])
def test_newcomers_ask_as_many_peers_as_they_are_told_to(kind: str, asked: int) -> None:
    with ran(LATE, *ends("2.4 s"), f"clients.newcomers={kind}") as world:
        assert world.network.counts.by_type.get("ModelWanted", [0])[0] == asked


def test_a_newcomer_starts_from_the_mean_of_its_peers_models() -> None:
    with ran(LATE, *ends("2.6 s"), "clients.newcomers=mean") as world:
        # Its question is heard at 2.25 s, after four steps, and answered at 2.5 s; it steps at 3 s.
        np.testing.assert_allclose(params(world)[3], after_steps(world, 4)[:3].mean(axis=0), rtol=1e-5)


def test_a_newcomer_starts_from_one_peer_or_afresh() -> None:
    with ran(LATE, *ends("2.6 s"), "clients.newcomers=peer") as world:
        distances = np.abs(after_steps(world, 4)[:3] - params(world)[3]).max(axis=1)
        assert np.sort(distances)[0] < 1e-5 < np.sort(distances)[1]
    with ran(LATE, *ends("2.4 s")) as world:
        np.testing.assert_array_equal(params(world)[3], 0)


def test_whoever_was_there_from_the_start_or_kept_its_state_asks_nobody() -> None:
    kept = QUADRATIC + churn("crash", 3, "1.2 s") + churn("rejoin", 3, "2 s", "keep")
    with ran(kept, *ends("2.6 s"), "clients.newcomers=mean") as world:
        assert "ModelWanted" not in world.network.counts.by_type


def test_a_newcomer_that_hears_nothing_asks_again_and_at_last_starts_afresh() -> None:
    alone = LATE + cut([[3], [0, 1, 2]], "0 s", "60 s")
    wait = 'clients.newcomers={kind="mean",peers=2,patience="1 s"}'
    with ran(alone, *ends("6 s"), wait, "network.membership=all-knowing") as world:
        assert world.network.counts.by_type["ModelWanted"][0] == 6
        assert world.observer.metrics.latest("models_at_start") == {"client-3": 0.0}
        # It began at 5 s, and has done two steps by 6 s.
        assert learner(world, 3).iterations == 2
        np.testing.assert_allclose(params(world)[3], after_steps(world, 2)[3], rtol=1e-5)


def test_a_newcomers_lost_question_is_asked_again_after_a_second() -> None:
    cut_off = LATE + cut([[3], [0, 1, 2]], "0 s", "4 s")
    with ran(cut_off, *ends("6 s"), "clients.newcomers=peer", "network.membership=all-knowing") as world:
        assert [row[0] for row in messages(world, "ModelWanted")] == [2.0]
        assert [row[0] for row in messages(world, "RepeatRequest")] == [3.0, 4.0]
        assert world.observer.metrics.latest("models_at_start") == {"client-3": 1.0}


def test_newcomers_take_no_models_from_newcomers() -> None:
    """Three join one that has trained, at once: who asks another newcomer is told to ask somebody else."""
    crowd = LATE + churn("join", 2, "2 s") + churn("join", 1, "2 s")
    with ran(crowd, *ends("4 s"), "clients.newcomers=mean") as world:
        assert world.observer.metrics.latest("models_at_start") == {f"client-{k}": 1.0 for k in (1, 2, 3)}
    one_by_one = [*ends("4 s"), 'clients.newcomers={kind="peer"}', "network.latency=125 ms"]
    with ran(crowd, *one_by_one) as world:
        asked = world.network.counts.by_type["ModelWanted"][0]
        assert asked > 3, "some have asked newcomers first"
        assert world.network.counts.by_type["CurrentModel"][0] == asked
        assert world.observer.metrics.latest("models_at_start") == {f"client-{k}": 1.0 for k in (1, 2, 3)}


def test_newcomers_among_newcomers_ask_again_and_at_last_start_afresh() -> None:
    replaced = LATE + churn("join", 2, "2 s") + churn("crash", 0, "1 s") + churn("crash", 1, "1 s")
    wait = 'clients.newcomers={kind="mean",patience="1 s"}'
    with ran(replaced, *ends("7.6 s"), wait, "network.membership=all-knowing") as world:
        assert world.network.counts.by_type["ModelWanted"][0] == 6
        assert world.observer.metrics.latest("models_at_start") == {"client-2": 0.0, "client-3": 0.0}
        # Three times they asked, were told within 0.5 s, and waited: they began at 6.5 s.
        assert [learner(world, 2).iterations, learner(world, 3).iterations] == [2, 2]


def test_who_has_started_and_comes_back_with_its_model_asks_nobody() -> None:
    back = LATE + churn("crash", 3, "4.6 s") + churn("rejoin", 3, "5 s", "keep")
    with ran(back, *ends("6 s"), "clients.newcomers=peer") as world:
        assert world.network.counts.by_type["ModelWanted"][0] == 1


def test_a_newcomer_may_start_from_a_servers_model() -> None:
    with ran(LATE, *ends("2.6 s"), "clients.newcomers=peer", "protocol.name=fedavg") as world:
        assert world.network.counts.by_type["ModelWanted"][0] == 1
        assert np.abs(params(world)[3]).max() > 0

"""Servers without rounds: their weights and steps against numpy, and each piece of work used exactly once."""

from collections import Counter
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.federated_async.fedasync import FedAsyncSettings, freshness
from protocols.shared.async_server import AsyncServer
from sim.core.simulation import Simulation
from tests.draws import examples
from tests.protocols.test_baselines import BAD, WORLD, accuracy, untrained
from tests.protocols.test_lost_messages import world
from tests.protocols.worlds import QUADRATIC, churn, cut, learner, messages, optima, params, ran

METHODS = ("fedasync", "fedbuff")
UNEQUAL = "data.clusters=4"
SLOWNESS = (1.0, 1.3, 1.7, 9.1)
SLOW = "devices.override=[{}]".format(
    ", ".join(f"{{ clients = [{i}], slowdown = {slow} }}" for i, slow in enumerate(SLOWNESS))
)


def server(simulation: Simulation) -> Any:
    return simulation.servers[0].actor


def crash(at: str, back: str, state: str) -> str:
    return f'\n[[server.crash]]\nat = "{at}"\nback = "{back}"\nstate = "{state}"\n'


# --- the formulas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"staleness": "constant"}, [1, 1, 1, 1, 1]),
        ({"staleness": "polynomial", "exponent": 0.5}, [1, 2**-0.5, 3**-0.5, 0.5, 0.1]),
        ({"staleness": "polynomial", "exponent": 2}, [1, 1 / 4, 1 / 9, 1 / 16, 1e-4]),
        ({"staleness": "hinge", "slope": 10, "grace": 2}, [1, 1, 1, 1 / 11, 1 / 971]),
        ({"staleness": "hinge", "slope": 0.5, "grace": 0}, [1, 1 / 1.5, 1 / 2, 1 / 2.5, 1 / 50.5]),
    ],
)
def test_what_is_older_weighs_less(settings: dict[str, Any], expected: list[float]) -> None:
    made = FedAsyncSettings(**settings)
    assert [freshness(u, made) for u in (0, 1, 2, 3, 99)] == pytest.approx(expected)


STEPS, MU, MIXING, BUFFER, RATE = 3, 0.7, 0.4, 3, 0.8


def by_hand(method: str, a: np.ndarray, mu: np.ndarray, until_s: float) -> tuple[np.ndarray, list[int]]:
    """The server's model at the end, and the staleness of each arrival: a queue of arrivals and numpy.

    A message takes 0.25 s and a step 0.5 s times the client's slowness. All are given the first model at
    0.25 s, and have it at 0.5 s.
    """
    x, version, buffer, staleness = np.zeros(3), 0, [], []
    queue: list[tuple[float, int]] = []
    given = [(x, 0)] * 4
    for i in range(4):
        heappush(queue, (0.75 + STEPS * 0.5 * SLOWNESS[i], i))
    while queue[0][0] <= until_s:
        time_s, i = heappop(queue)
        start, of = given[i]
        model = start
        for _ in range(STEPS):
            pull = MU * (model - start) if method == "fedasync" else 0
            model = model - 0.1 * (a[i] * (model - mu[i]) + pull)
        staleness.append(version - of)
        if method == "fedasync":
            share = MIXING / np.sqrt(1 + version - of)
            x, version = (1 - share) * x + share * model, version + 1
        else:
            buffer.append((model - start) / np.sqrt(1 + version - of))
            if len(buffer) == BUFFER:
                x, version, buffer = x + RATE * np.mean(buffer, axis=0), version + 1, []
        given[i] = (x, version)
        heappush(queue, (time_s + 0.5 + STEPS * 0.5 * SLOWNESS[i], i))
    return x, staleness


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedasync", (f"protocol.mu={MU}", f"protocol.mixing={MIXING}")),
        ("fedbuff", (f"protocol.buffer={BUFFER}", f"protocol.server_rate={RATE}")),
    ],
)
def test_a_run_is_that_of_a_queue_in_numpy(method: str, settings: tuple[str, ...]) -> None:
    options = (UNEQUAL, SLOW, f"protocol.name={method}", f"protocol.local_steps={STEPS}", *settings)
    with ran(QUADRATIC, *options, "run.duration=30 s", "run.evaluate_every=30 s") as simulation:
        expected, staleness = by_hand(method, *optima(simulation), 30.0)
        assert max(staleness) >= 3 and len(staleness) > 30
        np.testing.assert_allclose(server(simulation).params.numpy(), expected, rtol=1e-4, atol=1e-6)
        found = simulation.observer.metrics.latest("versions_behind")["server"]
        assert found == pytest.approx(np.mean(staleness))


# --- nobody waits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_slow_client_holds_up_nobody(method: str) -> None:
    options = (f"protocol.name={method}", "protocol.local_steps=1", "run.duration=40 s")
    slow = "devices.override=[{clients=[3], slowdown=20}]"
    with ran(QUADRATIC, *options, "run.evaluate_every=40 s", slow) as simulation:
        # 0.5 s at first, then 1 s for each of them; and 10.5 s for client 3.
        assert [client.iterations for client in simulation.clients] == [39, 39, 39, 3]
        ages = simulation.observer.metrics.latest("staleness")
        assert ages == {f"client-{i}": 0.75 if i < 3 else 10.25 for i in range(4)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_one_that_comes_back_goes_on(method: str, state: str) -> None:
    text = QUADRATIC + churn("crash", 3, "2.6 s") + churn("rejoin", 3, "5 s", state)
    with ran(text, f"protocol.name={method}", "protocol.local_steps=1", "run.duration=10.4 s") as simulation:
        sent = [row[0] for row in messages(simulation, "Report") if row[1] == "client-3"]
        # It has its model still, and trains at once, or it asks for one first.
        first = {"keep": 5.5, "fresh": 5.0}[state]
        assert sent == [0.0, 1.0, 2.0, *np.arange(first, 10.4)]


# --- what is lost -------------------------------------------------------------------------------------------


def used(simulation: Simulation) -> Counter[str]:
    """Whose work the servers use, filled in as the simulation goes on; of all their lives."""
    found: Counter[str] = Counter()

    def counting(fresh: Any) -> Any:
        made = fresh()
        assert isinstance(made, AsyncServer)
        arrived = made.arrived

        def counted(work: Any, client: str, staleness: int) -> None:
            found[client] += 1
            arrived(work, client, staleness)

        made.arrived = counted  # type: ignore[method-assign]
        return made

    for each in simulation.servers:
        each.fresh = partial(counting, each.fresh)
    return found


@pytest.mark.hypothesis
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("away", ["", crash("3.6 s", "5 s", "keep")], ids=["there", "crashed"])
def test_all_work_is_used_once_whatever_is_lost(method: str, away: str) -> None:
    """Eight trainings each; the server may be gone for a while, with what it has answered and not."""

    @examples(12)
    @given(st.sets(st.integers(0, 60), max_size=12))
    @example({*range(4, 8), *range(12, 20), *range(28, 32)})  # answers
    @example({*range(30, 44)})
    def whatever_is_lost(lost: set[int]) -> None:
        counts: list[Counter[str]] = []
        options = (f"protocol.name={method}", "protocol.local_steps=1", "run.budget.steps=8")
        ends = ("run.duration=1000 s", "run.evaluate_every=1000 s")
        with world(
            QUADRATIC + away,
            *options,
            *ends,
            lost=lost,
            prepare=lambda simulation: counts.append(used(simulation)),
        ) as simulation:
            assert [client.work.steps for client in simulation.clients] == [8] * 4
            assert counts[0] == {f"client-{i}": 8 for i in range(4)}

    whatever_is_lost()


@pytest.mark.parametrize("method", METHODS)
def test_what_was_made_of_a_model_that_the_server_no_longer_knows_is_not_used(method: str) -> None:
    """It comes back afresh: what is on its way was trained from another model than any that it has given."""
    counts: list[Counter[str]] = []
    options = (f"protocol.name={method}", "protocol.local_steps=1", "run.budget.steps=8")
    text = QUADRATIC + crash("3.6 s", "5 s", "fresh")
    with ran(
        text, *options, "run.duration=60 s", prepare=lambda simulation: counts.append(used(simulation))
    ) as simulation:
        assert [client.work.steps for client in simulation.clients] == [8] * 4
        assert counts[0] == {f"client-{i}": 7 for i in range(4)}


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gap_s", [45, 600])
def test_after_a_cut_all_are_served_within_two_minutes(method: str, gap_s: int) -> None:
    text = QUADRATIC + cut([[0, 1, "servers"], [2, 3]], "20 s", f"{20 + gap_s} s")
    times = (f"run.duration={180 + gap_s} s", f"run.evaluate_every={180 + gap_s} s")
    with ran(text, f"protocol.name={method}", "protocol.local_steps=1", *times) as simulation:
        for client in ("client-2", "client-3"):
            given = [row[0] for row in messages(simulation, "Start") if row[2] == client]
            assert min(time_s for time_s in given if time_s > 20 + gap_s) < 20 + gap_s + 120


@pytest.mark.parametrize(("patience", "least"), [("10 s", 2), ("20 min", 10)])
def test_a_network_that_is_slower_than_anybody_knew_gets_through(patience: str, least: int) -> None:
    """Six models of 30 kB share 10 kbit/s of the server's: two and a half minutes, at best."""
    text = WORLD[0].replace('"unlimited"', '"10 kbit/s"')
    options = ("model={ name = 'mlp', hidden = [100] }", f"protocol.patience={patience}")
    ends = ("run.duration=1 h", "run.evaluate_every=1 h", "protocol.name=fedasync")
    with ran(text, *WORLD[1:], *options, *ends, "protocol.local_steps=5") as simulation:
        assert min(client.iterations for client in simulation.clients) >= least


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_they_learn_while_the_server_crashes_and_much_is_lost(method: str, state: str) -> None:
    away = crash("10 s", "15 s", state)
    with ran(WORLD[0] + away, *WORLD[1:], f"protocol.name={method}", "protocol.local_steps=5", *BAD) as bad:
        assert min(learner(bad, i).iterations for i in range(5)) >= 20
        assert accuracy(bad, 5) > untrained(bad, 5) + 0.6
        assert np.isfinite(params(bad)).all()

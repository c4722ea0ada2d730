"""Budgets: each client trains so much and no more, in any method and weather, and then serves the others."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.framework.client import Client
from sim.core.evaluations_by_iteration import UnusedBudget
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.draws import examples
from tests.protocols.test_survival import variants
from tests.protocols.worlds import DIGITS, QUADRATIC, churn, learner, make, messages, optima, params, ran

HERE = f"protocol.name={__name__}"
# Without a duration: nothing but the budgets ends these runs.
BY_BUDGET = QUADRATIC.replace('duration = "8 s"\n', "")
DIGITS_BY_BUDGET = DIGITS.replace('duration = "8 s"\n', "").replace('"4 s"', '"100 iterations"')
SLOW = "devices.override=[{clients=[2], slowdown=20}]"
LOSSY = ("network.link=datagram", "network.loss=0.3")
WEATHERS = {"calm": (), "straggler": (SLOW,), "losses": LOSSY, "both": (SLOW, *LOSSY)}


def steps_of(world: Simulation) -> list[int]:
    return [client.work.steps for client in world.clients]


# --- every method -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
@examples(3)
@given(
    steps=st.integers(1, 9),
    weather=st.sampled_from(sorted(WEATHERS)),
    seed=st.integers(0, 1000),
    several=st.booleans(),
)
def test_every_client_takes_exactly_its_steps(
    protocol: tuple[str, ...], steps: int, weather: str, seed: int, several: bool
) -> None:
    # A straggler's round takes 20 s.
    ends = [option for option in protocol if not option.startswith("run.duration")]
    patient = [re.sub(r"(patience=).*", r"\g<1>60 s", option) for option in ends]
    if several and "mapl" not in protocol[0]:
        patient.append("protocol.local_steps=4")
    # Long enough for all; who would never be done does not keep the test from ending.
    times = ("run.duration=2 h", "run.evaluate_every=2 h", f"run.budget.steps={steps}", f"run.seed={seed}")
    with ran(DIGITS_BY_BUDGET, *patient, *WEATHERS[weather], *times) as world:
        assert steps_of(world) == [steps] * 6
        assert all(client.finished for client in world.clients)
        assert all(np.isfinite(learner(world, i).params.numpy()).all() for i in range(6))


# --- what ends a run ----------------------------------------------------------------------------------------


def test_the_run_ends_when_the_last_one_has_spent_its_budget() -> None:
    with ran(BY_BUDGET, "run.budget.steps=5", "protocol.local_steps=2", SLOW) as world:
        assert world.loop.time() == 5 * 0.5 * 20
        assert [client.iterations for client in world.clients] == [3, 3, 3, 3]
        assert steps_of(world) == [5, 5, 5, 5]


def test_who_is_still_to_come_is_waited_for_unless_its_budget_is_spent() -> None:
    later = churn("join", 1, "9 s") + churn("crash", 2, "750 ms") + churn("rejoin", 2, "4 s")
    with ran(BY_BUDGET + later, "run.budget.steps=5") as world:
        assert steps_of(world) == [5, 5, 5, 5]
        assert world.loop.time() == 9.0 + 5 * 0.5
    returns = churn("crash", 2, "2.6 s") + churn("rejoin", 2, "20 s", "fresh")
    with ran(
        BY_BUDGET + returns, "run.budget.steps=5", "devices.override=[{clients=[1], slowdown=2}]"
    ) as world:
        assert world.loop.time() == 5.0
    with ran(BY_BUDGET + later, "run.budget.steps=5", "run.iterations=3") as world:
        assert world.loop.time() == 1.5, "by its iterations"


def test_who_is_down_holds_up_nobody() -> None:
    with ran(BY_BUDGET + churn("crash", 2, "6 s"), "run.budget.steps=5", SLOW) as world:
        assert world.loop.time() == 6.0
        assert steps_of(world) == [5, 5, 0, 5]


@pytest.mark.parametrize(
    ("ends", "time_s", "steps"),
    [
        (("run.duration=3 s",), 3.0, [6, 6, 6, 6]),
        (("run.duration=30 s",), 10.0, [20, 20, 20, 20]),
        (("run.iterations=4",), 2.0, [4, 4, 4, 4]),
        (("run.iterations=40", "run.duration=60 s"), 10.0, [20, 20, 20, 20]),
    ],
)
def test_whatever_comes_first_ends_the_run(ends: tuple[str, ...], time_s: float, steps: list[int]) -> None:
    with ran(BY_BUDGET, "run.budget.steps=20", "run.evaluate_every=1 s", *ends) as world:
        assert (world.loop.time(), steps_of(world)) == (time_s, steps)


def test_who_has_finished_holds_up_no_evaluation() -> None:
    everys = ("run.evaluate_every=2 iterations", "run.budget.time=4 s", "run.iterations=5")
    with ran(BY_BUDGET, *everys, "devices.override=[{clients=[1], slowdown=16}]") as world:
        # Client 1 takes 8 s for its first step, and has finished then; the others after 4 s, with 8 steps.
        assert world.loop.time() == 8.0
        assert world.observer.metrics.series("all", "alive").times.tolist() == [0.0, 8.0]
    with ran(BY_BUDGET, *everys[:2], "devices.override=[{clients=[1], slowdown=4}]") as world:
        # By 4 s client 1 has done 2 iterations of 2 s, and the others have finished.
        assert world.observer.metrics.series("all", "alive").times.tolist() == [0.0, 4.0]


class NeverTrains(Client):
    """It computes without `train`."""

    async def step(self) -> None:
        await self.sleep(0.5)


@pytest.mark.parametrize("kind", ["steps", "samples"])
def test_a_budget_that_nobody_uses_ends_the_run_with_the_reason(kind: str) -> None:
    with (
        pytest.raises(UnusedBudget, match=rf"At 50 s, a client has finished 100 iterations.*{kind}"),
        ran(BY_BUDGET, f"{HERE}:NeverTrains", f"run.budget.{kind}=5"),
    ):
        pass
    for end, time_s in (("run.duration=60 s", 60.0), ("run.iterations=110", 55.0)):
        with ran(BY_BUDGET, f"{HERE}:NeverTrains", f"run.budget.{kind}=5", end) as world:
            assert world.loop.time() == time_s


def test_a_budget_of_time_needs_no_training() -> None:
    with ran(BY_BUDGET, f"{HERE}:NeverTrains", "run.budget.time=53 s") as world:
        assert world.loop.time() == 53.0


def test_a_budget_that_one_client_uses_ends_no_run_early() -> None:
    with ran(BY_BUDGET, f"{HERE}:OnlyTheFirstTrains", "run.budget.steps=1", "run.seed=1") as world:
        assert steps_of(world) == [1, 1, 1, 1]


def test_a_training_in_progress_is_a_use_of_the_budget() -> None:
    slow = "devices.override=[{clients=[1, 2, 3], slowdown=1000}]"  # a step takes 500 s
    with (
        pytest.raises(TimeoutError),
        ran(BY_BUDGET, f"{HERE}:TheFirstNeverTrains", "run.budget.steps=1", slow, prepare=_stop_at_600_s),
    ):
        pass


def _stop_at_600_s(simulation: Simulation) -> None:
    def stop() -> None:
        assert steps_of(simulation) == [0, 1, 1, 1]
        raise TimeoutError

    simulation.loop.call_at_observer(600.0, stop)


class TheFirstNeverTrains(Client):
    """The first client does many iterations while the others take their only step."""

    async def step(self) -> None:
        if self.name == "client-0":
            await self.sleep(0.5)
        else:
            self.params = await self.train(1)


class OnlyTheFirstTrains(Client):
    """The first client trains early, the others after more iterations than an unused budget is allowed."""

    async def step(self) -> None:
        if self.name == "client-0" or self.iterations > 150:
            self.params = await self.train(1)
        else:
            await self.sleep(0.5)


# --- what is counted ----------------------------------------------------------------------------------------


def test_a_budget_is_of_all_lives_and_what_a_crash_interrupts_costs_nothing() -> None:
    lives = churn("crash", 1, "750 ms") + churn("rejoin", 1, "2 s")
    with ran(BY_BUDGET + lives, "run.budget.steps=5") as world:
        # One step until .5 s; the second ends with the crash, and is taken after the return, with the others.
        assert steps_of(world) == [5, 5, 5, 5]
        assert world.loop.time() == 2.0 + 4 * 0.5


@pytest.mark.parametrize(("name", "views", "steps"), [("local", 1, 11), ("mapl", 2, 5)])
def test_samples_count_each_view_and_whole_batches(name: str, views: int, steps: int) -> None:
    decoupled = 'model={ name = "decoupled", backbones = ["small-mlp"], features = 8 }'
    with ran(DIGITS_BY_BUDGET, f"protocol.name={name}", decoupled, "run.budget.samples=47") as world:
        works = [client.work for client in world.clients]
        assert {(work.steps, work.samples) for work in works} == {(steps, steps * 4 * views)}


def test_less_than_a_batch_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^run.budget.samples = 3: client-0 uses 4 samples in one training step; must "
    ):
        make(DIGITS_BY_BUDGET, "run.budget.samples=3")


def test_gradients_are_samples_but_no_steps() -> None:
    with ran(DIGITS_BY_BUDGET, "protocol.name=cobo", "run.budget.samples=100") as world:
        works = [client.work for client in world.clients]
        assert sum(work.gradients for work in works) > 0
        for work in works:
            assert work.samples == 4 * (work.steps + work.gradients)
            assert work.steps <= 25 - 1
            assert work.samples > 100 - 4, "less than a batch is left"


def test_time_is_that_for_which_a_client_is_up() -> None:
    text = BY_BUDGET + churn("join", 3, "1 s") + churn("crash", 0, "1.75 s") + churn("rejoin", 0, "3 s")
    with ran(text, "run.budget.time=2 s", "protocol.local_steps=3") as world:
        # An iteration takes 1.5 s; the second one begins before the 2 s are over, and is finished.
        assert [client.work.time for client in world.clients] == [3.25, 4.5, 4.5, 3.5]
        assert steps_of(world) == [6, 6, 6, 6]
        assert world.loop.time() == 4.5  # client 0: 1.75 s, of which .25 s were lost; from 3 s to 4.5 s


def test_bytes_are_those_that_a_client_sends() -> None:
    with ran(BY_BUDGET, "protocol.name=dpsgd", "run.duration=30 s", "run.budget.bytes=1 kB") as world:
        trace = world.trace.to_table().to_pylist()
        sizes = [row["bytes"] for row in trace if row["event"] == "sent" and row["actor"] == "client-1"]
        assert world.clients[1].work.bytes == sum(sizes) == world.network.bytes_sent["client-1"]
        assert sum(world.network.bytes_sent.values()) == world.network.counts.bytes
        # Three messages in each round, before its training: those of the last one spend the budget.
        assert len(sizes) == 3 * (steps_of(world)[1] + 1)
        assert sum(sizes[:-3]) < 1000 <= sum(sizes)


# --- and then it serves -------------------------------------------------------------------------------------


def test_a_server_keeps_the_weights_of_those_that_train_no_more() -> None:
    fedavg = ("protocol.name=fedavg", "protocol.local_steps=1", "run.budget.steps=2")
    with ran(BY_BUDGET + churn("join", 3, "900 ms"), *fedavg) as world:
        curvature, optimum = optima(world)
        x = world.clients[0].compute.initial().numpy()

        def trained(x: np.ndarray, i: int) -> np.ndarray:
            return x - 0.1 * curvature[i] * (x - optimum[i])

        for _ in range(2):
            x = np.mean([trained(x, i) for i in range(3)], axis=0)
        for _ in range(2):
            x = np.mean([x, x, x, trained(x, 3)], axis=0)
        np.testing.assert_allclose(params(world), [x] * 4, rtol=1e-5)
        assert steps_of(world) == [2, 2, 2, 2]
        # Four rounds of a second each, and the way of the fifth task, which brings the last average.
        assert world.loop.time() == 4.25
        answers = [row[0] for row in messages(world, "WithoutTraining") if row[1] == "client-0"]
        assert answers == [2.25, 3.25, 4.25]


def test_a_server_pauses_when_all_its_clients_have_finished() -> None:
    text = BY_BUDGET.replace("clusters = 1", "clusters = 2")
    oracle = ("protocol.name=oracle", "protocol.local_steps=1", "run.budget.steps=3")
    with ran(text, *oracle, "devices.override=[{clients=[3], slowdown=100}]") as world:
        assert world.clusters is not None and world.clusters[0] != world.clusters[3]
        assert steps_of(world) == [3, 3, 3, 3]
        assert world.loop.time() > 150.0
        assert len([row for row in messages(world, "Assignment") if row[2] == "client-0"]) == 3 + 1


@pytest.mark.parametrize("name", ["dpsgd", "dfedavgm", "cobo"])
def test_nobody_waits_for_a_neighbour_that_has_finished(name: str) -> None:
    options = (f"protocol.name={name}", "protocol.mode=synchronous", "protocol.patience=100 s")
    options += ("training.momentum=0.5", "run.budget.steps=8")
    with ran(BY_BUDGET + churn("join", 3, "2.1 s"), *options) as world:
        assert steps_of(world) == [8] * 4
        assert world.loop.time() < 20.0


def test_the_last_one_mixes_with_the_models_of_those_that_have_finished() -> None:
    options = ("protocol.name=dpsgd", "run.budget.steps=2", "clients.count=2")
    with ran(BY_BUDGET + churn("join", 1, "0.875 s"), *options) as world:
        # Client 0 has taken its two rounds alone by 1 s. Client 1 announces, trains, and has the answer after
        # half a second, twice.
        assert world.loop.time() == 0.875 + 2 * 0.5
        curvature, optimum = optima(world)
        first = world.clients[0].compute.initial().numpy()
        alone = second = first
        for _ in range(2):
            alone = alone - 0.1 * curvature[0] * (alone - optimum[0])
        for _ in range(2):
            second = (second + alone) / 2 - 0.1 * curvature[1] * (second - optimum[1])
        np.testing.assert_allclose(params(world), [alone, second], rtol=1e-5)


def test_gossip_goes_on_pushing() -> None:
    with ran(BY_BUDGET, "protocol.name=gossip", "run.budget.steps=3", SLOW) as world:
        finished_s = [row[0] for row in messages(world, "AgedModel") if row[1] == "client-0"]
        assert finished_s[-1] > 25.0, "the straggler has had three models, and 10 s for each"
        assert max(client.actor.age for client in world.clients) <= 3 * 4  # type: ignore[union-attr]


# --- methods of one's own -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    params: Any


class InBoth(Client):
    """Trains in its iterations and on messages, both at the same time."""

    async def step(self) -> None:
        self.gossip(Model(self.params))
        update = await self.train(3)
        self.params = self.params + update

    async def on_message(self, message: object, sender: str) -> None:
        update = await self.train(2)
        self.params = self.params + update


@pytest.mark.parametrize("steps", range(1, 12))
def test_training_in_steps_and_on_messages_at_once_spends_no_more(steps: int) -> None:
    with ran(BY_BUDGET, f"{HERE}:InBoth", f"run.budget.steps={steps}") as world:
        assert steps_of(world) == [steps] * 4


class Twice(Client):
    """Notes what its second training of an iteration changes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.second: list[float] = []

    async def step(self) -> None:
        for _ in range(2):
            before = self.now
            update = await self.train(2)
            self.params = self.params + update
        self.second.append(self.now - before)
        self.lost = update


class OwnLoop(Twice):
    """Its `run` is its own."""

    async def run(self) -> None:
        while not self.finished:
            await self.step()


@pytest.mark.parametrize("kind", ["Twice", "OwnLoop"])
def test_training_beyond_the_budget_takes_no_time_and_changes_nothing(kind: str) -> None:
    with ran(BY_BUDGET, f"{HERE}:{kind}", "run.budget.steps=5") as world:
        assert steps_of(world) == [5] * 4
        assert world.loop.time() == 2.5
        for index in range(4):
            client = learner(world, index)
            assert isinstance(client, Twice)
            assert client.second == [1.0, 0.0]
            assert client.lost.numpy().tolist() == [0.0] * 3

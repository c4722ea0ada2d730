"""The safeguard of slow clients: which model one continues from, and that it loses nothing by its peers."""

from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from protocols.framework.client import Client
from protocols.framework.vectors import Vector
from protocols.shared.pace import RelativePace
from protocols.shared.safeguard import PAUSE_MAX, Safeguard
from tests.protocols.worlds import DIGITS, churn, learner, ran

SLOW = "devices.override=[{clients=[0], slowdown=20}]"
METHODS = {
    "scool": ("protocol.name=scool", "protocol.local_steps=5"),
    "scool, attention": ("protocol.name=scool", "protocol.local_steps=5", "protocol.prior=attention"),
    "meta-l2c": ("protocol.name=meta-l2c", "protocol.mode=asynchronous", "protocol.local_steps=5"),
}


class Judge:
    """As much of a client as its safeguard looks at: losses of models, which are their names here."""

    iterations = 0
    peers = ("a",)
    now = 100.0

    def __init__(
        self, pace: float = 0.05, *, held_back: bool = False, rests_first: bool = False, **losses: float
    ) -> None:
        self.losses, self.computed, self.batches = losses, list[tuple[str, object]](), 0
        self.compute = self
        self.classes = 10
        how = {"enabled": True, "held_back": held_back, "rests_first": rests_first}
        self.safeguard = Safeguard(cast(Client, self), self.pace(pace), **how)
        self.safeguard.session_started()

    def pace(self, relative: float) -> RelativePace:
        """The client has done no iteration yet in 100 s, its peer `relative` as many a second."""
        found = RelativePace(cast(Client, self))
        found.session_started()
        found._started_s = 0.0
        found.met("a", 0.0, 0)
        found.met("a", 100.0, round(1 / relative))
        return found

    def _add_component(self, component: object) -> None:
        """Nothing happens to it."""

    def batch(self) -> str:
        self.batches += 1
        return f"batch {self.batches}"

    async def loss(self, model: str, on: object) -> float:
        self.computed.append((model, on))
        return self.losses[model]

    def best(self, *names: str) -> str:
        """The model that an iteration ends with."""
        try:
            self.safeguard.best(*cast(tuple[Vector, ...], names)).send(None)  # nothing to wait for
        except StopIteration as done:
            self.safeguard.step_ended()
            return str(done.value)
        raise AssertionError("it waits")


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ({"own": 1.0, "mixed": 2.0, "other": 3.0}, "own"),
        ({"own": 1.0, "mixed": 0.9, "other": 3.0}, "mixed"),
        ({"own": 1.0, "mixed": 0.9, "other": 0.8}, "other"),
        ({"own": 1.0, "mixed": float("nan"), "other": float("inf")}, "own"),
        ({"own": 0.01, "mixed": 0.2, "other": 0.1}, "mixed"),  # all fit: they do not tell any more
        ({"own": 0.01, "mixed": 0.3, "other": 0.1}, "other"),
    ],
)
def test_a_slow_client_continues_from_the_model_that_fits_its_samples_best(
    losses: dict[str, float], chosen: str
) -> None:
    client = Judge(**losses)
    assert client.best("own", "mixed", "other") == chosen
    assert {on for _, on in client.computed} == {"batch 1"}, "all are compared on the same samples"
    assert client.safeguard.helped == (chosen != "own")


def test_held_back_samples_decide_however_small_the_losses() -> None:
    client = Judge(held_back=True, own=0.01, mixed=0.02)
    assert client.best("own", "mixed") == "own"
    assert {on for _, on in client.computed} == {"validation"}
    assert client.batches == 0


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_a_client_that_is_not_far_behind_takes_what_the_method_gives(pace: float) -> None:
    client = Judge(pace, own=0.0, mixed=9.0)
    assert [client.best("own", "mixed") for _ in range(5)] == ["mixed"] * 5
    assert client.computed == []


def test_where_peers_send_no_models_the_first_iteration_is_alone() -> None:
    client = Judge(rests_first=True, own=1.0, mixed=0.5)
    assert client.best("own", "mixed") == "own"
    assert client.computed == []
    assert client.best("own", "mixed") == "mixed"


def test_pauses_double_while_no_help_is_better() -> None:
    client = Judge(own=1.0, mixed=2.0)
    compared = []
    for _ in range(100):
        before = len(client.computed)
        client.best("own", "mixed")
        compared.append(len(client.computed) > before)
    at = [index for index, each in enumerate(compared) if each]
    pauses = [later - earlier - 1 for earlier, later in pairwise(at)]
    assert at[0] == 0
    assert pauses == [1, 2, 4, 8, *[PAUSE_MAX] * (len(pauses) - 4)]
    client.losses["mixed"] = 0.5
    chosen = [client.best("own", "mixed") for _ in range(2 * PAUSE_MAX)]
    assert chosen == sorted(chosen, reverse=True), "once helped, there are no pauses"
    assert "mixed" in chosen


def test_the_own_loss_is_computed_once_in_an_iteration() -> None:
    client = Judge(own=1.0, mixed=2.0)
    with pytest.raises(StopIteration, match=r"1\.0"):
        client.safeguard.loss_of(cast(Vector, "own")).send(None)
    client.best("own", "mixed")
    assert [model for model, _ in client.computed].count("own") == 1


@pytest.mark.long
@pytest.mark.parametrize("method", ["scool", "meta-l2c"])
def test_a_slow_client_that_nobody_can_help_is_as_good_as_alone(method: str) -> None:
    """Its peers all label its images differently."""
    world = (SLOW, "data.partition={kind='permuted-clusters', sizes=[1, 5], samples_per_client=20}")
    world += ("data.validation_share=0.2", "run.evaluate_every=50 s")
    with ran(DIGITS, *world, *METHODS[method], "run.duration=6 min") as helped:
        done, found = learner(helped, 0).iterations, learner(helped, 0).params.numpy()
    assert done >= 4
    ten_seconds_a_step = f"run.duration={50 * done + 1} s"
    local = ("protocol.name=local", "protocol.local_steps=5", ten_seconds_a_step)
    with ran(DIGITS, *world, *local) as alone:
        np.testing.assert_allclose(found, learner(alone, 0).params.numpy(), atol=1e-5)
    with ran(DIGITS, *world, *METHODS[method], "protocol.safeguard=false", "run.duration=6 min") as trusting:
        assert np.abs(learner(trusting, 0).params.numpy() - found).max() > 1e-2


@pytest.mark.long
@pytest.mark.parametrize("method", ["scool", "scool, attention"])
def test_a_slow_client_takes_up_a_model_that_fits_its_samples(method: str) -> None:
    world = (SLOW, "data.partition={kind='permuted-clusters', sizes=[6], samples_per_client=20}")
    world += ("run.duration=200 s", "run.evaluate_every=200 s", "data.test_samples=200")
    with ran(DIGITS, *world, *METHODS[method]) as helped, ran(DIGITS, *world, "protocol.name=local") as alone:
        accuracies = [each.observer.metrics.latest("accuracy")["client-0"] for each in (helped, alone)]
    assert accuracies[0] > accuracies[1] + 0.03


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slow_client_of_mapl_plus_starts_from_a_complete_model(seed: int) -> None:
    """Its own head, of a few steps, fits no backbone. A single seed says little of the safeguard's gain."""
    world = (
        SLOW,
        "data.partition={kind='permuted-clusters', sizes=[6], samples_per_client=20}",
        'model={name="decoupled",backbones=["small-mlp"],features=16,projection_hidden=16}',
        "training.optimizer=adam",
        "training.learning_rate=0.01",
        "run.duration=200 s",
        "run.evaluate_every=200 s",
        "data.test_samples=200",
        "protocol.name=mapl-plus",
        "protocol.warm_up=10",
        "protocol.similarity=per-class",
        "protocol.confidence=none",
        "protocol.degree_gradient=false",
        f"run.seed={seed}",
    )
    with ran(DIGITS, *world) as helped, ran(DIGITS, *world, "protocol.alone=true") as alone:
        accuracies = [each.observer.metrics.latest("accuracy")["client-0"] for each in (helped, alone)]
        assert learner(helped, 0).tried  # type: ignore[attr-defined]
    assert accuracies[0] > accuracies[1] + 0.1


@pytest.mark.long
def test_a_slow_client_of_federico_trains_others_only_if_they_help() -> None:
    """Nobody labels as it does; the cost of a model is that of a batch."""
    world = (SLOW, "data.partition={kind='permuted-clusters', sizes=[1, 5], samples_per_client=20}")
    world += (
        "protocol.name=federico",
        "protocol.losses=mean",
        "run.duration=6 min",
        "run.evaluate_every=1 min",
    )
    with ran(DIGITS, *world) as protected, ran(DIGITS, *world, "protocol.safeguard=false") as trusting:
        slow, other = learner(protected, 0), learner(protected, 1)
        assert slow.is_protected and not slow.gives_back  # type: ignore[attr-defined]
        assert slow.loss_cost < other.loss_cost  # type: ignore[attr-defined]
        assert not other.is_protected and other.gives_back  # type: ignore[attr-defined]
        assert slow.iterations >= learner(trusting, 0).iterations


def test_a_client_of_scool_with_a_spent_budget_answers_its_peers_after_a_return() -> None:
    """It never trains again, so no request may wait for its first training."""
    text = DIGITS + churn("crash", 3, "30 s") + churn("rejoin", 3, "31 s")
    world = (SLOW, "run.budget.steps=20", "run.duration=100 s", "run.evaluate_every=100 s")
    with ran(text, *world, *METHODS["scool"]) as simulation:
        assert learner(simulation, 3).finished
        rows = simulation.trace.to_table().to_pylist()
    later = [row for row in rows if row["time"] > 31 and row["event"] == "delivered"]
    asked = [row for row in later if row["peer"] == "client-3" and row["type"] == "EvaluationRequest"]
    answered = [row for row in later if row["actor"] == "client-3" and row["type"] == "PeerEvaluation"]
    assert len(answered) == len(asked) > 0

"""SCooL's clients: algorithm 1 by hand, D-PSGD as a special case, who is talked to, and bad weather."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

from actors.message import Envelope
from protocols.framework.client import Client
from protocols.scool import SCooL, peer_evaluation
from protocols.scool.asynchronous import SCooLAsynchronous
from protocols.scool.messages import Beliefs, EvaluationRequest, PeerEvaluation
from protocols.scool.peer_evaluation import Publication
from protocols.scool.posterior import PeerState
from protocols.scool.priors import BlockPrior
from sim.core.simulation import Simulation
from tests.protocols.test_survival import LOSSY
from tests.protocols.worlds import (
    DIGITS,
    QUADRATIC,
    churn,
    learner,
    messages,
    optima,
    params,
    ran,
    start_from,
)

ROUNDS = ("protocol.name=scool", "protocol.mode=synchronous")
WITHOUT_ROUNDS = ("protocol.name=scool", "protocol.mode=asynchronous")
# With one block the prior's log odds are those of B, whatever the memberships.
ONE_BLOCK = (
    "protocol.blocks=1",
    "protocol.learn_prior=false",
    "protocol.judged_on=train",
    "protocol.keep=1.0",
)
FOUR_ROUNDS = QUADRATIC.replace('duration = "8 s"', "budget = { steps = 4 }").replace(
    '"8 s"', '"4 iterations"'
)
RATE = 0.1
PATIENT = "protocol.patience=1000 s"


def scool(world: Simulation, index: int) -> SCooL | SCooLAsynchronous:
    found = learner(world, index)
    assert isinstance(found, SCooL | SCooLAsynchronous)
    return found


def graph(world: Simulation) -> np.ndarray:
    """Everybody's weights, [clients, clients]; rows of zeros for who is gone."""
    names = [client.name for client in world.clients]
    rows = [(client.actor.weights() if client.actor else None) or {} for client in world.clients]
    return np.array([[float(row.get(name, 0.0)) for name in names] for row in rows])


@pytest.mark.parametrize("topology", ["complete", "ring"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_fixed_weights_are_d_psgd(topology: str, loss: float) -> None:
    text = DIGITS.replace('duration = "8 s"', "budget = { steps = 10 }").replace('"4 s"', '"5 iterations"')
    common = ("protocol.mode=synchronous", "protocol.local_steps=2", f"clients.topology={topology}")
    with ran(text, "protocol.name=dpsgd", *common) as world:
        expected = params(world)
    lossy = (f"network.loss={loss}", "network.link=datagram", PATIENT)
    with ran(text, "protocol.name=scool", "protocol.prior=dirac", *common, *lossy) as world:
        np.testing.assert_allclose(params(world), expected, atol=1e-6)
        assert scool(world, 0).weights() is None


def weights_of(models: np.ndarray, world: Simulation, temperature: float) -> np.ndarray:
    """w_ij of models [clients, P] in one block: of their losses on each client's data, beside nothing."""
    curvatures, centres = optima(world)
    losses = curvatures[:, 0] / 2 * ((models[:, None] - centres) ** 2).sum(axis=2)
    found = expit((np.log(0.8 / 0.2) - losses) / temperature)
    return np.where(np.eye(len(models), dtype=bool), 0.0, found)


@pytest.mark.parametrize("aggregation", ["sum", "shares"])
@pytest.mark.parametrize("gradients", ["first-order", "exact"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_rounds_are_algorithm_1(aggregation: str, gradients: str, loss: float) -> None:
    start = 0.3 * np.random.default_rng(3).normal(size=(4, 3))
    with ran(
        FOUR_ROUNDS,
        *ROUNDS,
        *ONE_BLOCK,
        "data.clusters=2",
        "protocol.local_steps=1",
        "protocol.null_model=none",
        "protocol.temperature=2.0",
        f"protocol.aggregation={aggregation}",
        f"protocol.cross_gradients={gradients}",
        f"network.loss={loss}",
        "network.link=datagram",
        PATIENT,
        prepare=lambda simulation: start_from(simulation, start),
    ) as world:
        curvatures, centres = optima(world)
        models = start.copy()
        for _ in range(4):
            own = curvatures * (models - centres)
            judged = models if gradients == "exact" else models - RATE * own
            weights = weights_of(judged, world, 2.0)
            if gradients == "exact":  # [i, j]: of client i's model on j's data
                cross = curvatures[None] * (models[:, None] - centres[None])
            else:
                cross = np.broadcast_to(own[None], (4, 4, 3))
            step = own + (weights[:, :, None] * cross).sum(axis=1)
            scale = 1.0 if aggregation == "sum" else 1 / (1 + weights.sum(axis=1, keepdims=True))
            models = models - RATE * scale * step
        np.testing.assert_allclose(params(world), models, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(graph(world), weights, rtol=1e-3, atol=1e-4)


def test_only_those_kept_are_talked_to() -> None:
    text = DIGITS.replace('duration = "8 s"', "iterations = 6").replace('"4 s"', '"6 iterations"')
    with ran(text, *ROUNDS, "protocol.local_steps=2", *KEEPING) as world:
        asked = Counter((sender, peer) for _, sender, peer, _ in messages(world, "EvaluationRequest"))
        for client in world.clients:
            of = scool(world, client.index)
            assert len(of.weights() or {}) == 2 and len(of.posterior.dropped) == 3
            for peer in of.peers:  # in three rounds, and those that are kept in all
                assert asked[client.name, peer] == (6 if peer in of.posterior.row else 3)


def evaluation(progress: float, iterations: int, time: float) -> PeerEvaluation:
    vector = np.array([progress])
    return PeerEvaluation(None, None, vector, iterations, 0, 3, time, Beliefs(0.0))  # type: ignore[arg-type]


def test_each_update_of_a_peer_counts_once() -> None:
    peer = PeerState()
    assert peer.take_new_progress() is None
    peer.answered(evaluation(6.0, 3, 1.0))
    assert peer.take_new_progress() == 2.0, "at first what it did in one iteration"
    assert peer.take_new_progress() is None
    peer.answered(evaluation(11.0, 5, 2.0))
    peer.answered(evaluation(8.0, 4, 1.5))
    assert peer.take_new_progress() == 5.0, "an answer that was overtaken means nothing"
    peer.answered(evaluation(1.0, 2, 3.0))
    assert peer.take_new_progress() == 0.5, "it has lost its state, and begun anew"


def test_who_has_nothing_new_is_asked_more_and_more_rarely() -> None:
    peer, rests = PeerState(), []
    for number in range(8):
        peer.answered(evaluation(1.0, 1, float(number)))
        rests.append(peer.pause_left)
    assert rests == [0, 2, 4, 8, 16, 16, 16, 16]
    peer.answered(evaluation(2.0, 2, 9.0))
    assert peer.pause_left == 0


def test_questions_say_how_many_iterations_have_ended() -> None:
    """As answers do, or whoever hears both would take the sender for faster than it is."""
    said: dict[tuple[str, float], tuple[int, int]] = {}  # by sender and time, the first of each

    def noting(simulation: Simulation) -> None:
        send = simulation.network.send

        def noted(envelope: Envelope) -> None:
            if isinstance(envelope.message, EvaluationRequest):
                of = next(each.actor for each in simulation.clients if each.name == envelope.sender)
                assert of is not None
                found = (envelope.message.iterations, of.iterations)
                said.setdefault((envelope.sender, envelope.message.time), found)
            send(envelope)

        simulation.network.send = noted  # type: ignore[method-assign]

    with ran(DIGITS, *WITHOUT_ROUNDS, "protocol.local_steps=2", prepare=noting):
        assert len(said) >= 18
        assert all(iterations == ended for iterations, ended in said.values())


def test_who_never_judges_this_client_is_dropped_like_one_for_which_nothing_speaks() -> None:
    """Nobody has time for client 0, whose peers it would ask for ever."""
    text = DIGITS.replace('duration = "8 s"', "iterations = 12").replace('"4 s"', '"12 iterations"')

    def silent(simulation: Simulation) -> None:
        for client in simulation.clients[1:]:
            client.fresh = partial(without_time, client.fresh)

    with ran(text, *WITHOUT_ROUNDS, *KEEPING, "protocol.local_steps=2", prepare=silent) as world:
        assert len(scool(world, 0).posterior.targets()) == 2
        asked = Counter(
            peer for _, sender, peer, _ in messages(world, "EvaluationRequest") if sender == "client-0"
        )
        assert sorted(asked.values())[:3] == [3, 3, 3]


KEEPING = ("protocol.keep=0.4", "protocol.keep_after=3")


def without_time(fresh: Callable[[], Client]) -> Client:
    made = fresh()
    assert isinstance(made, SCooLAsynchronous)
    evaluated = made.evaluations.evaluated

    async def without_loss(
        request: EvaluationRequest, sender: str, latest: Publication | None = None
    ) -> PeerEvaluation:
        return await evaluated(replace(request, params=None), sender, latest)

    made.evaluations.evaluated = without_loss  # type: ignore[method-assign]
    return made


def test_a_weight_that_is_not_known_is_not_told() -> None:
    """0 would say that there is no edge, which parts blocks before anything speaks for it."""
    with ran(DIGITS, *WITHOUT_ROUNDS, "protocol.local_steps=2", "protocol.keep=1.0") as world:
        prior = scool(world, 0).posterior.prior
        assert isinstance(prior, BlockPrior)
        assert prior.beliefs("client-1").weight == prior.weights["client-1"] > 0
        scool(world, 0).peer_changed("client-1", up=False)
        assert prior.beliefs("client-1").weight is None
        prior.receive("client-1", Beliefs(None, np.array([0.5, 0.5])))
        assert "client-1" not in prior.incoming
        prior.infer({"client-1": 1.0}, 0.0)
        assert np.isfinite(prior.membership).all()


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_an_e_step_costs_a_twentieth_of_the_training(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In gradients; that so few peers are asked shows here with twelve clients."""
    monkeypatch.setattr(peer_evaluation, "ASKED_LEAST", 1)
    text = FOUR_ROUNDS.replace("count = 4", "count = 12").replace("steps = 4", "steps = 180")
    options = ("protocol.name=scool", f"protocol.mode={mode}", "protocol.local_steps=60")
    with ran(text, *options) as world:
        for client in world.clients:
            of = scool(world, client.index)
            assert 9 * of.evaluations.cost <= 0.05 * 60 < 10 * of.evaluations.cost
            asked = [of.posterior.known[peer].times_asked for peer in of.peers]
            assert sum(asked) <= 3 * 9 and min(asked) >= 1, "in turn all are asked"


PRIORS = ("sbm", "attention", "mmsbm", "dirac")
GROUPS = DIGITS.replace(
    'partition = { kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }',
    'partition = { kind = "disjoint-clusters", clusters = 2, samples_per_client = 30 }',
).replace("count = 6", "count = 8")
LEARNING = (
    "protocol.local_steps=5",
    "protocol.judged_on=train",
    "training.batch_size=10",
    "devices.step_time=50 ms",
    "run.duration=12 s",
    "network.latency=25 ms",
)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("gradients", ["first-order", "exact"])
def test_every_prior_survives_churn_and_losses(prior: str, mode: str, gradients: str) -> None:
    with ran(
        LOSSY,
        "protocol.name=scool",
        f"protocol.mode={mode}",
        f"protocol.prior={prior}",
        f"protocol.cross_gradients={gradients}",
        "protocol.patience=700 ms",
        "protocol.keep_after=2",
        "protocol.keep=0.5",
    ) as world:
        assert [client.index for client in world.clients_up] == [0, 1, 2, 3, 5]
        assert np.isfinite(np.stack([learner(world, k.index).params.numpy() for k in world.clients_up])).all()


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        ("protocol.prior=sbm",),
        ("protocol.prior=mmsbm",),
        ("protocol.prior=attention", "protocol.aggregation=shares", "protocol.temperature=0.5"),
    ],
    ids=lambda settings: settings[0],
)
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_groups_without_a_common_class_are_found(mode: str, settings: tuple[str, ...]) -> None:
    lossy = ("network.loss=0.1", "network.link=datagram")
    with ran(
        GROUPS,
        "protocol.name=scool",
        f"protocol.mode={mode}",
        *settings,
        *LEARNING,
        *lossy,
        "protocol.keep=0.5",
    ) as world:
        weights = graph(world)
    group = np.arange(8) // 4
    inside = weights[group[:, None] == group].sum() / weights.sum()
    assert inside > 0.95


def test_the_dead_weigh_nothing_and_newcomers_find_their_group() -> None:
    comings = churn("crash", 0, "4 s") + churn("join", 7, "5 s")
    with ran(
        GROUPS + comings, *WITHOUT_ROUNDS, *LEARNING, "protocol.keep=0.5", "protocol.patience=1 s"
    ) as world:
        weights = graph(world)
        assert np.all(weights[:, 0] == 0)
        assert weights[7, 4:7].min() > 0.5 and weights[7, :4].max() < 0.1
        assert weights[4:7, 7].min() > 0.5 and weights[1:4, 7].max() < 0.1


def test_a_slow_client_is_held_up_by_nobody_and_holds_nobody_up() -> None:
    slow = "devices.override=[{clients=[2], slowdown=20}]"
    # An answer costs a third of a step at most: alone, client 2 would do as many iterations, but for the own.
    with ran(GROUPS, *WITHOUT_ROUNDS, *LEARNING, slow) as world:
        done = [client.iterations for client in world.clients]
    with ran(GROUPS, *WITHOUT_ROUNDS, *LEARNING, slow, "protocol.alone=true") as world:
        alone = [client.iterations for client in world.clients]
    assert done[2] >= 0.5 * alone[2]
    assert min(done[:2] + done[3:]) >= 10 * done[2]


def test_estimates_of_b_and_alpha_agree_in_the_end() -> None:
    with ran(GROUPS, *WITHOUT_ROUNDS, *LEARNING, "protocol.keep=1.0", "protocol.learn_after=5") as world:
        estimates = np.stack([scool(world, i).posterior.prior.probabilities for i in range(8)])  # type: ignore[union-attr]
    assert np.abs(estimates - estimates.mean(axis=0)).max() < 0.25
    assert np.abs(estimates.mean(axis=0) - [[0.8, 0.2], [0.2, 0.8]]).max() > 0.05

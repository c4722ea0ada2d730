"""Whatever is lost costs round trips: nothing stays locked, and all go on as if nothing had been lost.

A step takes 0.5 s and a message 0.25 s, so that a reminder and its answer take 0.5 s.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.message import Envelope
from protocols.cobo.asynchronous import CoBoAsynchronous, PairState
from protocols.cobo.messages import PairRequest
from protocols.decentralized.cga import CGAInPairs
from protocols.decentralized.dada import Dada
from protocols.decentralized.dpsgd import ADPSGD
from protocols.decentralized.meta_l2c import MetaL2CAsynchronous
from protocols.federico.asynchronous import FedericoAsynchronous
from protocols.framework.client import Client
from protocols.mapl.messages import KnowledgeWanted
from protocols.scool.asynchronous import SCooLAsynchronous
from protocols.scool.messages import Shared
from protocols.shared.server_rounds import RoundSettings
from sim.core.simulation import Simulation
from sim.scenario.protocol_lookup import list_protocols, load_protocol
from tests.draws import examples
from tests.lists import require_listed
from tests.protocols.test_mapl import CODE, WORLD, Still, shares, two_clusters
from tests.protocols.test_survival import RANKS
from tests.protocols.worlds import DIGITS, QUADRATIC, churn, learner, messages, params, ran, start_from

__all__ = ["Still"]  # found by its name in this module

PATIENCE_S = 40.0
PATIENCE = f"protocol.patience={PATIENCE_S} s"
PARTS = (
    DIGITS.replace('"logistic-regression"', '"decoupled"\nbackbones = ["small-mlp"]\nfeatures = 4')
    .replace("count = 6", "count = 4")
    .replace("batch_size = 4", "batch_size = 8")
)
ITERATIONS = 4
SLOW = {"mapl": 4, "spdb": 4, "meta-l2c": 2, "scool, mmsbm": 3, "scool, attention": 3}
"""Examples for those."""
LONG = (f"run.iterations={ITERATIONS}", "run.duration=1000 s", "run.evaluate_every=1000 s", PATIENCE)
ROUNDS = ("protocol.mode=synchronous", *LONG)
DISTRIBUTED = {
    "cobo": (
        QUADRATIC,
        "data.clusters=2",
        "protocol.name=cobo",
        "protocol.gamma=0.05",
        "protocol.sampling_scale=2.0",
        *ROUNDS,
    ),
    "dpsgd": (QUADRATIC, "data.clusters=4", "protocol.name=dpsgd", *ROUNDS),
    "dfedavgm": (QUADRATIC, "data.clusters=4", "protocol.name=dfedavgm", "training.momentum=0.5", *ROUNDS),
    "cga": (QUADRATIC, "data.clusters=4", "protocol.name=cga", *ROUNDS),
    "spdb": (PARTS, "protocol.name=spdb", *ROUNDS[1:]),
    "federico": (
        *(QUADRATIC, "data.clusters=4", "protocol.name=federico", "protocol.losses=mean"),
        *("protocol.neighbours=4", "protocol.local_steps=1", *ROUNDS),
    ),
    "federated-clustering": (QUADRATIC, "data.clusters=2", "protocol.name=federated-clustering", *ROUNDS[1:]),
    "validation-trust": (
        *(QUADRATIC, "data.clusters=2", "protocol.name=validation-trust", "protocol.losses_on=train"),
        *ROUNDS[1:],
    ),
    "meta-l2c": (
        *(DIGITS, "protocol.name=meta-l2c", "clients.count=4", "data.validation_share=0.25"),
        *("data.partition.samples_per_client=12", "protocol.local_steps=1", *ROUNDS),
    ),
    **{
        f"scool, {prior}": (
            *(QUADRATIC, "data.clusters=2", "protocol.name=scool", f"protocol.prior={prior}"),
            *("protocol.local_steps=1", "protocol.judged_on=train", "protocol.keep=1.0", *ROUNDS),
            *("protocol.learn_prior=false", "protocol.encoder_rate=1e-12"),  # what others have a part in
        )
        for prior in ("dirac", "sbm", "mmsbm", "attention")
    },
    "mapl": (*WORLD, f"protocol.name={__name__}:Still", *ROUNDS, "clients.count=4", "protocol.warm_up=2"),
}
SERVED: dict[str, tuple[str, ...]] = {
    "clustered-fl": (QUADRATIC, "data.clusters=2"),
    "ditto": (QUADRATIC, "data.clusters=4", "protocol.personal_steps=1"),
    "fedavg": (QUADRATIC, "data.clusters=4"),
    "fedavg-plus": (QUADRATIC, "data.clusters=4"),
    "scaffold": (QUADRATIC, "data.clusters=4"),
    "fedem": (DIGITS, "training.batch_size=8"),
    "fedfomo": (QUADRATIC, "data.clusters=2", "protocol.losses_on=train", "protocol.epsilon=0"),
    "flt": (DIGITS, "protocol.embedding=1"),  # coded in no time beside a step
    "ifca": (DIGITS,),
    "oracle": (DIGITS,),
    "fedproto": (PARTS,),
    "fedclassavg": (PARTS,),
    "fedsim": (PARTS,),
    "pfedsim": (PARTS, "protocol.warm_up=1"),
    "fedper": (PARTS,),
    "lg-fedavg": (PARTS, "protocol.warm_up=1"),
    "q-ffl": (QUADRATIC, "data.clusters=4"),
    "afl": (QUADRATIC, "data.clusters=4"),
    "pfedme": (QUADRATIC, "data.clusters=4", "protocol.personal_steps=1"),
    "per-fedavg": (QUADRATIC, "data.clusters=4", "protocol.hessian=none"),
    "pfedhn": (QUADRATIC, "data.clusters=4"),
    "flexlora": (DIGITS, *RANKS),
    "flora": (DIGITS, *RANKS),
}
ROUND_S = {"ditto": 1.5, "fedem": 11 / 6, "fedfomo": 11 / 6, "ifca": 5 / 3, "per-fedavg": 2.0}
"""How long a round takes: at most 7/6 s, where it is more than a step, or more than a loss beside it."""
NOTHING_REPEATED = (
    *("local", "gossip", "el-oracle"),  # the next message makes up for a lost one
    *("fedasync", "fedbuff"),  # tests/protocols/test_async_servers.py
    "learn-to-collaborate",  # tests/protocols/test_l2c_churn.py
    "mapl-plus",  # repeats as its base class, which "mapl" is a test of
)
"""Methods whose rounds are not repeated until all have the same models, or that other files test."""


@contextmanager
def world(
    *scenario: str,
    lost: Collection[int] = (),
    of: Callable[[Envelope], bool] = lambda envelope: True,
    prepare: Callable[[Simulation], object] = lambda simulation: None,
) -> Iterator[Simulation]:
    """A world that has run to its end; those messages `of` all are lost whose numbers are in `lost`."""

    def losing(simulation: Simulation) -> None:
        network, send, numbers = simulation.network, simulation.network.send, count()

        def lossy(envelope: Envelope) -> None:
            if not of(envelope) or next(numbers) not in lost:
                send(envelope)

        network.send = lossy  # type: ignore[method-assign]
        prepare(simulation)

    with ran(*scenario, prepare=losing) as simulation:
        yield simulation


def is_repeated(envelope: Envelope) -> bool:
    """SCooL's sums over all clients are not: what is lost of them is made up for in time."""
    return not isinstance(envelope.message, Shared)


def models_at_the_end(*scenario: str, lost: Collection[int] = ()) -> tuple[np.ndarray, float, int]:
    """Everybody's model after its last iteration, the virtual time when all had it, and messages sent."""
    last: dict[str, np.ndarray] = {}

    def noting(simulation: Simulation) -> None:
        for client in simulation.clients:
            client.fresh = partial(noted, client.fresh)

    def noted(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        finish = made._finish_iteration

        def finished() -> None:
            if made.iterations == ITERATIONS - 1:
                last[made.name] = made.params.numpy()
            finish()

        made._finish_iteration = finished  # type: ignore[method-assign]
        return made

    with world(*scenario, lost=lost, of=is_repeated, prepare=noting) as simulation:
        values = np.concatenate([last[client.name] for client in simulation.clients])  # ranks may differ
        return values, simulation.loop.time(), simulation.network.counts.sent


def some_of(numbers: int, most: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, numbers - 1), max_size=most)


def costs_s(lost: int) -> float:
    """What so many losses can cost at most, be they all in one wait or each in one of its own.

    A neighbor whose model is overdue is reminded after a second, after a quarter of the patience if none of
    three has come in the first round; again after 1, 2, 4 s, ... (RFC 6298, as long as nothing is known); and
    the answer takes 0.5 s.
    """
    first_s = PATIENCE_S / 4 if lost >= 3 else 0.0
    return first_s + 1.5 * lost + 2.0**lost - 1


def test_every_method_is_covered() -> None:
    of_rounds = [
        name for name in list_protocols() if issubclass(load_protocol(name).found.Settings, RoundSettings)
    ]
    require_listed(of_rounds, SERVED, f"SERVED in {__file__}")
    without = [name.partition(",")[0] for name in (*DISTRIBUTED, *WITHOUT_ROUNDS)]
    where = f"SERVED, DISTRIBUTED, WITHOUT_ROUNDS or NOTHING_REPEATED in {__file__}"
    require_listed(list_protocols(), (*SERVED, *without, *NOTHING_REPEATED), where)


# --- rounds -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.hypothesis
@pytest.mark.parametrize("method", DISTRIBUTED)
def test_rounds_end_as_if_nothing_had_been_lost(method: str) -> None:
    """The same models: each has mixed what belongs to the round, and nobody missed one."""
    expected, calm_s, sent = models_at_the_end(*DISTRIBUTED[method])

    @examples(SLOW.get(method, 8))
    @given(some_of(sent, most=4))
    @example({0, 1, 2})  # the whole first announcement of a client
    def whatever_is_lost(lost: set[int]) -> None:
        found, end_s, _ = models_at_the_end(*DISTRIBUTED[method], lost=lost)
        np.testing.assert_allclose(found, expected, atol=3e-5)
        # Who has missed a question of SCooL asks for it, and then judges the model, behind a step perhaps.
        more_s = 1.25 * len(lost) if method.startswith("scool") else 0.0
        assert end_s <= calm_s + costs_s(len(lost)) + more_s

    whatever_is_lost()


def end_s(*lost: int) -> float:
    """When a run of D-PSGD ends that takes 2 s without loss."""
    with world(*DISTRIBUTED["dpsgd"], lost=lost) as simulation:
        return simulation.loop.time()


# Of round 1 client 1 lacks the model of client 0. At 1.0 s the others go on; it reminds client 0 at 2.0 s.
LOST, LOST_NEXT, REMINDER, ANSWER = 12, 24, 33, 34


def test_a_lost_model_costs_a_second_and_a_round_trip_and_further_ones_hardly_more_than_that() -> None:
    assert end_s() == 2.0
    assert end_s(LOST) == 2.0 + 1.0 + 0.5
    assert end_s(LOST, LOST_NEXT) == pytest.approx(2.0 + 1.5 + 0.001 + 0.5)


def test_a_lost_reminder_is_repeated_and_so_is_a_lost_answer() -> None:
    assert end_s(LOST, REMINDER) == end_s(LOST, ANSWER) == 2.0 + 1.0 + 1.0 + 0.5


def test_who_has_yet_to_get_there_answers_no_reminder() -> None:
    slow = "\n[[devices.override]]\nclients = [3]\nslowdown = 20\n"
    with world(QUADRATIC + slow, "protocol.name=dpsgd", *ROUNDS, "run.iterations=2") as calm:
        # In round 1 the others wait for it from 1 s to 10.25 s. At the end all have announced round 2.
        assert len(messages(calm, "RepeatRequest")) > 0
        assert len(messages(calm, "RoundModel")) == 12 + 12 + 12


# --- a server -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.hypothesis
@pytest.mark.parametrize("method", SERVED)
def test_a_servers_rounds_end_as_if_nothing_had_been_lost(method: str) -> None:
    """All are in each round, with the same models: a lost task or answer is asked for again."""
    round_s = ROUND_S.get(method, 7 / 6)
    scenario = (*SERVED[method], f"protocol.name={method}", "protocol.local_steps=1", *LONG)
    expected, calm_s, sent = models_at_the_end(*scenario)

    @examples(10 if method == "fedavg" else 2)
    @given(some_of(sent, most=2))
    @example({0})
    def whatever_is_lost(lost: set[int]) -> None:
        found, end_s, _ = models_at_the_end(*scenario, lost=lost)
        np.testing.assert_allclose(found, expected, atol=3e-5)
        # A round takes 1 s, with features (FedProto) or a loss 7/6 s. An answer is overdue after three times
        # as long (s + 4 s/2, or three times the others' s), then after twice that.
        assert end_s <= calm_s + 3.0 * round_s * (2 ** len(lost) - 1) + 1e-9

    whatever_is_lost()


# --- one that comes later -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [8, 12, 16])
def test_no_unlucky_client_holds_up_a_servers_rounds_for_long(seed: int) -> None:
    """Of 12 clients, with 30% lost. With these seeds there were ten rounds, as one was asked ever less."""
    lossy = ("network.link=datagram", "network.loss=0.3", "run.duration=30 s", "run.evaluate_every=30 s")
    fast = ("network.latency=20 ms", "devices.step_time=100 ms", "clients.count=12", f"run.seed={seed}")
    with ran(QUADRATIC, "protocol.name=fedavg", "protocol.local_steps=1", *lossy, *fast) as world:
        assert min([client.work.steps for client in world.clients]) >= 40


@pytest.mark.long
@examples(12)
@given(some_of(10, most=3))
@example({3, 4, 5})  # all its questions
@example({6, 7, 8})
def test_a_newcomer_has_a_model_and_takes_part(lost: set[int]) -> None:
    """Of the first messages from and to it: greetings, questions, answers, models."""
    text = QUADRATIC + churn("join", 3, "2.1 s")
    scenario = ("protocol.name=dpsgd", "protocol.mode=synchronous", PATIENCE, "clients.newcomers=mean")
    with world(
        text,
        *scenario,
        "run.duration=30 s",
        lost=lost,
        of=lambda envelope: "client-3" in (envelope.sender, envelope.receiver),
    ) as lossy:
        assert lossy.observer.metrics.latest("models_at_start")["client-3"] == 3
        assert all(len(learner(lossy, index).peers) == 3 for index in range(4))
        rounds = [learner(lossy, index).rounds.number for index in range(4)]  # type: ignore[attr-defined]
        assert max(rounds) - min(rounds) <= 1
        assert min(rounds) >= 2 * (30 - 1.5 - costs_s(len(lost)))


# --- asynchronous forms -------------------------------------------------------------------------------------

EXCHANGES = (
    *(QUADRATIC, "protocol.name=dpsgd", "protocol.mode=asynchronous", "clients.count=2", PATIENCE),
    *("training.learning_rate=1e-30", "run.duration=50 s", "run.evaluate_every=50 s"),
)


@pytest.mark.long
@examples(8)
@given(some_of(12, most=3))
def test_an_exchange_moves_both_sides_once(lost: set[int]) -> None:
    """The mean stays where it was, and both meet there: of four attempts one gets through."""
    waits_s: list[float] = []
    seen: list[np.ndarray] = []

    def looking(simulation: Simulation) -> None:
        start_from(simulation, np.array([[1.0, 2.0, 3.0], [5.0, -2.0, 1.0]]))
        for client in simulation.clients:
            client.fresh = partial(timed, client.fresh)
        # Between an exchange's begin, at a multiple of 0.5 s, and its first effect.
        simulation.loop.call_at_observer(45.125, lambda: seen.append(params(simulation)))

    def timed(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        assert isinstance(made, ADPSGD)
        exchange = made.pairs.exchange

        async def exchanged(peer: str) -> None:
            begin_s = made.now
            await exchange(peer)
            waits_s.append(made.now - begin_s)

        made.pairs.exchange = exchanged  # type: ignore[method-assign]
        return made

    with world(*EXCHANGES, lost=lost, prepare=looking) as lossy:
        assert [learner(lossy, index).iterations for index in range(2)] == [100, 100]
        np.testing.assert_allclose(seen[0], [[3.0, 0.0, 2.0]] * 2, atol=1e-5)
        # Overdue after a quarter of the patience, before anything is known, and then twice as long, ...
        assert max(waits_s) <= 0.5 + PATIENCE_S / 4 * (2 ** len(lost) - 1)
        assert waits_s.count(0.5) > 40


@pytest.mark.long
@examples(10)
@given(some_of(60, most=12))
@example({0, 1, 2, 3, 4, 5})
def test_the_ends_of_a_pair_agree_again_and_every_sampled_update_is_made(lost: set[int]) -> None:
    """CoBo: nothing is locked for longer than three time limits, the first of which is three round trips."""
    waits: list[tuple[float, float]] = []

    def looking(simulation: Simulation) -> None:
        for client in simulation.clients:
            client.fresh = partial(timed, client.fresh)

    def timed(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        assert isinstance(made, CoBoAsynchronous)
        update = made.update_pair

        async def updated(peer: str, pair: PairState) -> None:
            begin_s, limit_s = made.now, made.round_trips.limit_s(peer, PairRequest)
            await update(peer, pair)
            waits.append((made.now - begin_s, limit_s))

        made.update_pair = updated  # type: ignore[method-assign]
        return made

    scenario = (QUADRATIC, "clients.count=2", "protocol.name=cobo", "protocol.exchange=sampled", PATIENCE)
    times = ("run.duration=90 s", "run.evaluate_every=90 s", "protocol.sampling_scale=0.5")
    with world(*scenario, *times, lost=lost, prepare=looking) as lossy:
        ends = [learner(lossy, index) for index in range(2)]
        assert all(isinstance(end, CoBoAsynchronous) for end in ends)
        pairs = [pair for end in ends for pair in end.known.values()]  # type: ignore[attr-defined]
        weights = [float(w) for end in ends for w in end.pairs.known().values()]  # type: ignore[attr-defined]
        assert max(pair.owed for pair in pairs) <= 3  # of ten that it would keep
        ledgers = [pair.ledger for pair in pairs]
        assert abs(ledgers[0].made - ledgers[1].taken) <= 1  # a result may be on its way
        assert abs(ledgers[1].made - ledgers[0].taken) <= 1
        if ledgers[0].steps_in_all == ledgers[1].steps_in_all:
            assert weights[0] == pytest.approx(weights[1], abs=1e-6)
        assert min(ledger.made for ledger in ledgers) >= 8
    # Behind an answer comes the asker's own gradient, which waits for a step and for one that it lends.
    assert all(wait_s <= 3 * limit_s + 2.0 for wait_s, limit_s in waits)


WITHOUT_ROUNDS = {
    "cga": (QUADRATIC, "data.clusters=3", "protocol.name=cga", "protocol.mode=asynchronous"),
    "federico": (QUADRATIC, "protocol.name=federico", "protocol.losses=mean", "protocol.local_steps=1"),
    "dada": (QUADRATIC, "protocol.name=dada", "protocol.graph_every=2", "data.curvatures=[1.0]"),
    "meta-l2c": (
        *(DIGITS, "protocol.name=meta-l2c", "data.validation_share=0.25", "protocol.local_steps=1"),
        *("protocol.mode=asynchronous", "data.partition.samples_per_client=12"),
    ),
    **{
        f"scool, {prior}": (
            *(QUADRATIC, "protocol.name=scool", "protocol.local_steps=1", "protocol.judged_on=train"),
            *(f"protocol.prior={prior}", "protocol.keep=1.0"),
        )
        for prior in ("dirac", "sbm", "mmsbm", "attention")
    },
}


@pytest.mark.long
@pytest.mark.hypothesis
@pytest.mark.parametrize("method", WITHOUT_ROUNDS)
def test_without_rounds_nothing_is_locked_and_all_hear_of_each_other_again(method: str) -> None:
    """A question is over within three time limits; then as much is done as if nothing had been lost."""
    waits: list[tuple[float, float]] = []

    def looking(simulation: Simulation) -> None:
        for client in simulation.clients:
            client.fresh = partial(timed, client.fresh)

    def timed(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        ask = made.ask

        async def asked(peer: str, message: object, *, timeout: float, attempts: int | None = 1) -> object:
            begin_s, limit_s = made.now, made.round_trips.limit_s(peer, type(message))
            try:
                return await ask(peer, message, timeout=timeout, attempts=attempts)
            finally:
                if attempts == 2:  # more only where nothing waits for the answer
                    waits.append((made.now - begin_s, limit_s))

        made.ask = asked  # type: ignore[method-assign]
        return made

    text, *options = WITHOUT_ROUNDS[method]
    scenario = (text, *options, PATIENCE, "clients.count=3", "run.duration=60 s", "run.evaluate_every=60 s")
    with world(*scenario) as calm:
        done = [client.iterations for client in calm.clients]

    @examples(1)
    @given(some_of(40, most=12))
    @example(set(range(12)))
    def whatever_is_lost(lost: set[int]) -> None:
        waits.clear()
        with world(*scenario, lost=lost, prepare=looking) as lossy:
            ends = [learner(lossy, index) for index in range(3)]
            assert all(len(one.peers) == 2 for one in ends)
            for one, calm_done in zip(ends, done, strict=True):
                assert one.iterations >= 0.8 * calm_done
            assert_agreement(ends)
        # The limit is that of the beginning; answers wait for a device that is at a step, or at two.
        assert all(wait_s <= 3 * limit_s + 2.0 for wait_s, limit_s in waits)

    whatever_is_lost()


def assert_agreement(ends: Sequence[Client]) -> None:
    """Both ends of each pair have the same of it, or have heard of each other lately."""
    for one in ends:
        for other in ends:
            if one is other:
                continue
            if isinstance(one, SCooLAsynchronous):
                evaluation = one.posterior.known[other.name].evaluation
                assert evaluation is not None and one.now - evaluation.time < 15.0
            if isinstance(one, Dada) and isinstance(other, Dada):
                versions = [one.edges[other.name].version, other.edges[one.name].version]
                assert abs(versions[0] - versions[1]) <= 1  # the last may be on its way
            if isinstance(one, FedericoAsynchronous):
                assert one.collaborators.table.records[other.name].tried
            if isinstance(one, CGAInPairs):
                assert other.name in one.crossed
            if isinstance(one, MetaL2CAsynchronous):
                assert other.name in one.shares


@pytest.mark.long
@examples(5)
@given(some_of(120, most=8))
def test_neighbours_part_whatever_is_lost(lost: set[int]) -> None:
    """MAPL: who goes on sending to one that has dropped it is told once more."""
    with world(
        *WORLD,
        f"protocol.name={__name__}:Still",
        "protocol.mode=asynchronous",
        "protocol.warm_up=2",
        *CODE,
        "run.iterations=12",
        lost=lost,
        prepare=two_clusters,
    ) as lossy:
        same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
        np.testing.assert_array_equal(shares(lossy) > 0, same)


@pytest.mark.parametrize(("lost", "again"), [({0}, [10.1]), ({1}, []), ({0, 5}, [14.1])])
def test_a_newcomers_lost_question_is_asked_again(lost: set[int], again: list[float]) -> None:
    """Of its first ones, to the clients 0 to 4 at 8.1 s; it looks after each pass of 1 s.

    The others' answers have come within 0.5 s, so that this one is overdue after 1.5 s, and then 3 s.
    """
    with world(
        WORLD[0].replace("iterations = 6", 'duration = "20 s"') + churn("join", 5, "8.1 s"),
        f"protocol.name={__name__}:Still",
        "protocol.mode=asynchronous",
        "protocol.warm_up=99",
        PATIENCE,
        lost=lost,
        of=lambda envelope: isinstance(envelope.message, KnowledgeWanted),
    ) as lossy:
        asked = [time_s for time_s, _, to, _ in messages(lossy, "KnowledgeWanted") if to == "client-0"]
        assert asked == pytest.approx(again if 0 in lost else [8.1])

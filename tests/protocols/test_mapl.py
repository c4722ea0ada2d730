"""MAPL: against a lockstep of algorithm 3, by hand, and what travels when, and who stays a neighbor."""

from collections import Counter

import numpy as np
import pytest
from typing_extensions import override

from protocols.decentralized.mapl_plus import MaplPlus
from protocols.framework.vectors import Vector
from protocols.mapl.graph_learning import AUTHORS_CODE, CollaborationWeights, GraphLearning, learn_weights
from protocols.mapl.method import MAPL, MAPLAsynchronous, MaplClient
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.decoupled import (
    CLASSES,
    DECOUPLED,
    FEATURES,
    HEAD,
    TWO_BACKBONES,
    columns,
    initial,
    model,
    samples,
    trained,
)
from tests.protocols.worlds import at, churn, learner, make, messages, ran

PROTOTYPES = CLASSES * FEATURES
# One pass is two steps of all samples: 1 s. A message takes 0.25 s.
WORLD = (
    DECOUPLED.replace('duration = "60 s"', "iterations = 6").replace(
        "batch_size = 2000", "batch_size = 2000"
    ),
    'model.initialisation="independent"',
)
PLUS = ("protocol.name=mapl-plus", 'model.initialisation="shared-backbone"')
CODE = ("protocol.similarity=per-class", "protocol.degree_gradient=false", "protocol.graph_step=sign")


class Idle(MaplClient):
    """Two clusters by construction: nobody learns anything, heads and prototypes stay what they are made."""

    @override
    async def train(self, *args: object, **options: object) -> Vector:
        await self.sleep(1.0)
        return self.params - self.params


class StillAsynchronous(Idle, MAPLAsynchronous):
    """Without rounds."""


class Still(Idle, MAPL):
    """In rounds."""

    asynchronous = StillAsynchronous


class Slow(MaplClient):
    """As `Still`, but client 0 takes twenty times as long."""

    @override
    async def train(self, *args: object, **options: object) -> Vector:
        await self.sleep(20.0 if self.name == "client-0" else 1.0)
        return self.params - self.params


class Straggler(Slow, MAPLAsynchronous):
    """Without rounds."""


class Blind(StillAsynchronous):
    """Nobody is in its view, though they are there."""

    @override
    def is_peer(self, name: str) -> bool:
        return False


def mapl(world: Simulation, index: int) -> MaplClient:
    found = learner(world, index)
    assert isinstance(found, MaplClient)
    return found


def shares(world: Simulation) -> np.ndarray:
    """Everybody's weights, [clients, clients], the own ones included."""
    names = [client.name for client in world.clients]
    there = [client.actor is not None for client in world.clients]
    of = [mapl(world, i).neighbours.shares if there[i] else {} for i in range(len(names))]
    rows = np.array([[own.get(name, 0.0) for name in names] for own in of])
    return rows + np.diag(1.0 - rows.sum(axis=1))


def two_clusters(world: Simulation) -> None:
    """Give clients with even and odd numbers heads of their own kind, in every life."""
    rng = np.random.default_rng(7)
    kinds = rng.normal(size=(2, HEAD)).astype(np.float32)
    for client, row in zip(world.clients, initial_of(world), strict=True):
        noise = 0.2 * rng.normal(size=HEAD).astype(np.float32)
        row[client.compute.settings.architecture.part("head")] = kinds[client.index % 2] + noise
        client.compute._initial = world.engine.vector(to_tensor(row))


def initial_of(world: Simulation) -> list[np.ndarray]:
    return [client.compute.initial().numpy() for client in world.clients]


def to_tensor(row: np.ndarray):  # type: ignore[no-untyped-def]
    import torch

    return torch.from_numpy(row)


@pytest.mark.long
@pytest.mark.parametrize("how", [GraphLearning(learning_rate=0.5), AUTHORS_CODE], ids=["paper", "code"])
def test_rounds_are_algorithm_3(how: GraphLearning) -> None:
    """PML by autograd, CGL, and the mixing of the prototypes, for all clients in lockstep."""
    settings = (
        f"protocol.graph_learning_rate={how.learning_rate}",
        f"protocol.similarity={how.similarity}",
        f"protocol.graph_step={how.step}",
        f"protocol.degree_gradient={str(how.degree_gradient).lower()}",
    )
    with ran(
        *WORLD,
        "protocol.name=mapl",
        "protocol.mode=synchronous",
        "protocol.warm_up=3",
        *settings,
        TWO_BACKBONES,
    ) as world:
        rows, count = initial(world), len(world.clients)
        names, sizes = [client.name for client in world.clients], samples(world)
        weights = np.full((count, count), 1 / count)
        parted: list[tuple[int, int]] = []
        for number in range(1, 7):
            for i, j in parted:  # who got notice while it trained drops the sender, too
                weights[j] *= np.where(np.arange(count) == i, 0.0, 1 / (1 - weights[j, i]))
            parted = []
            rows = [trained(world, i, row, steps=1) for i, row in enumerate(rows)]
            if number >= 3:
                heads = [row[columns(world, i, "head")] for i, row in enumerate(rows)]
                for i in range(count):
                    others = [j for j in range(count) if j != i and weights[i, j] > 0]
                    learned = learn_weights(
                        CollaborationWeights(weights[i, i], {names[j]: weights[i, j] for j in others}),
                        heads[i],
                        {names[j]: heads[j] for j in others},
                        int(sizes[i]),
                        {names[j]: int(sizes[j]) for j in others},
                        CLASSES,
                        how,
                    )
                    weights[i] = [learned.peers.get(name, 0.0) for name in names]
                    weights[i, i] = learned.itself
                    parted += [(i, j) for j in others if weights[i, j] == 0]
            own = [columns(world, i, "prototypes") for i in range(count)]
            mixed = weights @ np.stack([row[part] for row, part in zip(rows, own, strict=True)])
            for row, part, prototypes in zip(rows, own, mixed, strict=True):
                row[part] = prototypes
        np.testing.assert_allclose(shares(world), weights, atol=1e-4)  # float32 heads, normalized batches
        for i, row in enumerate(rows):
            np.testing.assert_allclose(model(world, i), row, atol=3e-5)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_what_travels(mode: str) -> None:
    """MAPL's Table 7: 2 N_e (d_p K + phi) T, the head from the end of the warm-up on; never a backbone."""
    with ran(
        *WORLD, "protocol.name=mapl", f"protocol.mode={mode}", "protocol.warm_up=3", "protocol.mu1=0"
    ) as world:
        kind = "RoundKnowledge" if mode == "synchronous" else "Knowledge"
        sent = world.network.counts.by_type
        assert set(sent) == {kind}, "with weights that stay equal nobody parts"
        count, size = sent[kind]
        assert count == 6 * 5 * 6
        numbers = 6 * 5 * (2 * PROTOTYPES + 4 * (PROTOTYPES + HEAD))
        assert 4 * numbers < size < 4 * numbers + 150 * count


def test_backbones_travel_with_mapl_plus() -> None:
    with ran(*WORLD, *PLUS, "protocol.warm_up=9", "run.iterations=1") as world:
        count, size = world.network.counts.by_type["Knowledge"]
        backbone = columns(world, 0, "backbone")
        numbers = count * (PROTOTYPES + backbone.stop - backbone.start)
        assert 4 * numbers < size < 4 * numbers + 150 * count


def test_mapl_plus_mixes_backbones() -> None:
    """One round with equal weights: the mean of all prototypes and backbones, and one's own head."""
    with ran(*WORLD, *PLUS, "protocol.mode=synchronous", "run.iterations=1") as world:
        assert isinstance(learner(world, 0), MaplPlus)
        rows = [trained(world, i, row, steps=1) for i, row in enumerate(initial(world))]
        for part in ("prototypes", "backbone"):
            mean = np.mean([row[columns(world, i, part)] for i, row in enumerate(rows)], axis=0)
            for i, row in enumerate(rows):
                row[columns(world, i, part)] = mean
        for i, row in enumerate(rows):
            np.testing.assert_allclose(model(world, i), row, atol=2e-5)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_a_neighbour_without_weight_gets_nothing_more(mode: str) -> None:
    """Two clusters that the heads tell apart: after CGL knowledge passes inside them only."""
    with ran(
        *WORLD,
        f"protocol.name={__name__}:Still",
        f"protocol.mode={mode}",
        "protocol.warm_up=2",
        *CODE,
        "run.iterations=8",
        prepare=two_clusters,
    ) as world:
        same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
        np.testing.assert_allclose(shares(world), same / 3, atol=1e-9)
        kind = "RoundKnowledge" if mode == "synchronous" else "Knowledge"
        across = [
            time for time, sender, receiver, _ in messages(world, kind) if parity(sender) != parity(receiver)
        ]
        # Synchronous: two rounds of 1 s, and 0.25 s for the messages of the first one.
        parted = messages(world, "Parted")
        assert len(parted) == 6 * 3
        assert max(across) <= min(time for time, *_ in parted) + (0 if mode == "synchronous" else 1.0)


def parity(name: str) -> int:
    return int(name.removeprefix("client-")) % 2


def test_neighbours_are_those_with_any_weight() -> None:
    with ran(*WORLD, "protocol.name=mapl", "run.iterations=1") as world:
        assert mapl(world, 0).edge_threshold == 0 and mapl(world, 0).weights_are_shares


def test_old_knowledge_counts_less() -> None:
    """Asynchronous, by hand: what is 0.75 s old counts 2^-0.75 times its weight with a half-life of 1 s."""
    with ran(
        *WORLD,
        f"protocol.name={__name__}:Still",
        'protocol.half_life="1 s"',
        "run.iterations=2",
    ) as world:
        start = np.stack([row[columns(world, i, "prototypes")] for i, row in enumerate(initial(world))])
        # At 1 s nobody has anything of the others; at 2 s what they sent at 1 s.
        weight = 0.5**1.0 / 6
        mean = (1 - 5 * weight) * start + weight * (start.sum(axis=0) - start)
        got = np.stack([model(world, i)[columns(world, i, "prototypes")] for i in range(6)])
        np.testing.assert_allclose(got, mean, atol=1e-5)


def test_who_is_gone_has_no_weight_and_a_newcomer_finds_its_cluster() -> None:
    """Crash at 6.5 s; a newcomer at 8.1 s is known by its cluster a pass after its own warm-up."""
    text = WORLD[0].replace("iterations = 6", 'duration = "14 s"')
    text += churn("crash", 2, "6.5 s") + churn("join", 5, "8.1 s")
    with ran(
        text,
        WORLD[1],
        f"protocol.name={__name__}:Still",
        "protocol.warm_up=2",
        'protocol.patience="3 s"',
        *CODE,
        prepare=lambda world: (two_clusters(world), seen.append(at(world, 6.4, lambda: shares(world)))),
    ) as world:
        before = seen.pop()[0]
        expected = np.zeros((5, 5))
        for cluster in ([0, 2, 4], [1, 3]):
            expected[np.ix_(cluster, cluster)] = 1 / len(cluster)
        np.testing.assert_allclose(before[:5, :5], expected, atol=1e-9)
        after = shares(world)
        np.testing.assert_allclose(after[np.ix_([0, 4], [0, 4])], 0.5, atol=1e-9)
        assert not after[[0, 1, 3, 4, 5], 2].any(), "client 2 is gone"
        np.testing.assert_allclose(after[np.ix_([1, 3, 5], [1, 3, 5])], 1 / 3, atol=1e-9)
        assert Counter(kind for _, _, _, kind in messages(world))["KnowledgeWanted"] >= 4


seen: list[list[np.ndarray]] = []


def test_a_few_neighbours_at_first_become_the_cluster_by_exploring() -> None:
    with ran(
        *WORLD,
        f"protocol.name={__name__}:Still",
        "protocol.warm_up=1",
        "protocol.neighbours_at_start=1",
        "protocol.explore=1.5",
        *CODE,
        "run.iterations=25",
        prepare=two_clusters,
    ) as world:
        same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
        np.testing.assert_array_equal(shares(world) > 0, same)


@pytest.mark.long
def test_a_straggler_holds_up_nobody() -> None:
    """Asynchronous: the others do as much as without it, and it does its own."""
    done = {}
    for name in ("Still", "Straggler"):
        with ran(
            WORLD[0].replace("iterations = 6", 'duration = "60.5 s"'),
            f"protocol.name={__name__}:{name}",
            "protocol.warm_up=2",
            *CODE,
            prepare=two_clusters,
        ) as world:
            done[name] = [learner(world, i).iterations for i in range(6)]
            alike = shares(world)[np.ix_([1, 3, 5], [1, 3, 5])]
            np.testing.assert_allclose(alike, 1 / 3, atol=1e-9)
    assert done == {"Still": [60] * 6, "Straggler": [3] + [60] * 5}


def test_an_answer_is_not_answered() -> None:
    """Client 0 waits for 1, which gives it no weight and answers; by then 0 has counted 1 out as well."""

    def forgetting(world: Simulation) -> None:
        at(world, 0.9, lambda: mapl(world, 1).neighbours.drop("client-0"))
        at(world, 1.3, lambda: mapl(world, 0).neighbours.drop("client-1"))

    with ran(
        *WORLD,
        f"protocol.name={__name__}:Still",
        "protocol.mode=synchronous",
        "run.iterations=4",
        prepare=forgetting,
    ) as world:
        between = [m for m in messages(world, "RoundKnowledge") if {m[1], m[2]} == {"client-0", "client-1"}]
        assert [m[:3] for m in between] == [(1.0, "client-0", "client-1"), (1.25, "client-1", "client-0")]


@pytest.mark.long
@pytest.mark.parametrize("state", ["keep", "stale", "fresh"])
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_who_comes_back_finds_its_cluster_and_holds_up_nobody(mode: str, state: str) -> None:
    """Away from 5.1 s to 15.1 s, which is longer than the patience: its own silence is not the others'."""
    back = churn("rejoin", 4, "15.1 s", state)
    if state == "stale":
        back += 'backup_every = "2 s"\n'
    with ran(
        WORLD[0].replace("iterations = 6", 'duration = "40 s"') + churn("crash", 4, "5.1 s") + back,
        WORLD[1],
        f"protocol.name={__name__}:Still",
        f"protocol.mode={mode}",
        "protocol.warm_up=2",
        'protocol.patience="5 s"',
        *CODE,
        prepare=two_clusters,
    ) as world:
        same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
        np.testing.assert_allclose(shares(world), same / 3, atol=1e-9)
        rounds = [mapl(world, i).trainings for i in range(6)]
        # A round is 1.25 s; who waits for the one that crashed loses 5 s to it, once.
        assert min(rounds[:4]) >= (27 if mode == "synchronous" else 39)


def test_who_comes_back_does_not_blame_others_for_its_own_silence() -> None:
    """Away from 5.1 s to 15.1 s with a patience of 5 s; at 16.2 s, after a pass, its cluster is there."""
    seen: list[list[np.ndarray]] = []
    with ran(
        WORLD[0].replace("iterations = 6", 'duration = "17 s"')
        + churn("crash", 4, "5.1 s")
        + churn("rejoin", 4, "15.1 s"),
        WORLD[1],
        f"protocol.name={__name__}:Still",
        "protocol.warm_up=2",
        'protocol.patience="5 s"',
        *CODE,
        prepare=lambda world: (two_clusters(world), seen.append(at(world, 16.2, lambda: shares(world)))),
    ):
        np.testing.assert_allclose(seen[0][0][4], [1 / 3, 0, 1 / 3, 0, 1 / 3, 0], atol=1e-9)


@pytest.mark.parametrize("kind", ["mean", "peer"])
def test_newcomers_cannot_take_over_models_of_another_make(kind: str) -> None:
    with pytest.raises(UserError, match=f'newcomers.kind = "{kind}": copies whole models'):
        make(WORLD[0], "protocol.name=mapl", TWO_BACKBONES, f"clients.newcomers={kind}")
    make(WORLD[0], "protocol.name=mapl", f"clients.newcomers={kind}").close()


def test_neighbours_out_of_view_are_judged() -> None:
    """A sampled view forgets peers that are up; without a judgment they would keep their weight for ever."""

    with ran(
        *WORLD, f"protocol.name={__name__}:Blind", "protocol.warm_up=2", *CODE, prepare=two_clusters
    ) as world:
        same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
        np.testing.assert_allclose(shares(world), same / 3, atol=1e-9)


def test_a_neighbour_that_nobody_declares_dead_loses_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A membership that watches others only makes nothing of a suspicion."""

    def deaf(world: Simulation) -> None:
        two_clusters(world)
        monkeypatch.setattr(type(world.clients[0].membership), "suspect", lambda view, peer: None)

    with ran(
        WORLD[0].replace("iterations = 6", 'duration = "14 s"') + churn("crash", 2, "4.6 s"),
        WORLD[1],
        f"protocol.name={__name__}:Still",
        "protocol.warm_up=2",
        'protocol.patience="3 s"',
        *CODE,
        prepare=deaf,
    ) as world:
        np.testing.assert_allclose(shares(world)[np.ix_([0, 4], [0, 2, 4])], [[0.5, 0, 0.5]] * 2, atol=1e-9)


class Ringed(Slow, MAPL):
    """Neighbors as in a ring only, and a slow client: those that it does not meet are ahead by rounds."""

    asynchronous = None

    def setup(self) -> None:
        super().setup()
        number = int(self.name.removeprefix("client-"))
        near = [f"client-{(number + step) % 6}" for step in (-1, 1)]
        self.neighbours.shares = {peer: 1 / 3 for peer in sorted(near)}
        self.neighbours.started = True


def test_a_round_mixes_what_belongs_to_it() -> None:
    """Neighbors that are a round ahead have sent their next prototypes: algorithm 3 has none of it."""
    with ran(
        WORLD[0].replace("iterations = 6", 'duration = "70 s"'),
        WORLD[1],
        f"protocol.name={__name__}:Ringed",
        "protocol.mode=synchronous",
    ) as world:
        start = np.stack([row[columns(world, i, "prototypes")] for i, row in enumerate(initial(world))])
        ring = sum(np.roll(np.eye(6), step, axis=1) for step in (-1, 0, 1)) / 3
        done = [learner(world, i).iterations for i in range(6)]
        assert done[0] == 3 and max(done) > 3
        for i, count in enumerate(done):
            expected = (np.linalg.matrix_power(ring, count) @ start)[i]
            np.testing.assert_allclose(
                model(world, i)[columns(world, i, "prototypes")], expected, atol=1e-5, err_msg=str(done)
            )


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_without_graph_learning_newcomers_get_an_equal_weight(mode: str) -> None:
    text = WORLD[0].replace("iterations = 6", 'duration = "14 s"')
    with ran(
        text + churn("crash", 2, "4.6 s") + churn("join", 5, "6.1 s"),
        WORLD[1],
        f"protocol.name={__name__}:Still",
        f"protocol.mode={mode}",
        "protocol.graph_learning=false",
        'protocol.patience="3 s"',
    ) as world:
        up = [0, 1, 3, 4, 5]
        np.testing.assert_allclose(shares(world)[np.ix_(up, up)], 1 / 5, atol=1e-9)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (("client-1", "client-2"), {"client-2": 0.3 * 0.8 / 0.6, "client-3": 0.2}),
        ((), {"client-2": 0.3, "client-3": 0.2}),
        (None, {"client-2": 0.3 / 0.8, "client-3": 0.2 / 0.8}),
    ],
    ids=["some are judged", "none is left", "CGL never ran"],
)
def test_what_a_departure_leaves_goes_to_the_client_and_those_it_judged(
    judged: tuple[str, ...] | None, expected: dict[str, float]
) -> None:
    """Own weight .3, clients 2 and 3 have .3 and .2, and client 1, which goes, .2."""
    with ran(*WORLD, f"protocol.name={__name__}:Still", "run.iterations=1") as world:
        own = mapl(world, 0).neighbours
        own.shares = {"client-1": 0.2, "client-2": 0.3, "client-3": 0.2}
        own.has_judged = judged is not None
        for peer in judged or ():
            own.contacts[peer].judged = True
        own.drop("client-1")
        assert own.shares == pytest.approx(expected, abs=1e-12)
        own.drop("client-4")
        assert own.shares == pytest.approx(expected, abs=1e-12), "it had no weight"
        own.drop("client-2")
        own.drop("client-3")
        assert own.shares == {}


def test_a_straggler_is_judged_by_its_own_head_only() -> None:
    """Client 0 has no head to show in 15 s: in both clusters it keeps the sixth that it began with."""
    with ran(
        WORLD[0].replace("iterations = 6", 'duration = "15 s"'),
        WORLD[1],
        f"protocol.name={__name__}:Straggler",
        "protocol.warm_up=2",
        "protocol.new_heads=0.4",
        *CODE,
        prepare=two_clusters,
    ) as world:
        expected = np.array([[0, 5 / 18, 0, 5 / 18, 0, 5 / 18], [0, 0, 5 / 12, 0, 5 / 12, 0]])
        expected[:, 0] = 1 / 6
        for i in range(1, 6):
            np.testing.assert_allclose(shares(world)[i], expected[(i + 1) % 2], atol=1e-9)


def test_backbones_may_start_alike_and_heads_apart() -> None:
    """Each client's heads and prototypes as with independent starts, and one backbone for each make."""
    options = ("protocol.name=mapl", "run.iterations=1", TWO_BACKBONES)
    starts = {}
    for kind in ("shared", "independent", "shared-backbone"):
        with ran(*WORLD, *options, f'model.initialisation="{kind}"') as world:
            backbones = [columns(world, i, "backbone") for i in range(6)]
            starts[kind] = initial(world)
    for i, both in enumerate(starts["shared-backbone"]):
        rest = slice(backbones[i].stop, None)
        np.testing.assert_array_equal(both[backbones[i]], starts["shared"][i][backbones[i]])
        np.testing.assert_array_equal(both[rest], starts["independent"][i][rest])
        assert (both[rest] != starts["shared"][i][rest]).any()

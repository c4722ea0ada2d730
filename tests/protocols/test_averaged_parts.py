"""FedPer and LG-FedAvg: averages of a part, trained as autograd does it, and that nothing else travels."""

import numpy as np
import pytest

from sim.errors import UserError
from tests.protocols.decoupled import (
    DECOUPLED,
    HEAD,
    TWO_BACKBONES,
    columns,
    initial,
    model,
    samples,
    trained,
)
from tests.protocols.worlds import churn, learner, make, messages, ran

LG = ("protocol.name=lg-fedavg", "protocol.local_steps=2")
FEDPER = ("protocol.name=fedper", "protocol.local_steps=2", 'model.initialisation="shared-backbone"')


@pytest.mark.parametrize("weights", ["samples", "equal"])
@pytest.mark.parametrize(("method", "shared"), [(FEDPER, "backbone"), (LG, "head")])
def test_what_is_shared_is_averaged_and_the_rest_stays(
    method: tuple[str, ...], shared: str, weights: str
) -> None:
    with ran(DECOUPLED, *method, f"protocol.weights={weights}", "run.iterations=4") as world:
        rows, average = initial(world), None
        counts = samples(world) if weights == "samples" else np.ones(6)
        part = columns(world, 0, shared)
        for _ in range(4):
            for i, row in enumerate(rows):
                if average is not None:
                    row[part] = average
                rows[i] = trained(world, i, row, steps=2)
            average = np.average([row[part] for row in rows], axis=0, weights=counts).astype(np.float32)
        for i, row in enumerate(rows):
            np.testing.assert_allclose(model(world, i), row, atol=2e-5)


def test_lg_fedavg_may_begin_with_federated_averaging() -> None:
    """Whole models for two rounds, the last average once, and heads from then on."""
    with ran(DECOUPLED, *LG, "protocol.warm_up=2", "run.iterations=5") as world:
        x, counts, head = initial(world)[0], samples(world), columns(world, 0, "head")
        for _ in range(2):
            x = np.average([trained(world, i, x, steps=2) for i in range(6)], axis=0, weights=counts)
            x = x.astype(np.float32)
        rows = [trained(world, i, x, steps=2) for i in range(6)]
        for _ in range(2):
            average = np.average([row[head] for row in rows], axis=0, weights=counts)
            for i, row in enumerate(rows):
                row[head] = average
                rows[i] = trained(world, i, row, steps=2)
        for i, row in enumerate(rows):
            np.testing.assert_allclose(model(world, i), row, atol=3e-5)
        sent = world.network.counts.by_type
        assert sent["Assignment"][0] == 12 and sent["FirstLocalTask"][0] == 6
        assert set(sent) == {"Assignment", "Contribution", "FirstLocalTask", "PartTask", "TrainedPart"}


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_lg_fedavg_begins_anew_with_a_client_that_has_lost_its_backbone(state: str) -> None:
    """Although nobody noticed that it was gone."""
    away = churn("crash", 5, "9.1 s") + churn("rejoin", 5, "9.4 s", state)
    with ran(DECOUPLED + away, *LG, "protocol.warm_up=2", "run.duration=20 s") as world:
        assert learner(world, 5).local  # type: ignore[attr-defined]
        assert world.network.counts.by_type["FirstLocalTask"][0] >= (7 if state == "fresh" else 6)
        assert world.network.counts.by_type.get("NotBegun", (0,))[0] == (1 if state == "fresh" else 0)


@pytest.mark.parametrize(("method", "shared"), [(FEDPER, "backbone"), (LG, "head")])
def test_only_that_part_travels(method: tuple[str, ...], shared: str) -> None:
    with ran(DECOUPLED, *method, "run.iterations=5", 'protocol.broadcast="all"') as world:
        size = HEAD if shared == "head" else model(world, 0).size - HEAD
        sent = world.network.counts.by_type
        assert set(sent) == {"PartTask", "TrainedPart", "AveragePart"}
        assert messages(world, "TrainedPart", "delivered")
        for kind, (count, total) in sent.items():
            parts = count - 6 if kind == "PartTask" else count  # the first tasks bring none
            assert 4 * size * parts < total < 4 * size * parts + 120 * count


@pytest.mark.parametrize(("method", "shared"), [(FEDPER, "backbone"), (LG, "head")])
def test_news_reach_those_that_did_not_train(method: tuple[str, ...], shared: str) -> None:
    settings = ('protocol.broadcast="all"', "protocol.fraction=0.5", "run.duration=11 s")
    with ran(DECOUPLED, *method, *settings) as world:
        server = world.supervisor.running["server"]
        average = server.average.numpy()  # type: ignore[attr-defined]
        for i in range(6):
            np.testing.assert_array_equal(model(world, i)[columns(world, i, shared)], average)


@pytest.mark.parametrize("method", [FEDPER, (*LG, "protocol.warm_up=1")])
def test_a_client_that_crashes_is_left_out_and_comes_back(method: tuple[str, ...]) -> None:
    text = DECOUPLED + churn("crash", 3, "3.7 s") + churn("rejoin", 3, "10 s", "fresh")
    with ran(text, *method, "protocol.patience=3 s", "run.duration=30 s") as world:
        tasks = [row for row in messages(world, event="delivered") if row[2] == "client-3"]
        rounds = {row[0] for row in tasks if row[3] in ("PartTask", "FirstLocalTask", "Assignment")}
        assert min(rounds) < 3.7 and any(time_s > 10 for time_s in rounds)
        assert not any(3.7 < time_s < 10 for time_s in rounds)
        assert learner(world, 3).iterations > 2


def test_fedper_needs_a_common_start_and_alike_backbones() -> None:
    with pytest.raises(UserError, match=r"model.initialisation"):
        make(DECOUPLED, "protocol.name=fedper", 'model.initialisation="independent"')
    with pytest.raises(UserError, match="mixes whole models"):
        make(DECOUPLED, *FEDPER, TWO_BACKBONES)


def test_lg_fedavg_copes_with_different_backbones_but_not_in_a_warm_up() -> None:
    with ran(DECOUPLED, *LG, TWO_BACKBONES, "run.iterations=2") as world:
        assert model(world, 0).size != model(world, 1).size
        heads = [model(world, i)[columns(world, i, "head")] for i in range(6)]
        assert all(head.size == HEAD for head in heads)
    with pytest.raises(UserError, match="need the same backbone"):
        make(DECOUPLED, *LG, TWO_BACKBONES, "protocol.warm_up=2")

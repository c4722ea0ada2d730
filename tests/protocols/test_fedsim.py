"""FedSim and FedClassAvg: averages of heads, and that nothing else travels."""

import numpy as np
import pytest

from protocols.federated_parts.fedclassavg import FedClassAvg, FedClassAvgSettings
from protocols.shared.local_losses import ContrastiveClassifier
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
from tests.protocols.worlds import churn, learner, messages, ran

BOTH = pytest.mark.parametrize("name", ["fedsim", "fedclassavg"])
STEPS = ("protocol.local_steps=2", 'model.initialisation="independent"')


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("weights", ["samples", "equal"])
@pytest.mark.parametrize("mixed", [False, True], ids=["one backbone", "two backbones"])
def test_clients_go_on_with_the_average_head_and_their_own_backbones(
    name: str, weights: str, mixed: bool
) -> None:
    with ran(
        DECOUPLED,
        f"protocol.name={name}",
        f"protocol.weights={weights}",
        "run.iterations=4",
        *STEPS,
        *((TWO_BACKBONES,) if mixed else ()),
    ) as world:
        rows, head = initial(world), None
        assert len({row.size for row in rows}) == (2 if mixed else 1)
        counts = samples(world) if weights == "samples" else np.ones(6)
        for _ in range(4):
            for i, row in enumerate(rows):
                for part in ("head", "head_anchor") if name == "fedclassavg" else ("head",):
                    if head is not None:
                        row[columns(world, i, part)] = head
                rows[i] = trained(world, i, row, steps=2)
            heads = [row[columns(world, i, "head")] for i, row in enumerate(rows)]
            head = np.average(heads, axis=0, weights=counts).astype(np.float32)
        for i, row in enumerate(rows):
            np.testing.assert_allclose(model(world, i), row, atol=2e-5)


@BOTH
def test_only_heads_travel(name: str) -> None:
    """MAPL's Table 7: 2 M phi T."""
    with ran(DECOUPLED, f"protocol.name={name}", "run.iterations=5", 'protocol.broadcast="all"') as world:
        sent = world.network.counts.by_type
        assert set(sent) == {"PartTask", "TrainedPart", "AveragePart"}
        assert messages(world, "TrainedPart", "delivered")
        for kind, (count, size) in sent.items():
            heads = count - 6 if kind == "PartTask" else count  # the first tasks bring none
            assert 4 * HEAD * heads < size < 4 * HEAD * heads + 120 * count


@BOTH
def test_news_reach_those_that_did_not_train(name: str) -> None:
    settings = ('protocol.broadcast="all"', "protocol.fraction=0.5", "run.duration=8.5 s")
    with ran(DECOUPLED, f"protocol.name={name}", *settings) as world:
        server = world.supervisor.running["server"]
        average = server.average.numpy()  # type: ignore[attr-defined]
        for i in range(6):
            for part in ("head", *learner(world, i).parts):
                np.testing.assert_array_equal(model(world, i)[columns(world, i, part)], average)


@BOTH
def test_a_client_that_crashes_is_left_out_and_comes_back(name: str) -> None:
    text = DECOUPLED + churn("crash", 3, "1.5 s") + churn("rejoin", 3, "6.5 s", "fresh")
    with ran(text, f"protocol.name={name}", "protocol.patience=3 s", "run.duration=20 s") as world:
        rounds: dict[float, int] = {}
        for time_s, *_ in messages(world, "PartTask"):
            rounds[time_s] = rounds.get(time_s, 0) + 1
        assert list(rounds.values())[:2] == [6, 6]
        assert 5 in rounds.values() and list(rounds.values())[-1] == 6
        assert world.clients[3].actor is not None and world.clients[3].actor.iterations > 1


def test_the_objective_follows_the_settings() -> None:
    settings = FedClassAvgSettings(rho=0.5, temperature=2.0, pull="code")
    assert FedClassAvg.objective(settings) == ContrastiveClassifier(0.5, 2.0, "code")

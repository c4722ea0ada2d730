"""FedProto: averages of each class's mean features, and that nothing else travels."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch

from protocols.federated_parts.fedproto import (
    FedProto,
    FedProtoServer,
    FedProtoSettings,
    LocalPrototypes,
    PrototypeTask,
)
from protocols.shared.local_losses import FeaturePrototypes
from sim.core.simulation import Simulation
from sim.learning.engine.handles import Vector
from tests.protocols.decoupled import (
    CLASSES,
    DECOUPLED,
    FEATURES,
    TWO_BACKBONES,
    columns,
    initial,
    lone_server,
    model,
    own_data,
    trained,
)
from tests.protocols.worlds import churn, learner, make, messages, ran

FEDPROTO = ("protocol.name=fedproto", "protocol.local_steps=2", 'model.initialisation="independent"')


def class_means(world: Simulation, index: int, flat: np.ndarray) -> dict[int, tuple[int, np.ndarray]]:
    """(number of samples, mean features) of each class that a client has."""
    x, y = own_data(world, index)
    architecture = learner(world, index).compute.settings.architecture  # type: ignore[attr-defined]
    z = architecture.embed(torch.from_numpy(flat), x).features.numpy()
    return {k: (int((y == k).sum()), z[(y == k).numpy()].mean(axis=0)) for k in y.unique().tolist()}


@pytest.mark.parametrize("mixed", [False, True], ids=["one backbone", "two backbones"])
@pytest.mark.parametrize("weights", ["samples", "equal"])
def test_features_are_pulled_towards_the_average_of_those_that_have_the_class(
    weights: str, mixed: bool
) -> None:
    two = (TWO_BACKBONES,) if mixed else ()
    with ran(DECOUPLED, *FEDPROTO, f"protocol.weights={weights}", "run.iterations=4", *two) as world:
        rows = initial(world)
        assert len({row.size for row in rows}) == (2 if mixed else 1)
        for i, row in enumerate(rows):
            # Also where a client is trained alone for comparison: it knows of no classes but its own.
            assert not row[columns(world, i, "class_means")].any()
        everybody: set[int] = set()
        for _ in range(4):
            found = []
            for i, row in enumerate(rows):
                rows[i] = trained(world, i, row, steps=2)
                found.append(class_means(world, i, rows[i]))
            before = [row.copy() for row in rows]
            for k in range(CLASSES):
                own = [means[k] for means in found if k in means]
                everybody |= {len(own)}
                counts = [count if weights == "samples" else 1 for count, _ in own]
                mean = np.average([mean for _, mean in own], axis=0, weights=counts)
                for i, row in enumerate(rows):
                    start = columns(world, i, "class_means").start + k * FEATURES
                    row[start : start + FEATURES] = mean
        assert everybody - {6}, "no class is missing anywhere"
        for i, row in enumerate(before):
            np.testing.assert_allclose(model(world, i), row, atol=2e-5)


def vector(world: Simulation, *numbers: float) -> Vector:
    return world.engine.vector(torch.tensor(numbers))


@pytest.fixture
def world() -> Iterator[Simulation]:
    with closing(make(DECOUPLED, *FEDPROTO)) as made:
        yield made


def answers(world: Simulation) -> dict[str, LocalPrototypes]:
    return {
        "a": LocalPrototypes({0: vector(world, 1.0, 0.0), 2: vector(world, 5.0, 5.0)}, {0: 3, 2: 7}),
        "b": LocalPrototypes({0: vector(world, 0.0, 1.0)}, {0: 1}),
    }


@pytest.mark.parametrize(("weights", "expected"), [("samples", [0.75, 0.25]), ("equal", [0.5, 0.5])])
def test_the_average_of_a_class(world: Simulation, weights: str, expected: list[float]) -> None:
    one = lone_server(FedProtoServer, FedProtoSettings.model_validate({"weights": weights}), "a", "b")
    assert isinstance(one, FedProtoServer)
    assert one.news("a") is None
    one.combine(answers(world), 0)
    first = one.task("a", 1)
    assert isinstance(first, PrototypeTask)
    assert {k: v.tensor().tolist() for k, v in first.prototypes.items()} == {0: expected, 2: [5.0, 5.0]}
    one.combine({"b": LocalPrototypes({1: vector(world, 2.0, 2.0)}, {1: 1})}, 1)
    # What nobody had this time is kept, and what is on its way does not change.
    assert sorted(one.prototypes) == [0, 1, 2] and sorted(first.prototypes) == [0, 2]


def test_only_prototypes_travel() -> None:
    """MAPL's Table 7: 2 M d_p K T; here K are the classes that the sender has."""
    with ran(DECOUPLED, *FEDPROTO, "run.iterations=5", 'protocol.broadcast="all"') as world:
        sent = world.network.counts.by_type
        assert set(sent) == {"PrototypeTask", "LocalPrototypes", "GlobalPrototypes"}
        classes = [len(learner(world, i).compute.class_counts) for i in range(6)]
        assert min(classes) < CLASSES
        rows = {
            "PrototypeTask": CLASSES * (sent["PrototypeTask"][0] - 6),  # the first tasks bring none
            "LocalPrototypes": 5 * sum(classes),
            "GlobalPrototypes": CLASSES * sent["GlobalPrototypes"][0],
        }
        for kind, (count, size) in sent.items():
            assert 4 * FEATURES * rows[kind] < size < (4 * FEATURES + 40) * rows[kind] + 120 * count


def test_a_client_that_crashes_is_left_out_and_comes_back() -> None:
    text = DECOUPLED + churn("crash", 3, "1.5 s") + churn("rejoin", 3, "6.5 s", "fresh")
    with ran(text, *FEDPROTO, "protocol.patience=3 s", "run.duration=30 s") as world:
        rounds: dict[float, int] = {}
        for time_s, *_ in messages(world, "PrototypeTask"):
            rounds[time_s] = rounds.get(time_s, 0) + 1
        assert rounds[0.0] == 6 and 5 in rounds.values() and list(rounds.values())[-1] == 6
        assert np.abs(model(world, 3)[columns(world, 3, "class_means")]).min() > 0


def test_the_objective_follows_the_settings() -> None:
    assert FedProto.objective(FedProtoSettings(strength=0.5)) == FeaturePrototypes(0.5)

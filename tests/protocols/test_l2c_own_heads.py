"""Learning to Collaborate with backbones on the front, and a head of its own for each client."""

import numpy as np
import pytest

from protocols.framework.vectors import Vector
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import GradientFound, GradientWanted, HeadStepWanted
from protocols.learn_to_collaborate.method import CollaboratingClient
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.decoupled import columns, initial, model, trained
from tests.protocols.worlds import DIGITS, learner, make, ran

# Two clusters that call the same digits by different names.
WORLD = (
    DIGITS.replace("count = 6", 'count = 4\ntopology = "complete"')
    .replace("samples_per_client = 8", "samples_per_client = 60")
    .replace("test_samples = 10", "test_samples = 100\nvalidation_share = 0.2")
    .replace('"logistic-regression"', '"decoupled"\nbackbones = ["small-mlp"]\nfeatures = 8')
    .replace("batch_size = 4", "batch_size = 2000")
    .replace('duration = "8 s"', 'duration = "40 s"')
    .replace("250 ms", "5 ms")
    .replace("500 ms", "20 ms")
    .replace('name = "local"', 'name = "learn-to-collaborate"\nmode = "synchronous"\nhidden = [8]')
)
OWN = ('protocol.heads="own"', "protocol.search_steps=5")
QUICK = (*OWN, "protocol.rounds=3", "run.duration=4 s", "run.evaluate_every=4 s")


def client(simulation: Simulation, number: int) -> CollaboratingClient:
    found = learner(simulation, number)
    assert isinstance(found, CollaboratingClient)
    return found


def numbers(vector: Vector | None) -> np.ndarray:
    assert vector is not None
    return vector.numpy()


def test_a_head_takes_a_step_of_its_share_of_the_rate_and_only_the_backbone_is_answered_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All samples are one batch, so that the gradients are those of autograd at the models that came."""
    steps: list[tuple[str, HeadStepWanted, np.ndarray, np.ndarray, np.ndarray]] = []
    answer = LocalGradients.at

    async def watched(self: LocalGradients, wanted: GradientWanted) -> GradientFound:
        before = numbers(self.head)
        found = await answer(self, wanted)
        if isinstance(wanted, HeadStepWanted):
            steps.append((self.client.name, wanted, before, numbers(self.head), numbers(found.gradient)))
        else:
            assert wanted.on == "validation" and np.array_equal(before, numbers(self.head))
        return found

    monkeypatch.setattr(LocalGradients, "at", watched)
    with ran(WORLD, *QUICK, "protocol.head_learning_rate=0.5") as simulation:
        backbone, head = columns(simulation, 0, "backbone"), columns(simulation, 0, "head")
        assert len({name for name, *_ in steps}) > 1 and len(steps) > 3
        for name, wanted, before, after, gradient in steps:
            number = int(name.removeprefix("client-"))
            at = initial(simulation)[number].copy()
            at[backbone], at[head] = numbers(wanted.params), before
            slope = (at - trained(simulation, number, at)) / 0.1
            np.testing.assert_allclose(gradient, slope[backbone], atol=1e-4)
            np.testing.assert_allclose(after, before - 0.5 * wanted.share * slope[head], atol=1e-4)
        assert 0 < min(wanted.share for _, wanted, *_ in steps) < 1


@pytest.mark.long
def test_heads_stay_with_their_clients_and_backbones_are_mixed() -> None:
    with ran(WORLD, *QUICK, "protocol.rule=threshold", "protocol.least=0.001", "run.duration=10 s") as world:
        head = columns(world, 0, "head")
        assert [len(client(world, number).partners) for number in range(4)] == [3] * 4
        assert world.network.counts.by_type["PartnerModel"][0] > 20
        models = [model(world, number) for number in range(4)]
        backbones = [np.delete(each, head) for each in models]
        heads = [each[head] for each in models]
        start = initial(world)[0]
        for one in range(1, 4):
            apart = np.linalg.norm(backbones[one] - backbones[0])
            assert apart < 0.7 * np.linalg.norm(backbones[one] - np.delete(start, head))
        assert np.linalg.norm(heads[3] - heads[0]) > np.linalg.norm(heads[3] - start[head]), "other names"


@pytest.mark.long
def test_one_front_serves_clients_that_call_things_by_different_names() -> None:
    """With a common head what suits one half is wrong for the other; with own ones all have one backbone."""
    accuracy = {}
    options = (
        "protocol.rounds=150",
        "protocol.search_steps=5",
        "protocol.concentration=1.0",
        "protocol.hypernetwork_learning_rate=0.1",
        "protocol.head_learning_rate=0.5",
        "protocol.inside=pareto",
        "protocol.rule=threshold",
        "protocol.least=0.001",
        "run.duration=40 s",
        "run.evaluate_every=40 s",
    )
    for heads in ("common", "own"):
        with ran(WORLD, *options, f'protocol.heads="{heads}"') as world:
            latest = world.observer.metrics.latest("accuracy_of_full")
            assert len(latest) == 4
            accuracy[heads] = np.mean(list(latest.values()))
    assert accuracy["own"] > accuracy["common"] + 0.15


def test_own_heads_need_a_model_with_a_head() -> None:
    with pytest.raises(UserError, match="needs a backbone and a head"):
        make(WORLD.replace('"decoupled"\nbackbones = ["small-mlp"]\nfeatures = 8', '"mlp"'), *OWN)

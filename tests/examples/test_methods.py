"""The methods of docs/examples: each learns, and keeps what its paper says of it."""

import ast
import importlib.util
import math
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.kernel.random import stream
from tests.lists import require_listed
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, messages, params, ran, start_from

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMES = {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}
WORLD = (
    DIGITS,
    "run.duration=20 s",
    "run.evaluate_every=10 s",
    "devices.step_time=31.25 ms",
    "data.partition.samples_per_client=40",
    "data.test_samples=60",
    "data.validation_share=0.2",
    "training.learning_rate=0.3",
)


def protocol(name: str, kind: str) -> str:
    return f"protocol.name={NAMES[name]}:{kind}"


def example(name: str) -> Any:
    """The module of an example, for its functions."""
    spec = importlib.util.spec_from_file_location(name, NAMES[name])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accuracy(simulation: Simulation) -> float:
    latest = simulation.observer.metrics.latest("accuracy")
    return float(np.mean(list(latest.values())))


def bytes_of(simulation: Simulation, kind: str) -> float:
    """Of one message on average."""
    sent, total = simulation.network.counts.by_type[kind]
    return total / sent


KINDS = {
    "async_mixing": "Mixing",
    "attackers": "Attacked",
    "blackboard": "BlackboardClient",
    "choco": "Choco",
    "divshare": "DivShare",
    "distillation": "Distillation",
    "ditto": "Ditto",
    "epidemic": "Epidemic",
    "fedcs": "FedCS",
    "fedlc": "FedLC",
    "fedrod": "FedROD",
    "ifca": "IFCA",
    "int8_gossip": "Int8Gossip",
    "latest_models": "LatestModels",
    "least_available": "LeastAvailable",
    "median": "Median",
    "median_rounds": "MedianRounds",
    "oort": "Oort",
    "own_loop": "OwnLoop",
    "power_of_choice": "PowerOfChoice",
    "private_gossip": "PrivateGossip",
    "pull_gossip": "PullGossip",
    "push_sum": "PushSum",
    "smoothed_gossip": "SmoothedGossip",
    "top_k": "TopK",
}


def test_every_example_is_tested() -> None:
    require_listed(NAMES, KINDS, f"KINDS in {__file__}")


# Models that are averaged over all clients mean nothing where half of them have other labels.
AGREEING = ("data.partition.clusters=1",)
PERSONAL = ("ifca", "pull_gossip")
SHORT = ("run.duration=5 s", "run.evaluate_every=5 s")
CHOICES = ("fedcs", "least_available", "oort", "power_of_choice")
WITH_SERVER = (*CHOICES, "ditto", "fedlc", "fedrod", "ifca", "median", "top_k")
DECOUPLED = 'model={ name = "decoupled", backbones = ["small-mlp"], features = 16 }'
OPTIONS = {
    "attackers": ("protocol.attackers=1",),
    "private_gossip": ("protocol.noise_multiplier=0.02", "protocol.period=250 ms"),
    "fedrod": (DECOUPLED, "protocol.patience=4 s", "protocol.local_epochs=2"),
    "power_of_choice": ("protocol.broadcast=all", "protocol.patience=4 s"),
    "ditto": ("protocol.personal_steps=20", "protocol.patience=4 s"),
}


needs_opacus = pytest.mark.skipif(find_spec("opacus") is None, reason="opacus is not installed")
EACH = [pytest.param(name, marks=[needs_opacus] * (name == "private_gossip")) for name in KINDS]


def world_of(name: str) -> tuple[str, ...]:
    options = (protocol(name, KINDS[name]), *OPTIONS.get(name, ()))
    return (*WORLD, *options, *(() if name in PERSONAL else AGREEING))


@pytest.fixture(scope="module")
def alone() -> float:
    """The accuracy of training alone for as long."""
    with ran(*WORLD, "protocol.name=local") as simulation:
        return accuracy(simulation)


# Gossip with int8 is compared with gossip itself, `test_int8_gossip_is_gossip_up_to_rounding`.
@pytest.mark.long
@pytest.mark.parametrize("name", [each for each in EACH if each.values != ("int8_gossip",)])
def test_it_learns_more_than_alone(name: str, alone: float) -> None:
    with ran(*world_of(name)) as simulation:
        assert accuracy(simulation) > alone + 0.03


@pytest.mark.long
@pytest.mark.parametrize("name", EACH)
def test_it_goes_on_where_three_of_ten_messages_are_lost(name: str, alone: float) -> None:
    """A server waits for what is lost."""
    with ran(*world_of(name), "network.link=datagram", "network.loss=0.3") as simulation:
        assert accuracy(simulation) > (0.6 if name in WITH_SERVER else 0.9) * alone


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_SERVER)
def test_those_that_did_not_train_are_told(name: str) -> None:
    told = ("protocol.broadcast=all", "protocol.fraction=0.4", *SHORT)
    with ran(*world_of(name), *told) as simulation:
        assert not simulation.supervisor.failures
        kinds = simulation.network.counts.by_type
        assert {"ifca": "Latest", "median": "News"}.get(name, "GlobalModel") in kinds


def test_smoothed_labels_are_those_of_the_paper() -> None:
    loss = example("smoothed_gossip").SmoothedLoss(0.2)
    scores, y = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 3, 1, 1, 2])
    model = SimpleNamespace(forward=lambda parameters, x: x)
    logs = scores.double().log_softmax(1).numpy()
    smoothed = 0.8 * np.eye(4)[y.numpy()] + 0.2 / 4
    expected = -(smoothed * logs).sum(1)
    np.testing.assert_allclose(loss.each(model, {}, scores, y).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(float(loss(model, {}, scores, y)), expected.mean(), rtol=1e-5)


TWO_ROUNDS = ("protocol.rounds=2", "protocol.local_steps=5", "protocol.patience=20 s", "run.duration=60 s")


def replayed(simulation: Simulation, trained: Callable[..., np.ndarray]) -> tuple[np.ndarray, dict[int, Any]]:
    """The common model after two rounds in numpy, and the last model of each client.

    trained(client, start, x, y, counts, batches) is the training of a round.
    """
    common = simulation.clients[0].compute.initial().numpy().astype(float)
    streams = [stream(simulation.rules.seed, "actor", client.name) for client in simulation.clients]
    last: dict[int, Any] = {}
    for _ in range(2):
        shares = []
        for client, drawn in zip(simulation.clients, streams, strict=True):
            x, y = (part.numpy() for part in own_data(simulation, client.index))
            counts, size = np.maximum(np.bincount(y, minlength=10), 1), client.compute.batch_size
            passes = [drawn.permutation(len(y)) for _ in range(math.ceil(5 * size / len(y)))]
            batches = np.concatenate(passes)[: 5 * size].reshape(5, size)
            last[client.index] = trained(client.index, common, x.reshape(len(y), -1), y, counts, batches)
            shares.append((len(y), last[client.index]))
        common = sum(count * own for count, own in shares) / sum(count for count, _ in shares)
    return common, last


def slope_of(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of the mean cross-entropy for the scores [B, K]."""
    shares = np.exp(scores - scores.max(1, keepdims=True))
    return (shares / shares.sum(1, keepdims=True) - np.eye(scores.shape[1])[y]) / len(y)


def test_an_own_loop_trains_and_takes_the_time_of_its_steps() -> None:
    """Five steps of 100 ms on all samples, before the first message of 20 ms arrives."""
    short = ("devices.step_time=100 ms", "run.duration=510 ms", "run.evaluate_every=510 ms")
    with ran(*world_of("own_loop"), "network.latency=20 ms", *short) as simulation:
        x, y = (part.numpy() for part in own_data(simulation, 0))
        x = x.reshape(len(y), -1).astype(float)
        start = simulation.clients[0].compute.initial().numpy().astype(float)
        weights, bias = start[:-10].reshape(10, -1), start[-10:]
        for _ in range(5):
            slope = slope_of(x @ weights.T + bias, y)
            weights, bias = weights - 0.3 * slope.T @ x, bias - 0.3 * slope.sum(0)
        actor = simulation.clients[0].actor
        assert actor is not None
        np.testing.assert_allclose(actor.params.numpy(), [*weights.ravel(), *bias], atol=2e-6)
        assert {row[0] for row in messages(simulation)} == {0.5}


@pytest.mark.parametrize("tau", [1.0, 3.0])
def test_fedlc_equals_numpy(tau: float) -> None:
    def trained(_: int, flat: np.ndarray, x: Any, y: Any, counts: Any, batches: Any) -> np.ndarray:
        weights, bias = flat[:640].reshape(10, 64).copy(), flat[640:].copy()
        for rows in batches:
            slope = slope_of(x[rows] @ weights.T + bias - tau * counts**-0.25, y[rows])
            weights -= 0.3 * slope.T @ x[rows]
            bias -= 0.3 * slope.sum(0)
        return np.concatenate([weights.ravel(), bias])

    with ran(*world_of("fedlc"), f"protocol.tau={tau}", *TWO_ROUNDS) as simulation:
        common, _ = replayed(simulation, trained)
        for client in simulation.clients:
            np.testing.assert_allclose(learner(simulation, client.index).params.numpy(), common, atol=2e-6)


def test_fedrod_equals_numpy() -> None:
    """A fully connected backbone of 200 hidden units, 16 features; gradients by hand."""
    heads = {client: np.zeros(10 * 17) for client in range(6)}
    shapes = [(200, 64), (200,), (16, 200), (16,), (10, 16), (10,)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])

    def trained(client: int, flat: np.ndarray, x: Any, y: Any, counts: Any, batches: Any) -> np.ndarray:
        parts = [part.reshape(s).copy() for part, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
        w1, b1, w2, b2, w3, b3 = parts
        own, own_bias = heads[client][:160].reshape(10, 16), heads[client][160:]
        for rows in batches:
            before = x[rows] @ w1.T + b1
            hidden = np.maximum(before, 0)
            z = hidden @ w2.T + b2
            features = np.maximum(z, 0)
            scores = features @ w3.T + b3
            slope = slope_of(scores + np.log(counts), y[rows])
            personal = slope_of(scores + features @ own.T + own_bias, y[rows])
            of_z = (slope @ w3) * (z > 0)
            of_before = (of_z @ w2) * (before > 0)
            slopes = [of_before.T @ x[rows], of_before.sum(0), of_z.T @ hidden, of_z.sum(0)]
            slopes += [slope.T @ features, slope.sum(0)]
            for part, by in zip(parts, slopes, strict=True):
                part -= 0.3 * by
            own -= 0.3 * personal.T @ features
            own_bias -= 0.3 * personal.sum(0)
        return np.concatenate([part.ravel() for part in parts])

    with ran(*world_of("fedrod"), *TWO_ROUNDS) as simulation:
        common, _ = replayed(simulation, trained)
        for client in simulation.clients:
            found = learner(simulation, client.index)
            np.testing.assert_allclose(found.params.numpy(), common, atol=2e-6)
            np.testing.assert_allclose(found.head.numpy(), heads[client.index], atol=2e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["fedlc", "fedrod"])
def test_the_examples_of_the_page_have_at_most_40_lines_of_code(name: str) -> None:
    tree = ast.parse(NAMES[name].read_text(encoding="utf-8"))
    text = ast.unparse(ast.Module(tree.body[1:], []))  # without the docstring
    assert len([line for line in text.splitlines() if line.strip()]) <= 40


def test_what_a_method_requires_is_refused_in_its_own_words() -> None:
    wrong = (protocol("smoothed_gossip", "SmoothedGossip"), "training.optimizer=adam", *SHORT)
    with pytest.raises(UserError, match=r'SmoothedGossip" is meant to be compared under plain SGD; must be'):
        make(*WORLD, *wrong)


def test_push_sum_neither_makes_nor_loses_weight() -> None:
    """Of all shares, those on their way included; and the average of all models is that of the totals."""
    # At its end no share is on its way.
    with ran(*world_of("push_sum"), *SHORT, "network.latency=10 us", "run.duration=5.01 s") as simulation:
        learners: list[Any] = [learner(simulation, client.index) for client in simulation.clients]
        assert sum(each.weight for each in learners) == pytest.approx(len(learners), rel=1e-9)
        assert len({each.weight for each in learners}) > 1
        for each in learners:
            np.testing.assert_allclose(each.params.numpy(), each.total.numpy() / each.weight, rtol=1e-5)


def test_push_sum_averages_without_training() -> None:
    """Over one-sided links: with a learning rate of 0 everybody ends at the mean of the starts."""
    starts = np.random.default_rng(3).standard_normal((4, 3))
    still = ("training.learning_rate=1e-30", protocol("push_sum", "PushSum"), "run.duration=60 s")

    def start(simulation: Simulation) -> None:
        start_from(simulation, starts)
        for client in simulation.clients:
            client.fresh = partial(with_total, client.fresh)

    with ran(QUADRATIC, *still, prepare=start) as simulation:
        assert np.abs(params(simulation) - starts.mean(0)).max() < 1e-4


def with_total(fresh: Callable[[], Any]) -> Any:
    made = fresh()
    made.total = made.params
    return made


def test_epidemic_draws_other_peers_in_each_round() -> None:
    with ran(*world_of("epidemic"), *SHORT, "protocol.fanout=2") as simulation:
        chosen: dict[tuple[float, str], list[str]] = {}
        for time_s, sender, receiver, _ in messages(simulation, "Model"):
            chosen.setdefault((time_s, sender), []).append(receiver)
        assert all(len(set(peers)) == len(peers) == 2 for peers in chosen.values())
        of_first = {tuple(sorted(peers)) for (_, sender), peers in chosen.items() if sender == "client-0"}
        assert len(of_first) > 5  # of the 10 pairs that there are


def test_the_strength_of_ditto_pulls_towards_the_common_model() -> None:
    apart = {}
    for strength in (0, 25):
        options = (f"protocol.strength={strength}", "training.learning_rate=0.04")
        with ran(*world_of("ditto"), *options) as simulation:
            server: Any = simulation.supervisor.running["server"]
            apart[strength] = np.linalg.norm(params(simulation) - server.params.numpy(), axis=1).mean()
    print(apart)
    assert apart[25] < 0.4 * apart[0]


def test_ifca_finds_the_clusters() -> None:
    with ran(*world_of("ifca")) as simulation:
        learners: list[Any] = [learner(simulation, client.index) for client in simulation.clients]
        assert simulation.clusters is not None
        pairs = set(zip(simulation.clusters, [each.cluster for each in learners], strict=True))
        assert len(pairs) == 2 and len({model for _, model in pairs}) == 2


@pytest.mark.long
def test_int8_gossip_is_gossip_up_to_rounding() -> None:
    """The same messages at the same times. A level is a 127th of the largest number, and errors average out.

    Measured beside how far gossip got from the start: 1% apart; who trains alone is 130% apart.
    """
    gossip = (*WORLD, *AGREEING, "protocol.name=gossip")
    with (
        ran(*world_of("int8_gossip")) as coarse,
        ran(*gossip) as fine,
        ran(*WORLD, *AGREEING, "protocol.name=local") as alone,
    ):
        sent = [[row[:3] for row in messages(*of)] for of in ((coarse, "Levels"), (fine, "AgedModel"))]
        assert sent[0] == sent[1] != []
        start = learner(fine, 0).compute.initial().numpy()
        way = np.linalg.norm(params(fine) - start, axis=1)
        assert (np.linalg.norm(params(coarse) - params(fine), axis=1) < 0.05 * way).all()
        assert (np.linalg.norm(params(alone) - params(fine), axis=1) > 0.5 * way).all()


def test_int8_messages_have_a_byte_for_each_number() -> None:
    with ran(*world_of("int8_gossip")) as simulation:
        [numel] = learner(simulation, 0).params.shape
        whole = {"protocol.name=gossip"}
        assert numel <= bytes_of(simulation, "Levels") < numel + 120
        age_and_time = 120
    with ran(*WORLD, *AGREEING, *whole) as simulation:
        assert 4 * numel <= bytes_of(simulation, "AgedModel") < 4 * numel + age_and_time


def test_top_k_messages_have_eight_bytes_for_each_number_and_nothing_is_lost() -> None:
    with ran(*world_of("top_k"), "protocol.share=0.1") as simulation:
        [numel] = learner(simulation, 0).params.shape
        k = round(0.1 * numel)
        assert 8 * k <= bytes_of(simulation, "Changes") < 8 * k + 150


def test_what_top_k_has_not_sent_it_owes() -> None:
    change, memory = torch.tensor([3.0, -1.0, 0.5, -4.0]), torch.tensor([0.0, -1.5, 0.0, 1.0])
    values, places, owed = example("top_k").largest(change, memory, k=2)
    assert values.tolist() == [3.0, -3.0] and places.tolist() in ([0, 3], [3, 0], [0, 3])
    sent = example("top_k").placed(values, places, width=4)
    torch.testing.assert_close(sent + owed, change + memory)


def test_divshare_sends_all_fragments_and_each_to_a_few() -> None:
    """Nothing is left out or doubled: a model that is cut and joined again is the same."""
    with ran(*world_of("divshare"), "protocol.fragments=7", *SHORT) as simulation:
        one: Any = learner(simulation, 0)
        [numel] = one.params.shape
        assert [columns.start for columns in one.slices] == [
            0,
            *[columns.stop for columns in one.slices][:-1],
        ]
        assert one.slices[-1].stop == numel and len(one.slices) == 7
        for received in one.received:
            received.clear()
        one.received[2]["client-1"] = one.params[one.slices[2]]
        np.testing.assert_allclose(one.merged().numpy(), one.params.numpy(), rtol=1e-6)
        letters = [(peer, fragment.number) for peer, fragment in one.addressed()]
        assert len(set(letters)) == len(letters) == 7 * 3  # log2(6) of 5 peers
        assert numel / 7 * 4 <= bytes_of(simulation, "Fragment") < numel / 7 * 4 + 100


@pytest.mark.long
def test_on_slow_links_fragments_come_through(alone: float) -> None:
    """Where a whole model takes ten rounds, pieces of each one help; whole ones are old when they come."""
    slow = ("network.uplink=12 kbit/s", "run.duration=40 s", "run.evaluate_every=40 s")
    reached = {}
    for name in ("divshare", "epidemic"):
        with ran(*world_of(name), *slow) as simulation:
            reached[name] = accuracy(simulation)
    assert reached["divshare"] > max(alone, reached["epidemic"]) + 0.03


def test_the_median_is_torchs_and_of_no_order() -> None:
    median, models = example("median").median, list(torch.randn(5, 7))
    assert torch.equal(median(*models), torch.stack(models).median(dim=0).values)
    assert torch.equal(median(*models), median(*reversed(models)))


def test_distillation_steps_are_those_of_torch_and_no_model_is_sent() -> None:
    x, teacher = torch.randn(5, 4), torch.randn(5, 3)
    model = SimpleNamespace(forward=lambda params, x: x @ params.view(4, 3), input_shape=(4,))
    found = example("distillation").distilled(torch.zeros(12), x.flatten(), teacher.flatten(), model, 2, 0.1)
    plain = torch.zeros(12, requires_grad=True)
    for rows in (slice(0, 2), slice(2, 4), slice(4, 5)):
        logs = (x[rows] @ plain.view(4, 3)).log_softmax(1)
        (-(teacher[rows].softmax(1) * logs).sum(1).mean()).backward()
        plain = (plain - 0.1 * plain.grad).detach().requires_grad_()
    torch.testing.assert_close(found, plain.detach(), rtol=1e-4, atol=1e-6)
    with ran(*world_of("distillation"), *SHORT, "protocol.public=30") as simulation:
        assert set(simulation.network.counts.by_type) == {"Opinion"}
        assert 30 * 10 * 4 <= bytes_of(simulation, "Opinion") < 30 * 10 * 4 + 120


def test_attackers_send_the_opposite_of_their_models_which_the_mean_does_not_survive(alone: float) -> None:
    with ran(*world_of("attackers"), "protocol.rule=mean") as simulation:
        assert accuracy(simulation) < alone - 0.1
        for client in simulation.clients:
            one: Any = learner(simulation, client.index)
            sign = -1 if client.index < 1 else 1
            np.testing.assert_array_equal(one.announced().params.numpy(), sign * one.params.numpy())


def test_choco_sends_the_largest_of_a_change_and_adds_it() -> None:
    change = torch.tensor([3.0, -1.0, 0.5, -4.0])
    values, places = example("choco").largest(change, k=2)
    added = example("choco").added(torch.ones(4), values, places)
    assert added.tolist() == [4.0, 1.0, 1.0, -3.0]
    with ran(*world_of("choco"), *SHORT) as simulation:
        k = round(0.1 * learner(simulation, 0).params.shape[0])
        assert 8 * k <= bytes_of(simulation, "Change") < 8 * k + 150


@pytest.mark.long
def test_copies_of_choco_are_what_their_owners_hold_also_where_rounds_were_missed() -> None:
    """One client is cut off for a while: whoever saw a gap has asked."""
    cut = (
        'network.partition=[{ start = "1 s", end = "11 s", groups = [[0], [1, 2, 3, 4, 5]] }]',
        "run.duration=30 s",
    )
    patience = "protocol.patience=2 s"
    with ran(*world_of("choco"), *cut, patience) as simulation:
        assert simulation.network.counts.by_type["Public"][0] == 5 + 5  # of client-0, and told to it
        ones: list[Any] = [learner(simulation, client.index) for client in simulation.clients]
        owners = {one.name: one for one in ones}
        copies = [(owners[peer], copy) for one in ones for peer, copy in one.copies.items()]
        assert len(copies) == 6 * 5
        for owner, copy in copies:
            if copy.number == owner.public.number - 1:  # the change is on its way
                copy = owner.followed(copy, owner.change)
            assert copy.number == owner.public.number
            np.testing.assert_allclose(copy.params.numpy(), owner.public.params.numpy(), atol=1e-5)

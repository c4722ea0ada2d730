"""Golden short runs of every scenario file: what happens in them, counted, and that it happens again."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sim.learning.data.dataset import Dataset
from sim.learning.data.images import ImageData
from sim.learning.engine import Vector
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from sim.world.network import Counts
from tests.lists import require_listed

FOLDER = Path(__file__).parents[2] / "scenarios"
_L2C = ["protocol.rounds=5", "protocol.search_steps=3", "protocol.hidden=[8]", "run.evaluate_every=4 s"]
_LM = [
    "run.iterations=2",
    'run.evaluate_every="2 iterations"',
    "model={name='transformer', width=8, depth=1}",
    "data.test_windows=4",
    "training.batch_size=2",
]
SHORT = {
    "lm_languages": _LM,
    "lm_scarce": _LM,
    "quickstart": ["run.duration=10 s", "churn.0.at=2 s", "churn.1.at=6 s"],
    "cobo_quadratics": ["run.iterations=10", 'run.evaluate_every="5 iterations"'],
    "cobo_cross_silo": ["run.iterations=2", 'run.evaluate_every="2 iterations"', "data.test_samples=20"],
    "cobo_cross_device": [
        "run.iterations=1",
        'run.evaluate_every="1 iterations"',
        "model.width=8",
        "model.groups=4",
        "training.batch_size=2",
        "data.test_samples=2",
    ],
    "gossip": ["run.duration=12 s"],
    "dpsgd_synchronous": ["run.duration=20 s"],
    "dpsgd_asynchronous": ["run.duration=20 s"],
    "fedavg": [
        "run.duration=20 s",
        "churn.0.at=2 s",
        "churn.1.at=5 s",
        "churn.2.at=8 s",
        "churn.3.at=12 s",
        "protocol.patience=3 s",
    ],
    "federico": ["run.budget.steps=60", "data.partition.samples_per_client=40", "data.test_samples=20"],
    "federico_full": [
        "run.iterations=4",
        'run.evaluate_every="2 iterations"',
        "data.partition.samples_per_client=20",
        "data.test_samples=10",
        "model.channels=[4]",
        "training.batch_size=10",
    ],
    "l2c_synthetic": [*_L2C, "run.duration=8 s", "data.samples=60", "data.test_samples=10"],
    "l2c_adult": [*_L2C, "run.duration=6 s", "data.test_samples=100"],
    "l2c_fashion_mnist": [*_L2C, "run.duration=8 s", "data.test_samples=10"],
    "l2c_cifar10": [
        *_L2C,
        "run.duration=8 s",
        "data.partition.samples_per_client=20",
        "data.test_samples=10",
        "model.features=8",
    ],
    "l2c_churn": [
        *_L2C,
        "run.duration=8 s",
        "data.samples=60",
        "data.test_samples=10",
        "churn.0.at=7 s",
        "churn.1.at=7.2 s",
        "churn.2.at=7.4 s",
        "churn.3.at=7.6 s",
    ],
    "mapl": [
        "run.iterations=2",
        'run.evaluate_every="2 iterations"',
        "data.partition.images_per_class=8",
        "data.partition.images_per_class_min=4",
        "data.partition.test_images_per_class=2",
        "protocol.warm_up=1",
    ],
    "mapl_few": ["run.budget.samples=640", 'run.evaluate_every="2 iterations"', "protocol.warm_up=1"],
    "mapl_full": [
        "run.iterations=1",
        'run.evaluate_every="1 iterations"',
        "clients.count=4",
        'model.assign="in-turn"',
        "data.partition.images_per_class=1",
        "data.partition.images_per_class_min=1",
        "data.partition.test_images_per_class=1",
        "training.batch_size=2",
    ],
    "mapl_churn": ["run.duration=12 s", "churn.0.at=5 s", "churn.1.at=7 s", "protocol.warm_up=4"],
    "personalized": [
        "run.budget.steps=20",
        'run.evaluate_every="2 iterations"',
        "run.compare_alone=false",
        "data.test_samples=20",
    ],
    "scool_sbm": [
        "run.budget.steps=80",
        'run.evaluate_every="4 iterations"',
        "data.test_samples=10",
        "protocol.local_steps=10",
        "protocol.keep_after=3",
    ],
    "scool_non_iid": [
        "run.budget.steps=80",
        'run.evaluate_every="4 iterations"',
        "data.test_samples=10",
        "protocol.local_steps=10",
        "protocol.keep_after=3",
    ],
    "scool_full": [
        "run.iterations=3",
        'run.evaluate_every="3 iterations"',
        "clients.count=5",
        "data.partition.samples_per_client=2",
        "data.test_samples=2",
        "training.batch_size=2",
        "protocol.local_epochs=1",
        "protocol.keep_after=1",
        "protocol.keep=0.3",
    ],
    "scool_churn": ["run.duration=15 s", "churn.0.at=5 s", "churn.1.at=7 s", "protocol.keep_after=4"],
    "world_planet": ["run.duration=10 s"],
    "world_phones": ["run.duration=20 s"],
    "world_spot": ["run.duration=60 s"],
    "world_flash_crowd": ["run.duration=20 s", "churn.0.at=5 s"],
    "world_flapping": [
        "run.duration=30 s",
        "network.partition.0.start=5 s",
        "network.partition.0.end=30 s",
    ],
}
# Messages sent, delivered, lost and dropped where no protocol reads a number: decided by seed and virtual
# time, so the same on any machine.
GOLDEN: dict[str, tuple[int, int, int, int]] = {
    "quickstart": (2567, 2459, 0, 87),
    "cobo_quadratics": (760, 753, 0, 0),
    "cobo_cross_silo": (208, 194, 0, 0),
    "cobo_cross_device": (12738, 12501, 0, 0),
    "gossip": (600, 568, 25, 0),
    "dpsgd_synchronous": (503, 503, 0, 0),
    "dpsgd_asynchronous": (3234, 3227, 0, 0),
    "fedavg": (487, 460, 0, 27),
    "world_flapping": (2831, 1874, 955, 0),
    "world_flash_crowd": (3305, 3289, 0, 0),
    "world_spot": (3494, 2234, 0, 1260),
    "world_phones": (3774, 3751, 0, 0),
    "world_planet": (7518, 7452, 0, 0),
    "mapl_full": (12, 12, 0, 0),
    "personalized": (80, 70, 0, 0),
    "lm_languages": (60, 54, 0, 0),
    "lm_scarce": (280, 273, 0, 0),
}
# Where a protocol decides by learned numbers, who talks to whom hangs on rounding, so on the processor. So
# large a share of the messages by which clients share what they know is left: at least, and at most.
LEARNED: dict[str, tuple[float, float]] = {
    "mapl": (0.8, 1.0),  # a pass or two after the warm-up: hardly anybody has parted
    "mapl_few": (0.6, 1.0),
    "mapl_churn": (0.5, 0.85),  # the true neighbors are 5 of 11; in the warm-up all are kept
    "scool_sbm": (0.3, 0.8),  # 4 of 19 peers are kept for a half of the iterations
    "scool_non_iid": (0.3, 0.8),
    "scool_full": (0.4, 0.6),  # 4 peers are asked in 1 of 3 rounds, then 1
    "scool_churn": (0.4, 0.9),
}
# Where whom a client turns to hangs on numbers, too, but not to how many.
CHOOSING = ("federico", "federico_full")
# Those that take seconds even so: whether they are the same again is a slow test.
LONG = ("mapl_churn", "mapl_full", "scool_non_iid", "scool_sbm", "cobo_cross_device", "federico_full")
ALL_KEPT = {
    "mapl": ("Knowledge", "protocol.graph_learning=false"),
    "scool": ("EvaluationRequest", "protocol.keep=1.0"),
}
"""By method: the messages by which they are shared, and what keeps all neighbors."""
# Likewise, of a method whose broker searches until a computed number stands still: how many clients there are
# to tell of their coalition.
SETTLED: dict[str, int] = {
    "l2c_synthetic": 6,
    "l2c_adult": 2,
    "l2c_fashion_mnist": 10,
    "l2c_cifar10": 10,
    "l2c_churn": 5,
}
NEEDS_DATA = {
    "lm_languages": "text-4lang",
    "lm_scarce": "text-4lang",
    "personalized": "fashion-mnist",
    "federico": "fashion-mnist",
    "federico_full": "cifar-10",
    "l2c_adult": "adult",
    "l2c_fashion_mnist": "fashion-mnist",
    "l2c_cifar10": "cifar-10",
    "mapl": "cifar-10",
    "mapl_few": "fashion-mnist",
    "mapl_full": "cifar-10",
    "cobo_cross_silo": "fashion-mnist",
    "scool_sbm": "fashion-mnist",
    "scool_non_iid": "fashion-mnist",
    "scool_full": "cifar-10",
    "cobo_cross_device": "cifar-100-subset",
    "world_planet": "net-latency",
    "world_phones": "device-traces",
    "world_spot": "spot-churn",
}


@pytest.fixture(autouse=True, scope="module")
def images_read_once() -> Iterator[None]:
    """Files of images are unpacked and scaled for the first run that wants them, which takes seconds."""
    load, kept = ImageData.load, {}

    def load_once(self: ImageData, *arguments: Any, **options: Any) -> Dataset:
        if self.name not in kept:
            kept[self.name] = load(self, *arguments, **options)
        return kept[self.name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageData, "load", load_once)
        yield


@pytest.fixture
def protocol_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled with the modules of protocols in which computed numbers are read, by what way ever."""
    found: list[str] = []

    def noting(read: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        def noted(self: Vector) -> Any:
            frame = sys._getframe(1)
            while frame is not None and not frame.f_globals["__name__"].startswith("protocols."):
                frame = frame.f_back
            if frame is not None:
                found.append(frame.f_globals["__name__"])
            return read(self)

        return noted

    for name in ("tensor", "numpy"):
        monkeypatch.setattr(Vector, name, noting(getattr(Vector, name)))
    return found


@dataclass
class ShortRun:
    """What is left of a short run: message counts, trace hash, and how many steps each client took."""

    counts: Counts
    trace_hash: str
    iterations: dict[str, int]


def run_short(name: str, *overrides: str) -> ShortRun:
    """A scenario's short form, from its beginning to its end."""
    with closing(
        build(load_scenario(FOLDER / f"{name}.toml", [*SHORT[name], *overrides]), device="cpu")
    ) as simulation:
        simulation.run()
        assert simulation.supervisor.failures == []
        iterations = {client.name: client.actor.iterations for client in simulation.clients if client.actor}
        return ShortRun(deepcopy(simulation.network.counts), simulation.trace.hash(), iterations)


def skip_without_data(name: str) -> None:
    folder = os.environ.get("COTERIE_DATA")
    if name in NEEDS_DATA and not (folder and (Path(folder) / NEEDS_DATA[name]).is_dir()):
        pytest.skip(f"needs {NEEDS_DATA[name]} in the folder COTERIE_DATA")


def test_every_scenario_has_a_short_form() -> None:
    require_listed([path.stem for path in FOLDER.glob("*.toml")], SHORT, f"SHORT in {__file__}")
    listed = [*GOLDEN, *LEARNED, *CHOOSING, *SETTLED]
    require_listed(SHORT, listed, f"one of GOLDEN, LEARNED, CHOOSING and SETTLED in {__file__}")
    assert len(set(listed)) == len(listed), f"a scenario is in two of these lists of {__file__}"


def test_across_the_flapping_line_are_other_digits_and_one_client_here_has_them() -> None:
    scenario = load_scenario(FOLDER / "world_flapping.toml")
    with closing(build(scenario, device="cpu")) as simulation:
        clusters = simulation.clusters
        [cut] = scenario.network.partition
        assert clusters is not None and cut.groups is not None and cut.groups != "clusters"
        of_sides = [
            Counter(clusters[client] for client in side if client != "servers") for side in cut.groups
        ]
    assert of_sides == [{0: 9, 1: 1}, {1: 9, 0: 1}]


def check_learned_graph(name: str, learned: ShortRun) -> None:
    """Beside the same run with all neighbors kept: it saves messages, and costs nobody a step."""
    shared, keep_all = ALL_KEPT[name.partition("_")[0]]
    complete = run_short(name, keep_all)
    sent = {kind: messages for kind, (messages, _) in learned.counts.by_type.items()}
    if shared == "Knowledge":
        assert learned.iterations == complete.iterations, "nobody waits: only virtual time decides"
        assert sent.get("KnowledgeOnDemand", 0) <= sent.get("KnowledgeWanted", 0), "answers to questions"
    least, most = LEARNED[name]
    assert least <= sent[shared] / complete.counts.by_type[shared][0] <= most
    scenario = load_scenario(FOLDER / f"{name}.toml")
    reasons = {"down"} if scenario.churn != () else set()
    assert set(learned.counts.reasons) - {"loss"} == reasons


def check_choices(name: str, short: ShortRun) -> None:
    """FedeRiCo: of each client M models an iteration at most; in rounds something for everybody."""
    sent = {kind: messages for kind, (messages, _) in short.counts.by_type.items()}
    settings: Any = load_scenario(FOLDER / f"{name}.toml").protocol.settings
    neighbours = settings.neighbours
    assert short.counts.reasons == {}
    if name == "federico_full":
        assert set(sent) == {"RoundModel", "RoundUpdate"}
        rounds = min(short.iterations.values()) - settings.alone_first
        assert sent["RoundUpdate"] >= 8 * 7 * rounds
        return
    begun = [iterations + 1 for iterations in short.iterations.values()]
    assert 0.5 * sum(begun) < sent["ModelRequest"] <= neighbours * sum(begun)
    assert sent["RequestedModel"] <= sent["ModelRequest"] >= sent["WeightedUpdate"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", list(SHORT))
def test_short_run(name: str, protocol_reads: list[str]) -> None:
    skip_without_data(name)
    short = run_short(name)
    assert bool(protocol_reads) == (name not in GOLDEN), (
        "a figure is written down where no protocol reads numbers"
    )
    counts = short.counts
    assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
    if name in GOLDEN:
        assert (counts.sent, counts.delivered, counts.lost, counts.dropped) == GOLDEN[name]
    elif name in SETTLED:
        assert short.counts.by_type["Members"][0] == SETTLED[name] - 1, "all but the broker"
    elif name in LEARNED:
        check_learned_graph(name, short)
    else:
        check_choices(name, short)
    assert load_scenario(FOLDER / f"{name}.toml").question.partition("\n")[0].endswith("?")
    if name not in LONG:
        assert run_short(name) == short


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_short_run_is_the_same_again(name: str) -> None:
    skip_without_data(name)
    assert run_short(name) == run_short(name)

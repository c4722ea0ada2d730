"""Runs that compute together are each the run of its scenario alone, bit by bit."""

import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sim.core.process import simulating
from sim.errors import UserError
from sim.learning.engine.graph.batch_operations import Outputs
from sim.learning.engine.together import meeting as meetings
from sim.learning.engine.together.common_data import CommonData
from sim.learning.engine.together.merging import EngineCall, Merging
from sim.learning.objectives import cross_entropy
from sim.results.store.output_dir import READS
from sim.run import together
from sim.run.options import RunOptions
from sim.run.resume.resuming import ResumableRun
from sim.run.running import RunResult, run_scenario
from sim.run.together import JointRunHook, run_together
from sim.scenario.scenario import load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.learning.engines import new_engine
from tests.learning.sections import architecture
from tests.protocols.test_survival import LOSSY, variants
from tests.resume.same import require_same
from tests.simulation.kinds import KINDS
from tests.simulation.test_scenarios import skip_without_data
from tests.simulation.worlds import DIGITS, write

SEEDS = (1, 2, 3)


def run_once(
    seat: JointRunHook | None, file: Path, overrides: Sequence[str], seed: int, out: Path, **options: Any
) -> RunResult:
    scenario = load_scenario(file, overrides, seed)
    options = {"report": False, "overwrite": True, "device": "cpu"} | options
    return run_scenario(scenario, RunOptions(out=out / str(seed), seat=seat, **options))


def both(
    folder: Path, file: Path, overrides: Sequence[str] = (), seeds: Sequence[int] = SEEDS, **options: Any
) -> list[tuple[Path, Path]]:
    """Run seeds alone and together; return the folders of both, by seed."""
    found = []
    for kind in ("alone", "together"):
        runs = [
            partial(run_once, file=file, overrides=overrides, seed=seed, out=folder / kind, **options)
            for seed in seeds
        ]
        results = run_together(runs) if kind == "together" else [run(None) for run in runs]
        found.append([result.directory for result in results])
    return list(zip(*found, strict=True))


def require_all_same(pairs: Sequence[tuple[Path, Path]]) -> None:
    for alone, with_others in pairs:
        require_same(alone, with_others)
        assert (alone / READS).read_bytes() == (with_others / READS).read_bytes()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Number of computed calls of runs together, and of those that they stand for."""
    found = {"calls": 0, "merged": 0}
    results = Merging.results

    def counted(self: Merging, calls: Sequence[EngineCall]) -> Any:
        found["calls"] += 1
        found["merged"] += len(calls)
        return results(self, calls)

    monkeypatch.setattr(Merging, "results", counted)
    return found


def test_runs_together_are_the_runs_alone(tmp_path: Path, counts: dict[str, int]) -> None:
    require_all_same(both(tmp_path, write(tmp_path, DIGITS)))
    assert counts["merged"] > 2 * counts["calls"] > 0


def test_runs_under_loss_and_churn_are_the_runs_alone(tmp_path: Path) -> None:
    require_all_same(both(tmp_path, write(tmp_path, LOSSY), ["run.compare_alone=true"], SEEDS[:2]))


@pytest.mark.long
@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
def test_every_method_together_is_the_method_alone(tmp_path: Path, protocol: Sequence[str]) -> None:
    require_all_same(both(tmp_path, write(tmp_path, LOSSY), protocol, SEEDS[:2]))


@pytest.mark.long
@pytest.mark.parametrize("name", SHORT)
def test_every_scenario_together_is_the_scenario_alone(tmp_path: Path, name: str) -> None:
    skip_without_data(name)
    table = short(name)
    table["run"].setdefault("name", name)
    require_all_same(both(tmp_path, write(tmp_path, tomli_w.dumps(table)), (), SEEDS[:2]))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_together_is_the_kind_alone(tmp_path: Path, kind: str) -> None:
    file, overrides = KINDS[kind](tmp_path)
    require_all_same(both(tmp_path, file, overrides, SEEDS[:2]))


OPTIMIZERS = ("sgd", "adam", "adamw")


@pytest.mark.long
@pytest.mark.parametrize("way", ["dense", "vmap", "loop"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_and_backend_together_is_the_same_alone(
    tmp_path: Path, way: str, optimizer: str
) -> None:
    overrides = [f"engine.way={way}", f"training.optimizer={optimizer}"]
    overrides += ["training.momentum=0.9"] if optimizer == "sgd" else []
    require_all_same(both(tmp_path, write(tmp_path, DIGITS), overrides, SEEDS[:2]))


TEN = (
    *("quickstart", "gossip", "mapl_churn", "cobo_cross_silo", "cobo_quadratics"),
    *("dpsgd_synchronous", "dpsgd_asynchronous", "fedavg", "l2c_churn", "personalized"),
)
"""Shipped scenarios whose eight runs take minutes, not hours."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TEN)
def test_eight_seeds_of_shipped_scenarios_are_the_runs_alone(tmp_path: Path, name: str) -> None:
    skip_without_data(name)
    file = Path(__file__).parents[2] / "scenarios" / f"{name}.toml"
    shorter = ["run.duration=20 s"] if name in ("quickstart", "mapl_churn") else []
    require_all_same(both(tmp_path, file, shorter, range(1, 9)))


@pytest.mark.parametrize(("way", "is_merged"), [("dense", True), ("vmap", False)])
def test_outputs_are_merged_only_if_they_are_equal_to_the_last_bit(way: str, is_merged: bool) -> None:
    engine = new_engine(backend=way)
    kernel = engine.kernel(architecture("logistic-regression", {}, (4,), 3), cross_entropy)
    data = CommonData()
    data.add(0, engine.data)
    operation = Outputs(kernel, engine.pool(8), engine.device)
    assert (Merging(data)._of_operation(0, operation) is not None) == is_merged


def test_a_run_that_fails_takes_nobody_with_it(tmp_path: Path) -> None:
    runs: list[Callable[[JointRunHook | None], Any]] = [
        partial(run_once, file=write(tmp_path, DIGITS), overrides=(), seed=seed, out=tmp_path / "together")
        for seed in SEEDS
    ]

    def broken(seat: JointRunHook | None) -> Any:
        with pytest.raises(UserError, match=r"protocol\.name"):
            run_once(seat, write(tmp_path, DIGITS), ["protocol.name=nothing"], 1, tmp_path / "broken")
        return "broken"

    found = run_together([runs[0], broken, *runs[1:]])
    assert found[1] == "broken"
    alone = [run_once(None, write(tmp_path, DIGITS), (), seed, tmp_path / "alone") for seed in SEEDS]
    require_all_same([(a.directory, b.directory) for a, b in zip(alone, [found[0], *found[2:]], strict=True)])


def test_an_error_of_a_merged_call_reaches_only_the_run_that_caused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Merging.results

    def fails(self: Merging, calls: Sequence[EngineCall]) -> Any:
        if any(call.run == 1 and call.operation.is_job for call in calls):
            raise ValueError("of run 1")
        return results(self, calls)

    monkeypatch.setattr(Merging, "results", fails)
    file, found = write(tmp_path, DIGITS), {}

    def run(seat: JointRunHook | None, seed: int) -> Any:
        try:
            found[seed] = run_once(seat, file, (), seed, tmp_path / "together").directory
        except ValueError as error:
            found[seed] = str(error)

    run_together([partial(run, seed=seed) for seed in SEEDS])
    assert found[2] == "of run 1"
    for seed in (1, 3):
        require_same(run_once(None, file, (), seed, tmp_path / "alone").directory, found[seed])


def test_a_call_without_memory_is_computed_run_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, failures = Merging.results, []

    def out_of_memory(self: Merging, calls: Sequence[EngineCall]) -> Any:
        if len(calls) > 1:
            failures.append(len(calls))
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return results(self, calls)

    monkeypatch.setattr(Merging, "results", out_of_memory)
    require_all_same(both(tmp_path, write(tmp_path, DIGITS)))
    assert failures


def test_a_fork_continues_from_a_checkpoint_of_a_run_with_others(tmp_path: Path) -> None:
    file = write(tmp_path, DIGITS)
    for alone, with_others in both(tmp_path, file, (), SEEDS[:2], checkpoints_s=(1.5,)):
        scenario = load_scenario(with_others / "scenario.toml", ["training.learning_rate=0.1"])
        found = [
            run_scenario(
                scenario,
                RunOptions(out=path.parent / "again", device="cpu"),
                earlier=ResumableRun.find(path, 1.5),
            ).directory
            for path in (alone, with_others)
        ]
        assert found[0] is not None and found[1] is not None
        require_same(found[0], found[1])


CYCLES = '''\
from protocols import Client


class Cyclic(Client):
    """Keeps each model in an object that refers to itself."""

    async def run(self):
        while True:
            self.params = await self.train(steps=1)
            kept = [self.params * 2.0]
            kept.append(kept)
'''


def test_a_run_with_vectors_in_cycles_is_repeated_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []

    class Seen(meetings.Meeting):
        def _find_cycles(self) -> None:
            super()._find_cycles()
            seen.append(set(self.changed))

    monkeypatch.setattr(together, "Meeting", Seen)
    overrides = [f"protocol.name={write(tmp_path, CYCLES, 'cyclic.py')}:Cyclic"]
    file = write(tmp_path, DIGITS.replace('period = "500 ms"\n', ""))
    for alone, with_others in both(tmp_path, file, overrides, SEEDS[:2]):
        require_same(alone, with_others)
    assert seen == [{0, 1}]


def test_no_shipped_method_needs_a_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[set[int]] = []

    class Seen(meetings.Meeting):
        def _find_cycles(self) -> None:
            super()._find_cycles()
            changed.append(self.changed)

    monkeypatch.setattr(together, "Meeting", Seen)
    both(tmp_path, write(tmp_path, LOSSY), (), SEEDS[:2])
    assert changed == [set()]


def test_the_collector_stays_off_until_the_last_of_overlapping_runs() -> None:
    assert gc.isenabled()
    with simulating():
        with simulating():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

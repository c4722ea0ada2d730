"""Lineage: a model is the sum of its sources, and a replay finds the same sources as the run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import coterie as front
from sim.learning.engine.affine import affine_map
from sim.learning.engine.lineage import OPTIMIZER, SAMPLES, UNKNOWN, Lineage
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.recorded import RecordedEngine, recorded_terms
from sim.learning.engine.replay_log import RecordedReadLog
from sim.run.resume.lineage import EvaluatedModelsObserver, lineage_of, trace_model_sources
from sim.run.resume.model_sources import model_source_lines
from tests.draws import examples
from tests.fuzz.worlds import SCENARIOS
from tests.protocols.test_survival import LOSSY, variants
from tests.resume.lineages import (
    KeepingEngine,
    capturing,
    kept,
    require_own_parts,
    require_shares,
    require_sums,
)
from tests.resume.test_forks import done
from tests.resume.test_resume import coterie, interrupted, went_on
from tests.simulation.worlds import run

FEW = ("gossip", "fedbuff", "scool", "mapl-plus", "scaffold", "fedem")


def methods() -> list[Any]:
    """All methods: the fast tests take a few of them."""
    return [
        pytest.param(
            protocol, marks=() if name_of(protocol) in FEW else pytest.mark.slow, id=" ".join(protocol)
        )
        for protocol in variants()
    ]


def name_of(protocol: Sequence[str]) -> str:
    return protocol[0].removeprefix("protocol.name=")


@pytest.mark.parametrize("protocol", methods())
def test_a_model_is_the_sum_of_its_sources(tmp_path: Path, protocol: Sequence[str]) -> None:
    with kept(tmp_path, LOSSY, *protocol) as simulation:
        assert require_sums(simulation) > 10


AFFINE = {
    "cobo": ("protocol.name=cobo", "protocol.mode=asynchronous", "protocol.patience=700 ms"),
    "cobo, synchronous": ("protocol.name=cobo", "protocol.mode=synchronous", "protocol.patience=700 ms"),
    "cobo, sampled": ("protocol.name=cobo", "protocol.exchange=sampled", "protocol.patience=700 ms"),
    "ditto": ("protocol.name=ditto", "protocol.patience=700 ms"),
    "dada": ("protocol.name=dada", "protocol.graph_every=2", "protocol.delta=0.1"),
    "fedprox": ("protocol.name=fedavg", "protocol.mu=0.5", "protocol.patience=700 ms"),
    "pfedme": ("protocol.name=pfedme", "protocol.patience=700 ms"),
    "scaffold": ("protocol.name=scaffold", "protocol.patience=700 ms"),
}
SGD = {
    "plain": (),
    "momentum": ("training.momentum=0.9", "training.weight_decay=0.01"),
    "nesterov": ("training.momentum=0.8", "training.nesterov=true"),
    "dampened": ("training.momentum=0.9", "training.dampening=0.5"),
}


def jobs() -> list[Any]:
    """Each method with each optimizer: the fast tests take momentum for two methods only."""
    return [
        pytest.param(
            method,
            optimizer,
            marks=()
            if optimizer == "plain" or (method == "ditto" and optimizer == "momentum")
            else pytest.mark.slow,
        )
        for method in AFFINE
        for optimizer in SGD
    ]


@pytest.mark.parametrize("method, optimizer", jobs())
def test_the_own_part_of_a_job_is_the_damped_sum_of_its_gradients(
    tmp_path: Path, method: str, optimizer: str
) -> None:
    unusual = f"protocol.unusual={[each.partition('=')[0] for each in SGD[optimizer]]}"
    with capturing(tmp_path, LOSSY, *AFFINE[method], *SGD[optimizer], unusual) as simulation:
        assert require_own_parts(simulation) > 10
        require_shares(simulation)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize(
    "optimizer", [pytest.param(each, marks=() if each == "plain" else pytest.mark.slow) for each in SGD]
)
def test_so_is_that_of_quadratic_clients(tmp_path: Path, mode: str, optimizer: str) -> None:
    changes = ("run.iterations=30", "run.evaluate_every=10 iterations", f"protocol.mode={mode}")
    if mode == "asynchronous":
        changes += ("protocol.patience=100 ms",)
    text = (SCENARIOS / "cobo_quadratics.toml").read_text(encoding="utf-8")
    unusual = f"protocol.unusual={[each.partition('=')[0] for each in SGD[optimizer]]}"
    with capturing(tmp_path, text, *changes, *SGD[optimizer], unusual) as simulation:
        assert require_own_parts(simulation) >= 8 * 30
        assert require_shares(simulation) > 100


def test_windows_of_equal_length_end_at_each_evaluation(tmp_path: Path) -> None:
    changes = ("protocol.name=gossip", "run.duration=4 s", "run.evaluate_every=1 s")
    path = run(tmp_path, LOSSY, *changes, "churn=[]").directory
    assert path is not None
    recent = lineage_of(path, recent_s=1.5).sources.filter(kind="training")
    bounds = recent.select("time", "from", "to").unique().sort("time").rows()
    assert bounds == [(1.0, 0.0, 1.0), (2.0, 0.5, 2.0), (3.0, 1.5, 3.0), (4.0, 2.5, 4.0)]
    halves = lineage_of(path, windows=8).sources.filter(kind="training")  # of half a second
    inside = halves.filter((pl.col("to") <= pl.col("time")) & (pl.col("from") >= pl.col("time") - 1.5))
    keys = ["time", "client", "source"]
    sums = inside.group_by(keys).agg(pl.col("weight").sum()).sort(keys)
    assert_frame_equal(sums, recent.sort(keys).select(*keys, "weight"))
    assert recent.group_by("time", "client").agg(pl.col("share").sum())["share"].to_list() == pytest.approx(
        [1.0] * len(recent.unique(["time", "client"]))
    )


RATES = st.lists(st.floats(0.001, 0.5), min_size=1, max_size=6)
NUMBERS = st.floats(-2, 2)


@examples(100)
@given(
    rates=RATES,
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    dampening=st.sampled_from([0.0, 0.3]),
    nesterov=st.booleans(),
    decay=st.sampled_from([0.0, 0.1]),
    pulls=st.lists(st.tuples(st.floats(-1, 2), NUMBERS), max_size=3),
    start=NUMBERS,
    velocity=NUMBERS,
    done=st.integers(0, 2),
)
def test_maps_equal_torchs_optimizer(
    rates: list[float],
    momentum: float,
    dampening: float,
    nesterov: bool,
    decay: float,
    pulls: list[tuple[float, float]],
    start: float,
    velocity: float,
    done: int,
) -> None:
    nesterov = nesterov and momentum > 0
    dampening = 0.0 if nesterov or not momentum else dampening
    optimizer = Optimizer(momentum=momentum, dampening=dampening, nesterov=nesterov, weight_decay=decay)
    maps = affine_map(optimizer, rates, done, [strength for strength, _ in pulls])
    assert maps is not None
    params = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    reference = torch.optim.SGD(
        [params], momentum=momentum, dampening=dampening, nesterov=nesterov, weight_decay=decay
    )
    velocity = velocity if momentum and done else 0.0
    if momentum and done:
        reference.state[params]["momentum_buffer"] = torch.tensor(velocity, dtype=torch.float64)
    for rate in rates:
        reference.param_groups[0]["lr"] = rate
        params.grad = sum((c * (params.data - a) for c, a in pulls), start=torch.zeros_like(params.data))
        reference.step()
    of_params, of_state = maps

    def of(map_: tuple[float, float, tuple[float, ...]]) -> float:
        return (
            map_[0] * start
            + map_[1] * velocity
            + sum(m * a for m, (_, a) in zip(map_[2], pulls, strict=True))
        )

    assert of(of_params) == pytest.approx(params.item(), rel=1e-9, abs=1e-9)
    if momentum:
        buffer = reference.state[params]["momentum_buffer"].item()
        assert of(of_state) == pytest.approx(buffer, rel=1e-9, abs=1e-9)
    if not decay and not velocity:
        assert of_params.start + sum(of_params.anchors) == pytest.approx(1, abs=1e-7)


def test_other_optimizers_and_clipped_pulls_have_no_map() -> None:
    assert affine_map(Optimizer("adam"), [0.1], 0, []) is None
    assert affine_map(Optimizer(clip_norm=1.0), [0.1], 0, [1.0]) is None
    assert affine_map(Optimizer(clip_norm=1.0), [0.1], 0, []) is not None


def of_run(folder: Path, text: str, *overrides: str) -> pl.DataFrame:
    """Sources of the evaluated models, from a run that computes all values and keeps all vectors."""
    with kept(folder, text, *overrides) as simulation:
        engine, observer = simulation.engine, simulation.observer
        assert isinstance(engine, KeepingEngine) and isinstance(observer, EvaluatedModelsObserver)
        return trace_model_sources(simulation, observer.moments, engine.factors()).sources


REPLAYED = {
    "gossip": ("protocol.name=gossip",),
    "cobo": AFFINE["cobo"],
    "fedem": ("protocol.name=fedem", "protocol.patience=700 ms"),
    "meta-l2c": ("protocol.name=meta-l2c", "data.validation_share=0.25"),
}


@pytest.mark.long
@pytest.mark.parametrize("method", REPLAYED)
def test_a_replay_finds_the_sources_of_the_run(tmp_path: Path, method: str) -> None:
    path = run(tmp_path, LOSSY, *REPLAYED[method]).directory
    assert path is not None
    assert_frame_equal(lineage_of(path).sources, of_run(tmp_path, LOSSY, *REPLAYED[method]))


@pytest.mark.long
def test_a_resumed_run_and_a_fork_have_the_sources_of_the_whole_run(tmp_path: Path) -> None:
    overrides = AFFINE["cobo"]
    expected = of_run(tmp_path, LOSSY, *overrides)
    path = went_on(interrupted(tmp_path, LOSSY, 3.0, *overrides))
    assert_frame_equal(lineage_of(path).sources, expected)
    fork = done("fork", path, "--at", "5 s", "--set", "training.learning_rate=0.05")
    whole, forked = [lineage_of(each).sources.filter(pl.col("time") <= 4) for each in (path, fork)]
    assert_frame_equal(forked, whole)
    assert not lineage_of(fork, 8.0).sources.equals(lineage_of(path, 8.0).sources)


def test_two_clients_that_average_have_shares_of_a_closed_form() -> None:
    """Each merge halves the coefficients of what both had before."""
    engine = RecordedEngine(None, seed=1)  # type: ignore[arg-type]  # sums need no data
    vectors = [engine.vector(torch.full((4,), float(number))) for number in (1, 2)]
    terms = [recorded_terms(vectors[number].terms) for number in (0, 1)]
    for _ in range(3):
        vectors[0] = 0.5 * vectors[0] + 0.5 * vectors[1]
        vectors[0].slot()
    sources = list(Lineage(engine.records, {}).sources([recorded_terms(vectors[0].terms)]))
    found = {source.owner: float(source.coefficients[0]) for source in sources}
    assert found == {terms[0][0][0]: 1 / 8, terms[1][0][0]: 7 / 8}


def test_a_run_without_logged_factors_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordedReadLog, "keeps_factors", False)
    path = run(tmp_path, LOSSY, *AFFINE["cobo"]).directory
    assert path is not None
    found = lineage_of(path)
    assert any(reason == UNKNOWN and count > 0 for (reason, _), count in found.reads.items())
    told = "\n".join(model_source_lines(found, 0))
    assert f"Not in these shares: {UNKNOWN}" in told


@pytest.mark.long
def test_adam_leaves_pulls_out_of_the_shares_and_says_so(tmp_path: Path) -> None:
    path = run(tmp_path, LOSSY, *AFFINE["cobo"], "training.optimizer=adam").directory
    assert path is not None
    found = lineage_of(path)
    assert {reason for reason, _ in found.reads} == {OPTIMIZER}
    training = found.sources.filter(pl.col("kind") == "training")
    assert training.filter(pl.col("source_client") != pl.col("client")).is_empty()


def test_explain_tells_what_a_model_is_made_of(tmp_path: Path) -> None:
    path = run(tmp_path, LOSSY, "protocol.name=gossip").directory
    result = coterie("explain", path, "--at", "6 s", "--client", 3, "--made-of", "--windows", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Training in the model of client-3 at 6 s, by the time at which it began:"
    assert lines[2].split() == ["from", "to", "itself", "its", "cluster", "other", "clients"]
    for line in lines[3:5]:
        assert sum(float(each.removesuffix("%")) for each in line.split()[-3:]) == pytest.approx(100, abs=0.2)
    assert lines[3].split()[:4] == ["0", "s", "3", "s"]
    down = coterie("explain", path, "--at", "6 s", "--client", 4, "--made-of")
    assert "client-4 is down at this time, so it has no model" in down.stdout


def test_windows_without_made_of_are_refused(tmp_path: Path) -> None:
    result = coterie("explain", tmp_path, "--client", 3, "--windows", 8)
    assert result.exit_code == 2
    assert "--windows" in result.output and "needs --made-of" in result.output


@pytest.mark.long
def test_python_returns_the_same_sources(tmp_path: Path) -> None:
    path = run(tmp_path, LOSSY, "protocol.name=gossip").directory
    assert path is not None
    loaded = front.load(path)
    assert_frame_equal(loaded.lineage(client=3, at="6 s"), lineage_of(path, 6.0, 3).sources)
    assert_frame_equal(loaded.lineage(client="client-3", at="6 s"), lineage_of(path, 6.0, 3).sources)
    assert set(loaded.lineage()["time"]) == {0.0, 4.0, 8.0}
    for bad in ({"client": -1}, {"client": 77}, {"at": "77 s"}, {"windows": 0}, {"client": "three"}):
        with pytest.raises(front.UserError):
            loaded.lineage(**bad)


def test_a_fork_without_a_client_loses_it_right_after_its_time(tmp_path: Path) -> None:
    path = run(tmp_path, LOSSY, "protocol.name=gossip").directory
    fork = done("fork", path, "--at", "5 s", "--without", 3)
    crashes = front.load(fork).events.filter((pl.col("event") == "crash") & (pl.col("time") > 5))
    assert crashes["time", "actor"].rows() == [(5.000001, "client-3"), (5.5, "client-4")]
    named = done("fork", path, "--at", "5 s", "--without", "client-3")
    assert front.load(named).summary["trace_hash"] == front.load(fork).summary["trace_hash"]
    unknown = coterie("fork", path, "--at", "5 s", "--without", "client-9")
    assert unknown.exit_code == 2 and "--without client-9: must be from 0 to 5, or a name" in unknown.stderr
    returning = coterie("fork", path, "--at", "3 s", "--without", 2, "--quiet")
    assert returning.exit_code == 2
    assert "--without 2: a churn entry of the run can let this client rejoin at 4.6 s" in returning.stderr


@pytest.mark.hypothesis
def test_models_are_sums_in_any_weather(tmp_path: Path) -> None:
    @examples(6)
    @given(
        seed=st.integers(0, 1000),
        loss=st.sampled_from([0.0, 0.05, 0.3]),
        method=st.sampled_from([*AFFINE.values(), ("protocol.name=gossip",), ("protocol.name=fedbuff",)]),
        optimizer=st.sampled_from(list(SGD)),
        slow=st.integers(0, 5),
    )
    def are_sums(seed: int, loss: float, method: tuple[str, ...], optimizer: str, slow: int) -> None:
        unusual = f"protocol.unusual={[each.partition('=')[0] for each in SGD[optimizer]]}"
        device = f"devices.override=[{{ clients = [{slow}], slowdown = 20 }}]"
        overrides = [f"run.seed={seed}", f"network.loss={loss}", unusual, device, *method, *SGD[optimizer]]
        with kept(tmp_path, LOSSY, *overrides) as simulation:
            assert require_sums(simulation) > 5

    are_sums()


def test_models_that_are_traced_apart_have_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path, LOSSY, *AFFINE["cobo"], "training.optimizer=adam").directory
    assert path is not None
    together = lineage_of(path)
    monkeypatch.setattr("sim.run.resume.lineage._NUMBERS_AT_ONCE", 1)
    apart = lineage_of(path)
    assert_frame_equal(apart.sources, together.sources)
    assert apart.reads == together.reads  # each job is counted once


def test_weights_of_samples_from_other_vectors_are_named(tmp_path: Path) -> None:
    (tmp_path / "weighs.py").write_text(
        "from protocols import Client\n\n"
        "class Weighs(Client):\n"
        "    async def step(self):\n"
        "        weights = await self.loss(self.params, on='train', reduction='none')\n"
        "        update = await self.train(1, weights=weights)\n"
        "        self.params = self.params + update\n"
    )
    path = run(tmp_path, LOSSY, "protocol.name=weighs.py:Weighs").directory
    assert path is not None
    assert {reason for reason, _ in lineage_of(path).reads} == {SAMPLES}


@pytest.mark.parametrize(
    "end",
    [
        ("run.iterations=3", "run.evaluate_every=1 iterations"),
        ("run.budget.steps=4", "run.evaluate_every=100 ms"),
        ("run.converged={patience='300 ms', tolerance=1.0}", "run.evaluate_every=100 ms"),
    ],
    ids=lambda end: end[0].partition("=")[0],
)
def test_a_run_that_ended_before_its_duration_has_lineage(tmp_path: Path, end: tuple[str, ...]) -> None:
    path = run(tmp_path, LOSSY, "protocol.name=gossip", "churn=[]", *end).directory
    assert path is not None
    end_s = front.Run(path).summary["virtual_seconds"]
    assert lineage_of(path).sources["time"].max() == end_s
    assert lineage_of(path, end_s, 0).sources["time"].unique().to_list() == [end_s]

"""Sweeps from Python: what the command runs and compares, as data frames."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import coterie
from coterie import Sweep, UserError
from protocols.decentralized import local
from sim.cli.studies import app
from sim.studies.index import plugin_names
from tests.protocols.worlds import QUADRATIC

BOTH = {"protocol.name": ["gossip", "local"], "run.evaluate_every": "4 s"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    return coterie.sweep(folder / "world.toml", set=BOTH, seeds=2, jobs=1, out=folder / "runs", quiet=True)


@pytest.mark.long
def test_a_sweep_has_a_row_for_each_run(swept: Sweep) -> None:
    assert swept.runs.columns == ["protocol.name", "seed", "state", "directory"]
    assert swept.runs.select("protocol.name", "seed").rows() == [
        ("gossip", 0),
        ("gossip", 1),
        ("local", 0),
        ("local", 1),
    ]
    assert set(swept.runs["state"]) == {"done"}
    assert [run.summary["protocol"] for run in swept.load()] == ["gossip", "gossip", "local", "local"]
    assert "4 runs" in repr(swept) and "<table" in swept._repr_html_()


def test_the_same_call_runs_nothing_again(swept: Sweep) -> None:
    file = swept.directory.parents[1] / "world.toml"
    again = coterie.sweep(file, set=BOTH, seeds=2, jobs=1, out=swept.directory.parent, quiet=True)
    assert again.directory == swept.directory and again.runs.equals(swept.runs)


@pytest.mark.long
def test_compared_as_by_the_command(swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compared = coterie.compare(swept, baseline="protocol.name=local")
    result = CliRunner().invoke(
        app, ["compare", str(swept.directory), "--baseline", "protocol.name=local", "--out", "by_command"]
    )
    assert result.exit_code == 0, result.output
    page = compared.write("by_hand")
    for name in ("table.csv", "curves.csv", "runs.csv", "comparison.html"):
        assert (page.parent / name).read_bytes() == (tmp_path / "by_command" / name).read_bytes(), name
    assert compared.table.height == 2 * compared.table["metric"].n_unique()
    assert compared.table.filter(**{"protocol.name": "local"})["difference"].null_count() > 0
    assert (compared.curves["seconds"].min(), compared.curves["seconds"].max()) == (0.0, 8.0)
    assert compared.runs["seed"].to_list() == [0, 1, 0, 1] and compared.target.height == 0


def test_what_must_be_known_of_a_comparison_is_shown(swept: Sweep) -> None:
    compared = coterie.compare(swept)
    steps, samples = compared.warnings
    assert steps.startswith("unequal budgets: training steps per client from 7 (gossip) to 16 (local)")
    assert repr(compared) == f"<Compared 2 groups of runs>\nwarning: {steps}\nwarning: {samples}"
    assert compared._repr_html_().endswith(f"<p>warning: {steps}</p><p>warning: {samples}</p>")
    equal = coterie.compare(swept.load()[2:])
    assert equal.warnings == [] and repr(equal) == "<Compared 1 groups of runs>"


def test_single_runs_are_compared_too(swept: Sweep) -> None:
    first, *_, last = swept.load()
    assert coterie.compare(first, last.directory).runs.height == 2
    assert coterie.compare([first, last], metrics="distance").runs.height == 2


def test_methods_are_an_axis_by_either_name(swept: Sweep) -> None:
    """The axis of single runs is `protocol`, that of a sweep the key."""
    runs = swept.load()
    for each in (swept, runs):
        by_key = coterie.compare(each, baseline="protocol.name=local", by="protocol.name").table
        assert by_key.equals(coterie.compare(each, baseline="protocol=local", by="protocol").table)
        assert by_key["difference"].null_count() == by_key.height / 2
    with pytest.raises(UserError, match=r"--by protocol\.nam: unknown axis"):
        coterie.compare(runs, by="protocol.nam")


def test_what_cannot_be_swept_or_compared_is_refused(swept: Sweep, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'gossip'"):
        coterie.sweep(swept.directory.parents[1] / "world.toml", set={"protocol.name": ["gosip"]}, quiet=True)
    for none in ((), ([],)):
        with pytest.raises(UserError, match="nothing to compare"):
            coterie.compare(*none)
    with pytest.raises(UserError, match="target = '60%': must be a finite number"):
        coterie.compare(swept, target="60%")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="write the scenario to a file"):
        coterie.sweep({})  # type: ignore[arg-type]
    for seeds in (0, "1-3", [1.5], [], [1, 1], 10**9):
        with pytest.raises(UserError, match=r"seeds = .*: must be a number of seeds"):
            coterie.sweep("gossip", seeds=seeds)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="must contain at least one value"):
        coterie.sweep("gossip", set={"network.loss": []})
    with pytest.raises(UserError):
        Sweep(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        {"clients": "0-3"},
        {"clients": [-1]},
        {"clients": [1.0]},
        {"clients": ["client-1"]},
        {"clients": 3},
        {"clients": []},
        {"metrics": 3},
        {"metrics": [3]},
        {"by": 3},
        {"baseline": {"protocol.name": "local"}},
    ],
)
def test_arguments_of_another_kind_are_refused_in_words(swept: Sweep, given: dict[str, Any]) -> None:
    """A client numbered -1 was the last one."""
    with pytest.raises(UserError, match=rf"^{next(iter(given))} = .*: must be a "):
        coterie.compare(swept, **given)


@pytest.mark.parametrize("given", [{"jobs": 0}, {"jobs": "2"}, {"together": 0}, {"jobs": 1.5}, {"only": 3}])
def test_arguments_of_sweeps_of_another_kind_are_refused_in_words(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^{next(iter(given))} = .*: must be a "):
        coterie.sweep("gossip", **given)


def test_one_text_narrows_a_sweep_as_a_list_of_one_does(swept: Sweep) -> None:
    file, where = swept.directory.parents[1] / "world.toml", {"out": swept.directory.parent, "quiet": True}
    found = [
        coterie.sweep(file, set=BOTH, seeds=2, jobs=1, only=only, **where)
        for only in (
            "protocol.name=local",
            ["protocol.name=local"],
            {"protocol.name": "local"},
            {"protocol.name": ["local"]},
        )
    ]
    assert len({each.directory for each in found}) == 1 and found[0].runs.height == 2


def test_a_class_of_a_notebook_is_run_without_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(coterie.Client):
        pass

    Mine.__qualname__, Mine.__module__ = "Mine", "__main__"
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    for methods, key in (([local.Local, Mine], "protocol.name.1"), (Mine, "protocol.name")):
        with pytest.raises(
            UserError, match=f"^{key} = Mine: .*, because results keep a copy of the code; .*, protocol=Mine"
        ):
            coterie.sweep("gossip", set={"protocol.name": methods})


@pytest.mark.long
def test_what_failed_is_told(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    (tmp_path / "fails.py").write_text(
        "from coterie import Client\n\n\nclass Fails(Client):\n"
        "    async def step(self):\n        await self.train()\n        raise ValueError('no step')\n",
        encoding="utf-8",
    )
    methods = {"protocol.name": ["local", str(tmp_path / "fails.py:Fails")]}
    with pytest.raises(RuntimeError, match=r"1 of 2 runs failed:\n.*no step.*fails.py:7") as failed:
        coterie.sweep(tmp_path / "world.toml", set=methods, jobs=1, out=tmp_path / "runs", quiet=True)
    assert isinstance(failed.value, coterie.SweepFailed)
    sweep = failed.value.sweep
    assert f"coterie.compare(coterie.Sweep('{sweep.directory}'))" in str(failed.value)
    assert sweep.runs["state"].to_list() == ["done", "failed"]
    assert [run.summary["protocol"] for run in sweep.load()] == ["local"]
    [(cell, why)] = sweep.failed.items()
    assert "fails.py:Fails, seed" in cell and "no step" in why
    kept = coterie.load(sweep.directory.parent / sweep.runs["directory"][1])
    assert kept.summary["failed"] is not None
    assert coterie.compare(sweep).warnings[0].startswith(f"no results: {cell}: 4 of 4 clients failed")


def test_only_unique_names_stand_for_their_code() -> None:
    assert plugin_names(
        ["/a/one.py:A", "two.py:A", "pack.two:B", "gossip", "/a/own.py:gossip", 3, "12:30"]
    ) == {"pack.two:B": "B"}


@pytest.mark.long
def test_classes_are_values_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    (tmp_path / "idle_to_sweep.py").write_text(
        "from coterie import Client\n\n\nclass Idle(Client):\n"
        "    async def step(self):\n        await self.train()\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    idle = importlib.import_module("idle_to_sweep").Idle
    values = {"protocol.name": [idle, local.Local]}
    found = coterie.sweep(tmp_path / "world.toml", set=values, jobs=1, out=tmp_path / "runs", quiet=True)
    assert [run.summary["protocol"] for run in found.load()] == ["Idle", "Local"]
    written = f"protocol.name={tmp_path / 'idle_to_sweep.py'}:Idle"
    for baseline in ("protocol.name=Idle", written):
        compared = coterie.compare(found, baseline=baseline)
        assert compared.table["protocol.name"].unique(maintain_order=True).to_list() == ["Idle", "Local"]
        assert compared.table.filter(**{"protocol.name": "Idle"})["difference"].null_count() == 2
    assert found.runs["protocol.name"].to_list() == ["Idle", "Local"]
    chosen = {"set": values, "jobs": 1, "out": tmp_path / "runs", "quiet": True}
    one = coterie.sweep(tmp_path / "world.toml", only=["protocol.name=Idle"], **chosen)  # type: ignore[arg-type]
    assert one.runs["protocol.name"].to_list() == ["Idle"]
    same = coterie.sweep(tmp_path / "world.toml", only={"protocol.name": idle}, **chosen)  # type: ignore[arg-type]
    assert same.directory == one.directory
    with pytest.raises(
        UserError, match=r"--only .*: must be an axis and one of its values: protocol.name=Idle\|Local"
    ):
        coterie.sweep(tmp_path / "world.toml", only=["protocol.name=Idol"], **chosen)  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"is a sweep; read its runs with coterie.Sweep\(directory\).load\(\)"
    ):
        coterie.load(found.directory)

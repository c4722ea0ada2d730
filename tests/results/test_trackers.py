"""Trackers are told what a run has measured: by their own clients, on this machine alone."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results import trackers
from sim.results.evaluations import Evaluation, evaluations
from sim.results.store.run_directory import RunDirectory
from tests.protocols.worlds import QUADRATIC
from tests.simulation.worlds import run

ODD = """\
from coterie import Client

class Odd(Client):
    async def step(self):
        await self.train()
        self.observe("share (in %) of 'all'", 50.0)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "odd.py").write_text(ODD, encoding="utf-8")
    method = f"protocol.name={folder / 'odd.py'}:Odd"
    found = run(folder, QUADRATIC, method, "run.evaluate_every=4 s").directory
    assert found is not None
    return RunDirectory.load(found)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever asks for a server, in this process or another, asks a proxy, which nobody may."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        place = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, place)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield
        proxy.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def report(directory: RunDirectory, *options: str) -> Result:
    return CliRunner().invoke(app, ["report", str(directory.path), *options])


def step(evaluation: Evaluation) -> int:
    return round(evaluation.time * 1000)


@pytest.mark.long
@pytest.mark.usefixtures("no_network")
def test_wandb_has_an_offline_run(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("HOME", str(directory.path.parent))
    for _ in range(2):  # the second replaces the first
        told = report(directory, "--track", "wandb")
        assert (told.exit_code, told.stdout.splitlines()[-1]) == (0, f"wandb: {directory.path / 'wandb'}")
    [file] = directory.path.glob("wandb/offline-run-*/*.wandb")
    records = list(records_of(file))
    history = [each.history for each in records if each.WhichOneof("record_type") == "history"]
    assert [each.step.num for each in history] == [0, 4000, 8000]
    for evaluation, told_of in zip(evaluations(directory), history, strict=True):
        values = {(item.key or ".".join(item.nested_key)): float(item.value_json) for item in told_of.item}
        assert evaluation.scalars().items() <= values.items()
        assert values["time"] == evaluation.time
    [begun] = [each.run for each in records if each.WhichOneof("record_type") == "run"]
    assert (begun.project, begun.display_name) == ("coterie", directory.path.name)
    assert {"run", "clients", "protocol"} <= {update.key for update in begun.config.update}


def records_of(file: Path) -> Iterator[Any]:
    """What W&B's file holds: LevelDB's log format, behind 7 bytes of its own."""
    from wandb.proto import wandb_internal_pb2

    content, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (left := 32_768 - place % 32_768) < 7:  # of a block
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


@pytest.mark.usefixtures("no_network")
def test_mlflow_has_a_run_in_a_store_beside_the_results(directory: RunDirectory) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.tracking import MlflowClient

    store = directory.path.parent / "mlruns"
    for _ in range(2):
        told = report(directory, "--track", "mlflow")
        assert (told.exit_code, told.stdout.splitlines()[-1]) == (0, f"mlflow: {store}")
    client = MlflowClient(tracking_uri=store.as_uri())
    found = client.get_experiment_by_name("coterie")
    assert found is not None
    [one] = client.search_runs([found.experiment_id])
    assert (one.info.run_name, one.info.status) == (directory.path.name, "FINISHED")
    assert one.data.params["clients.count"] == "4" and one.data.params["run.seed"] == "0"
    for name in ("distance/mean", "all/bytes_sent", "share (in %) of 'all'/max"):
        expected = [
            (step(each), each.scalars()[name]) for each in evaluations(directory) if name in each.scalars()
        ]
        history = client.get_metric_history(one.info.run_id, name.translate(str.maketrans("(%)'", "____")))
        assert [(each.step, each.value) for each in history] == expected != []


def test_tensorboard_may_be_asked_for_in_both_ways(directory: RunDirectory) -> None:
    pytest.importorskip("tensorboard")
    told = report(directory, "--track", "tensorboard", "--tensorboard")
    assert told.exit_code == 0 and told.stdout.count("tensorboard: ") == 1
    assert len(list(directory.path.glob("events.out.tfevents.*"))) == 1


def test_a_tracker_that_fails_says_so_and_the_results_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(evaluation: Evaluation) -> dict[str, float]:
        raise ValueError("no such thing")

    monkeypatch.setattr(Evaluation, "scalars", fails)
    world, out = tmp_path / "world.toml", tmp_path / "runs"
    world.write_text(QUADRATIC, encoding="utf-8")
    pytest.importorskip("tensorboard")
    told = CliRunner().invoke(app, ["run", str(world), "--track", "tensorboard", "--out", str(out), "-q"])
    [folder] = out.iterdir()
    assert told.exit_code == 1
    said = f"--track tensorboard failed: ValueError: no such thing; the run's results are in {folder}"
    assert said in told.stderr
    assert RunDirectory.load(folder).summary()["finished"] is True


def test_what_is_no_tracker_is_refused(directory: RunDirectory) -> None:
    told = report(directory, "--track", "paper")
    assert told.exit_code == 2 and "wandb" in told.stderr
    assert set(os.listdir(Path(trackers.__file__).parent)) >= {"tensorboard.py", "wandb.py", "mlflow.py"}

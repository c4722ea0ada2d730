"""Sweeps on a Ray cluster give what they give here, and a node that dies costs its cells a second try."""

import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.errors import UserError
from sim.studies.cells import Plan, plan
from sim.studies.on_ray import ray_executor
from sim.studies.sweep import SweepResult, run_sweep
from tests.simulation.kinds import KINDS
from tests.studies.conftest import here
from tests.studies.test_sweep import cells_of, command, hashes
from tests.studies.worlds import STUDY, study

slow = pytest.mark.slow


@slow
def test_two_nodes_give_the_traces_of_this_process(
    small: tuple[Plan, SweepResult], tmp_path: Path, nodes: Any
) -> None:
    planned, result = small
    other = run_sweep(planned, out=tmp_path, execute=ray_executor(nodes.address))
    assert other.errors == {} and hashes(other.directory) == hashes(result.directory)
    again = run_sweep(planned, out=tmp_path, execute=ray_executor("nowhere:1"))  # nothing is left to do there
    assert again.finished_before == again.cells == 8


@slow
def test_scenarios_of_all_kinds_run_on_a_cluster(tmp_path: Path, nodes: Any) -> None:
    for number, kind in enumerate(KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        file, stated = KINDS[kind](folder)
        planned = plan(file, ["run.duration=2 s", *stated], seeds=(1, 2))
        result = run_sweep(planned, out=folder / "ray", execute=ray_executor(nodes.address))
        whole = run_sweep(planned, out=folder / "here", execute=here)
        assert result.errors == whole.errors == {}, kind
        assert hashes(result.directory) == hashes(whole.directory), kind


SLOW = '''
import time
from pathlib import Path

from protocols import Client
from pydantic import PositiveInt


class Slow(Client):
    """Notes in a file that it has begun, and takes a while of real time."""

    begun = False

    class Settings(Client.Settings):
        notes: str
        number: PositiveInt

    async def step(self):
        await self.train(1)
        if self.name == "client-0" and not self.begun:
            self.begun = True
            with open(Path(self.settings.notes) / str(self.settings.number), "a") as file:
                file.write("begun\\n")
            time.sleep(4)
'''


@slow
def test_a_node_that_dies_costs_its_cells_a_second_try(tmp_path: Path, nodes: Any) -> None:
    folder, notes = tmp_path / "files", tmp_path / "notes"
    folder.mkdir()
    notes.mkdir()
    (folder / "slow_method.py").write_text(SLOW)
    method = f'"slow_method.py:Slow"\nnotes = "{notes}"\nnumber = 1'
    text = STUDY[: STUDY.index("[sweep]")].replace('"local"', method)
    planned = plan(study(folder, text), ["protocol.number=1,2,3,4"])

    def kill() -> None:
        until = time.monotonic() + 120
        while len(list(notes.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        nodes.remove_node(nodes.second, allow_graceful=False)

    killer = Thread(target=kill)
    killer.start()
    result = run_sweep(planned, out=tmp_path / "ray", execute=ray_executor(nodes.address))
    killer.join()
    assert result.errors == {} and {cell["state"] for cell in cells_of(result.directory)} == {"done"}
    begun = {file.name: len(file.read_text().splitlines()) for file in notes.iterdir()}
    assert sorted(begun.values()) == [1, 1, 1, 2]
    whole = run_sweep(planned, out=tmp_path / "here", execute=here)
    assert hashes(result.directory) == hashes(whole.directory)


@slow
def test_the_command_begins_a_cluster_of_its_own(small: tuple[Plan, SweepResult], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    planned, result = small
    words = command(planned.file, tmp_path)
    done = subprocess.run([*words, "--on", "ray"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "8 of 8 runs finished" in done.stdout
    assert hashes(tmp_path / result.directory.name) == hashes(result.directory)


def test_without_ray_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'coterie\[ray\]'"):
        run_sweep(plan(study(tmp_path)), out=tmp_path, execute=ray_executor())


@pytest.mark.long
def test_a_device_is_one_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine needs none; nothing is left to do there, either."""
    arguments = ["sweep", str(study(tmp_path)), "--out", str(tmp_path / "out"), "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    elsewhere = CliRunner().invoke(app, [*arguments, "--on", "ray", "--device", "cuda"])
    assert elsewhere.exit_code == 0 and "8 of them earlier" in elsewhere.output, elsewhere.output
    assert CliRunner().invoke(app, [*arguments, "--device", "cuda"]).exit_code == 2

"""What a client holds and waits for at a moment of a run."""

import json
from pathlib import Path

import pytest
import torch

from sim.learning.engine.workers import Workers
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup import builder
from sim.run.setup import engine as engine_of
from tests.protocols.worlds import churn
from tests.resume.test_resume import coterie
from tests.simulation.worlds import QUADRATIC, load, run

ASKS = """\
from dataclasses import dataclass
from actors.message import PeerUnavailable
from protocols import Client

@dataclass(frozen=True)
class Note:
    number: int

@dataclass(frozen=True)
class Question:
    pass

class Asks(Client):
    collected = (Note,)

    async def step(self):
        self.told = 1.0 + float(self.params.numpy()[0])
        for peer in self.peers:
            self.tell(peer, Note(self.iterations))
        try:
            await self.ask("client-1", Question(), timeout=8.0)
        except PeerUnavailable:
            pass

    async def on_message(self, message, sender):
        await self.sleep(100)
"""


@pytest.mark.long
def test_a_client_is_explained(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    overrides = ["protocol.name=asks.py:Asks", "run.duration=2 s", "run.evaluate_every=1 s"]
    path = run(tmp_path, QUADRATIC, *overrides).directory

    def explained(client: int | str, time: str) -> dict[str, str]:
        result = coterie("explain", path, "--at", time, "--client", client)
        assert result.exit_code == 0, result.output
        return dict(line.split(maxsplit=1) for line in result.stdout.splitlines())

    rows = explained(0, "1500 ms")
    assert rows["client"] == "client-0, up at 1.5 s"
    assert (
        "waits for" in rows["activity"] and "Question" in rows["activity"] and "client-1" in rows["activity"]
    )
    assert sorted(rows["mailbox"].split(", ")) == [f"Note from client-{peer}" for peer in range(1, 6)]
    assert rows["peers"].split(", ") == [f"client-{peer}" for peer in range(1, 6)]
    assert rows["told"] == "1.0"
    assert "observe" not in rows and not any(" at 0x" in value for value in rows.values())

    assert explained("client-0", "1500 ms") == rows

    for client, time, problem in (
        (6, "1 s", "--client 6: must be from 0 to 5"),
        ("client-6", "1 s", "--client client-6: must be from 0 to 5, or a name, such as client-0"),
        ("-1", "1 s", "--client -1: must be from 0 to 5"),
        ("\u0663", "1 s", "must be from 0 to 5, or a name"),
        ("", "1 s", "must be from 0 to 5, or a name"),
        (0, "3 s", "the run ended at 2 s, before the requested time, 3 s"),
    ):
        result = coterie("explain", path, "--at", time, "--client", client)
        assert result.exit_code == 2
        assert problem in result.stderr


def test_a_run_on_several_devices_is_explained_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as two:
        two.setattr(builder, "first_device", lambda devices, name: torch.device("cpu"))
        two.setattr(engine_of, "DeviceWorkers", lambda devices, data: Workers(len(devices)))
        scenario = load(tmp_path, QUADRATIC, 'engine.devices=["cuda:0", "cuda:1"]')
        path = run_scenario(scenario, RunOptions(out=tmp_path, device="auto")).directory
    result = coterie("explain", path, "--at", "1 s", "--client", 0)
    assert result.exit_code == 0, result.output


def test_who_trains_is_said_to_and_since_when(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC, "devices.step_time=1 s", "run.evaluate_every=1 s").directory
    result = coterie("explain", path, "--at", "2500 ms", "--client", 1)
    assert result.exit_code == 0, result.output
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert rows["device"] == "busy since 2 s, 0 jobs queued, 2 training steps so far"
    assert rows["activity"].startswith("trains; iteration 3") and "waits for its device" in rows["activity"]
    assert set(rows) == {"client", "device", "activity", "mailbox", "peers", "finished", "iterations"}


def test_a_client_without_state_has_not_joined_or_has_lost_it(tmp_path: Path) -> None:
    moves = churn("crash", 1, "1 s") + churn("join", 2, "1500 ms")
    path = run(tmp_path, QUADRATIC + moves, "devices.step_time=1 s", "run.evaluate_every=1 s").directory
    for client, state in ((1, "none: its state is lost"), (2, "none: the client has not joined yet")):
        result = coterie("explain", path, "--at", "1200 ms", "--client", client)
        rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
        assert rows["state"] == state


def test_without_a_time_the_end_is_explained(tmp_path: Path) -> None:
    returns = churn("crash", 1, "1 s") + churn("rejoin", 1, "2500 ms", "keep") + churn("join", 2, "1500 ms")
    path = run(tmp_path, QUADRATIC + returns, "devices.step_time=1 s", "run.evaluate_every=1 s").directory
    end_s = json.loads((path / "summary.json").read_text())["virtual_seconds"]
    rejoined = "crashed at 1 s, rejoined with its state at 2.5 s"
    for client, moves in ((0, None), (1, rejoined), (2, "joined at 1.5 s")):
        shown = coterie("explain", path, "--client", client)
        assert shown.exit_code == 0, shown.output
        assert shown.stdout == coterie("explain", path, "--at", f"{end_s} s", "--client", client).stdout
        rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
        assert rows["client"] == f"client-{client}, up at {end_s:g} s"
        assert rows.get("moves") == moves
        assert not {"late", "newcomer"} & set(rows)
    for name in ("summary.json", "checksums.json"):  # as a killed process leaves its files
        (path / name).unlink()
    path.rename(path.with_name(f".{path.name}.0123abcd"))
    assert coterie("explain", path, "--client", 0).exit_code == 0, "the duration of the run"


def test_only_the_last_moves_of_a_client_are_shown(tmp_path: Path) -> None:
    moves = "".join(
        churn("crash", 1, f"{n}500 ms") + churn("rejoin", 1, f"{n + 1} s", "fresh") for n in range(1, 5)
    )
    path = run(tmp_path, QUADRATIC + moves, "devices.step_time=1 s", "run.iterations=12").directory
    shown = coterie("explain", path, "--at", "4500 ms", "--client", 1)
    assert shown.exit_code == 0, shown.output
    rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    last = "crashed at 3.5 s, rejoined without a model at 4 s, crashed at 4.5 s"
    assert rows["moves"] == f"3 earlier, rejoined without a model at 3 s, {last}"


def test_a_folder_of_runs_is_refused_with_the_name_of_a_run(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC).directory
    assert path is not None
    for words in (("explain", path.parent, "--client", 0), ("resume", path.parent)):
        refused = coterie(*words)
        assert refused.exit_code == 2
        assert refused.stderr.endswith(f"and no reads.log; name a run in it, such as {path}\n")
    (tmp_path / "empty").mkdir()
    refused = coterie("explain", tmp_path / "empty", "--client", 0)
    assert refused.exit_code == 2
    assert refused.stderr.endswith("it has no scenario.toml and no reads.log\n")


def test_who_has_finished_is_said_to_have(tmp_path: Path) -> None:
    overrides = ["run.budget.steps=3", "run.duration=20 s", "devices.override=[{clients=[1], slowdown=9}]"]
    result = run(tmp_path, QUADRATIC, "protocol.name=gossip", *overrides)
    path, spent_s = result.directory, result.summary["budget"]["spent_seconds"]
    assert spent_s[0] < 3 < spent_s[1]
    said = {}
    for client in ("0", "1"):
        shown = coterie("explain", path, "--at", "3 s", "--client", client)
        assert shown.exit_code == 0, shown.output
        said[client] = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())["activity"]
    assert said["0"] == f"finished: its budget was exhausted at {spent_s[0]:g} s"
    assert "finished" not in said["1"] and "iteration" in said["1"]

"""Keys taken away, protocols swapped by --set, and what is said about it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import sim
from sim.cli.commands import app
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import FULL, SMALL, changed, write

SCENARIOS = Path(sim.__path__[0]).parent / "scenarios"
FEDAVG = SCENARIOS / "fedavg.toml"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_scenario_runs_without_its_protocol(path: Path) -> None:
    before, scenario = load_scenario(path), load_scenario(path, ["protocol.name=local"])
    assert scenario.protocol.name == "local"
    assert next(scenario.network.about_servers(), None) is None
    # Nothing goes silently: what the file said and the new protocol does not know is told.
    lost = set(before.protocol.settings.model_fields_set) - {"local_steps", "local_epochs"}
    for key in lost:
        assert f"protocol.{key}" in scenario.notices[0]


def test_what_a_protocol_without_servers_cannot_use_is_left_out_and_told() -> None:
    scenario = load_scenario(FEDAVG, ["protocol.name=local"])
    assert scenario.network.server is None
    assert scenario.protocol.settings.model_dump()["local_steps"] == 10  # both know it
    assert scenario.notices == (
        'removed, as protocol.name = "local" has no such keys: protocol.fraction, protocol.patience, '
        "protocol.broadcast; and has no servers: network.server",
    )


def test_an_own_protocol_is_named_as_it_was_typed(tmp_path: Path) -> None:
    lines = ["from protocols.framework.client import Client", "", "", "class Mine(Client):"]
    lines += ["    async def step(self):", "        await self.sleep(1)", ""]
    (tmp_path / "mine.py").write_text("\n".join(lines), encoding="utf-8")
    scenario = load_scenario(write(tmp_path, SMALL), ["protocol.name=mine.py:Mine"])
    assert scenario.notices[0].startswith('removed, as protocol.name = "mine.py:Mine" has no such keys: ')


def test_the_command_says_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.run.setup.checking.check", lambda *given: None)
    for name in ("outline", "setting_notices"):
        monkeypatch.setattr(f"sim.cli.outline.{name}", lambda *given: [])
    result = CliRunner().invoke(app, ["check", str(FEDAVG), "--set", "protocol.name=local"])
    assert result.exit_code == 0
    assert result.stderr.startswith(f"{FEDAVG}: removed, as ")
    assert result.stderr.count("\n") == 1


def test_a_protocol_with_servers_keeps_what_is_said_about_them() -> None:
    scenario = load_scenario(
        FEDAVG, ["protocol.name=pfedsim", "model={ name = 'decoupled', backbones = ['small-mlp'] }"]
    )
    assert scenario.network.server is not None
    assert "network.server" not in "".join(scenario.notices)


def test_classes_and_places_of_servers_are_left_out_and_those_of_clients_stay(tmp_path: Path) -> None:
    text = changed(
        FULL, 'latency = { kind = "lognormal", median = "50 ms", sigma = 0.5 }', 'latency = "50 ms"'
    )
    text = changed(text, 'name = "gossip"\nperiod = "35 ms"\nmerge = "age"', 'name = "fedavg"')
    text += '\n[[network.class]]\nservers = true\nlatency = "1 ms"\n'
    text += '\n[[network.class]]\ninside = [[0, 1]]\nlatency = "2 ms"\n'
    scenario = load_scenario(write(tmp_path, text), ["protocol.name=local"])
    assert [kind.inside for kind in scenario.network.classes] == [((0, 1),)]
    assert scenario.notices[0].endswith("no servers: network.server, network.class.0")


def test_what_is_stated_for_the_new_protocol_is_never_left_out() -> None:
    with pytest.raises(UserError, match=r"protocol\.fraction = 0\.5 \(from --set\): unknown key"):
        load_scenario(FEDAVG, ["protocol.name=local", "protocol.fraction=0.5"])
    stated = load_scenario(FEDAVG, ["protocol.name=local", 'network.server.uplink="1 Mbit/s"'])
    assert stated.network.server is not None  # to be refused when the world is built


def test_a_file_of_another_protocol_is_not_mended(tmp_path: Path) -> None:
    text = changed(SMALL, 'name = "gossip"', 'name = "local"')
    with pytest.raises(UserError, match=r"protocol\.period = .*unknown key"):
        load_scenario(write(tmp_path, text))


def test_keys_are_taken_away_before_any_is_stated(tmp_path: Path) -> None:
    path = write(tmp_path, FULL)
    scenario = load_scenario(
        path,
        ['network.latency="5 ms"'],
        unset=["network.server", "network.latency", "churn.0", "churn.2", "run.target_accuracy"],
    )
    assert scenario.network.server is None
    assert scenario.network.latency.value == 0.005  # type: ignore[union-attr]
    assert [entry.event for entry in scenario.churn] == ["crash"]
    assert scenario.run.target_accuracy is None
    assert scenario.overrides == (
        *("--unset network.server", "--unset network.latency", "--unset churn.0"),
        *("--unset churn.2", "--unset run.target_accuracy", 'network.latency="5 ms"'),
    )
    assert load_scenario(write(tmp_path, to_toml(scenario), "again.toml")) == scenario


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("network.sever", "no such key; network has latency, uplink, downlink"),
        ("netwrok", "no such key; the file has run, clients, data, model, "),
        ("clients.count.x", "clients.count is 4, which has no keys"),
        ("model.hidden.1", "model.hidden is a list; its index must be 0"),
        ("", "must be section.key, such as network.server"),
        ("run..seed", "must be section.key, such as network.server"),
    ],
)
def test_only_what_is_there_can_be_taken_away(tmp_path: Path, key: str, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        load_scenario(path := write(tmp_path, SMALL), unset=[key])
    assert str(error.value).startswith(f"{path}: --unset {key}: {complaint}")


def test_what_is_needed_cannot_be_taken_away(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(write(tmp_path, SMALL)), "--unset", "clients.count"])
    assert result.exit_code == 2
    assert "clients.count: is missing; write a whole number, more than 0" in result.output


# Code -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", ["trap.py:Trap", "trap:Trap", "protocols.decentralized.gossip:Gossip"])
def test_no_code_executes_nothing_that_the_scenario_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = write(tmp_path, changed(SMALL, 'name = "gossip"\nperiod = "500 ms"', f'name = "{name}"'))
    result = CliRunner().invoke(app, [command, str(path), "--no-code"])
    assert result.exit_code == 2
    assert (
        "needs Python code that does not come with coterie, which --no-code forbids; allowed: afl, cga, "
        in result.output
    )
    assert not (tmp_path / "sprung").exists()


def test_a_protocol_file_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\n\nsys.exit(0)\n")
    path = write(tmp_path, changed(SMALL, 'name = "gossip"\nperiod = "500 ms"', 'name = "leaves.py:Leaves"'))
    with pytest.raises(UserError, match=r"leaves\.py cannot be loaded \(line 3\): SystemExit: 0"):
        load_scenario(path)


def test_results_tell_what_was_left_out(tmp_path: Path) -> None:
    scenario = load_scenario(
        write(tmp_path, changed(SMALL, '"1 min"', '"15 s"')),
        ["protocol.name=local"],
        unset=["protocol.period"],
    )
    assert scenario.notices == ()  # it was taken away already, and not silently
    scenario = load_scenario(write(tmp_path, changed(SMALL, '"1 min"', '"15 s"')), ["protocol.name=local"])
    result = run_scenario(scenario, RunOptions(out=tmp_path))
    told = ['removed, as protocol.name = "local" has no such keys: protocol.period']
    assert RunDirectory.load(result.directory).summary()["notices"] == told

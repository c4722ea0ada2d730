"""Who is where in a live run, and which scenarios cannot be one."""

import os
from pathlib import Path

import pytest

from sim.errors import UserError
from sim.live.hosts import addresses_on, hosts_by_process, read_hosts
from sim.live.placement import COORDINATOR, place_actors, require_live
from sim.live.tokens import read_token, tls_settings
from sim.scenario.scenario import load_scenario
from sim.world.churn.schedule import ChurnEvent

CLIENTS = [f"client-{index}" for index in range(6)]


def test_clients_are_dealt_in_turns_and_servers_are_with_the_first() -> None:
    who = place_actors(CLIENTS, ["server"], [], 2)
    assert who.actors == {
        "process-0": ("server", "client-0", "client-2", "client-4"),
        "process-1": ("client-1", "client-3", "client-5"),
    }
    assert who.process_by_actor["client-3"] == "process-1"
    assert who.first == ["process-0", "process-1"]


def test_who_crashes_or_comes_later_has_a_process_of_its_own() -> None:
    events = [
        ChurnEvent(5.0, "crash", (1,)),
        ChurnEvent(9.0, "rejoin", (1,)),
        ChurnEvent(7.0, "join", (4,)),
        ChurnEvent(8.0, "leave", (0,)),
    ]
    who = place_actors(CLIENTS, [], events, 2)
    assert who.actors["process-2"] == ("client-1",)
    assert who.actors["process-3"] == ("client-4",)
    assert who.kills == ((5.0, "process-2"),)
    assert who.returns == ((9.0, "process-2"),)
    assert who.starts == {"process-3": 7.0}
    assert who.first == ["process-0", "process-1", "process-2"]


def test_who_only_leaves_comes_back_in_the_same_process() -> None:
    events = [ChurnEvent(5.0, "leave", (1,)), ChurnEvent(9.0, "rejoin", (1,))]
    who = place_actors(CLIENTS, [], events, 2)
    assert who.kills == who.returns == ()


def test_more_processes_than_clients_are_not_needed() -> None:
    assert len(place_actors(CLIENTS, [], [], 50).actors) == 6


@pytest.mark.parametrize(
    ("name", "overrides", "refused"),
    [
        ("cobo_cross_silo", (), "run.duration: is required"),
        ("gossip", ("run.iterations=5",), "run.iterations: must be removed"),
        ("gossip", ("run.budget.steps=5",), "run.budget: must be removed"),
        ("gossip", ("run.evaluate_every=2 iterations",), 'run.evaluate_every: must be a time, such as "5 s"'),
        ("gossip", ("run.shuffle_ties=true",), "run.shuffle_ties: must be false"),
        ("gossip", ("network.membership.kind=all-knowing",), "needs a simulated network"),
        ("gossip", ("run.converged.patience=10 s",), "run.converged: must be removed"),
    ],
)
def test_what_cannot_be_on_the_wall_clock_is_refused(
    name: str, overrides: tuple[str, ...], refused: str
) -> None:
    with pytest.raises(UserError) as error:
        require_live(load_scenario(name, overrides))
    assert refused in str(error.value)


HOSTS = """
[[host]]
name = "a"
address = "10.0.0.1"
processes = 2

[[host]]
name = "b"
address = "10.0.0.2"
port = 9000
"""


def test_hosts_have_the_processes_that_their_file_says(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS)
    hosts = read_hosts(file)
    who = place_actors(CLIENTS, [], [ChurnEvent(5.0, "crash", (1,))], 3)
    assert {process: host.name for process, host in hosts_by_process(hosts, who).items()} == {
        COORDINATOR: "a",
        "process-0": "a",
        "process-1": "a",
        "process-2": "b",
        "process-3": "a",  # for the client that crashes, where the coordinator can end it
    }
    addresses = addresses_on(hosts, who)
    assert [(each.host, each.port) for each in addresses.values()] == [
        ("10.0.0.1", 7600),
        ("10.0.0.1", 7601),
        ("10.0.0.1", 7602),
        ("10.0.0.2", 9000),
        ("10.0.0.1", 7603),
    ]


def test_a_client_that_crashes_is_on_the_first_machine_though_another_has_room(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS)
    events = [ChurnEvent(5.0, "crash", (1,)), ChurnEvent(6.0, "join", (2,))]
    who = place_actors(CLIENTS[:4], [], events, 3)
    assert list(who.actors.values()) == [("client-0",), ("client-3",), ("client-1",), ("client-2",)]
    found = hosts_by_process(read_hosts(file), who)
    assert {host.name for host in found.values()} == {"a"}, "only two processes stay, and a has room for both"
    who = place_actors(CLIENTS[:5], [], events, 3)
    hosts = hosts_by_process(read_hosts(file), who)
    found = {actors: hosts[process].name for process, actors in who.actors.items()}
    assert found == {
        ("client-0",): "a",
        ("client-3",): "a",
        ("client-4",): "b",
        ("client-1",): "a",
        ("client-2",): "a",
    }


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", "host: Field required"),
        ("[[host]]\nname = 'a'", "host.0.address: Field required"),
        ("[[host]]\nname = 'a/b'\naddress = 'x'", "host.0.name"),
        ("[[host]]\nname = 'a'\naddress = 'x'\nport = 70000", "host.0.port"),
        ("[[host]]\nname = 'a'\naddress = 'x'\ncolour = 1", "host.0.colour"),
        (2 * "[[host]]\nname = 'a'\naddress = 'x'\n", "host: two hosts have the name a"),
        ("[[host", "not valid TOML"),
    ],
)
def test_a_file_of_hosts_that_is_none_is_refused(tmp_path: Path, text: str, refused: str) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_hosts(file)
    assert refused in str(error.value)


@pytest.mark.parametrize("address", ["", " ", "a b", "x" * 254, "y" * 5000])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    """An empty one would be each of the machine's, to which all strangers may connect."""
    (tmp_path / "hosts.toml").write_text(f'[[host]]\nname = "one"\naddress = "{address}"\n')
    with pytest.raises(UserError, match=r"hosts\.toml: host\.0\.address: "):
        read_hosts(tmp_path / "hosts.toml")


@pytest.mark.parametrize("name", ["token", "ca.pem", "process-0.pem", "process-0.key"])
def test_a_pipe_among_the_certificates_is_not_waited_for(tmp_path: Path, name: str) -> None:
    for other in ("token", "ca.pem", "process-0.pem", "process-0.key"):
        (tmp_path / other).write_text("00" * 32)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=r"has no valid token|no valid files for process-0"):
        read_token(tmp_path)
        tls_settings(tmp_path, "process-0")

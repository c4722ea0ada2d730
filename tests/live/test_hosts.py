"""The machines of a live run, and what they prove themselves by, as files have it."""

import os
from pathlib import Path

import pytest

from sim.errors import UserError
from sim.live.hosts import read_hosts
from sim.live.tokens import TOKEN, read_token, tls_settings


def hosts_at(tmp_path: Path, address: str) -> Path:
    file = tmp_path / "hosts.toml"
    file.write_text(f"[[host]]\nname = 'a'\naddress = '{address}'\n")
    return file


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "0.0.0.0",
        "::",
        "0:0::0%eth0",
        "a" * 5_000,
        "a" * 64,
        "a..b",
        "." * 9,
        "10.0.0.1:7600",
        "b\u00fccher",
    ],
    ids=lambda address: address[:20],
)
def test_an_address_that_is_none_of_one_machine_is_refused(tmp_path: Path, address: str) -> None:
    """An empty one would have a process listen everywhere; a name that is too long has no encoding."""
    with pytest.raises(UserError, match=r"host.0.address: .*(must be an IP address|all addresses)"):
        read_hosts(hosts_at(tmp_path, address))


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "::1", "fe80::1%eth0", "node-1", "a.example.org.", "my_host"]
)
def test_addresses_and_names_are_taken(tmp_path: Path, address: str) -> None:
    assert read_hosts(hosts_at(tmp_path, address))[0].address == address


@pytest.mark.parametrize("name", [TOKEN, "ca.pem", "process-0.key"])
def test_a_pipe_among_certificates_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for other in ("ca.pem", "process-0.pem", "process-0.key"):
        if other != name:
            (tmp_path / other).write_text("none")
    with pytest.raises(UserError, match="--certificates"):
        read_token(tmp_path) if name == TOKEN else tls_settings(tmp_path, "process-0")


def test_a_folder_of_an_impossible_name_has_no_certificates() -> None:
    for folder in (Path("a\0b"), Path("a" * 5_000)):
        with pytest.raises(UserError, match="has no valid token"):
            read_token(folder)
        with pytest.raises(UserError, match="no valid files for process-0"):
            tls_settings(folder, "process-0")

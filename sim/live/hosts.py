"""The machines of a live run, from a file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from actors.settings.base import Settings
from actors.tcp.outgoing import Address
from sim.errors import UserError
from sim.live.placement import COORDINATOR, Placement
from sim.scenario.reading import toml_tables

_NAME = re.compile(r"(?=.{1,253}$)[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?")


def _require_host_address(address: str) -> str:
    """Reject text that is not the address of one machine."""
    try:
        is_everywhere = ip_address(address.partition("%")[0]).is_unspecified
    except ValueError:
        if not _NAME.fullmatch(address):
            raise ValueError(
                "must be an IP address, or a name of letters, digits and hyphens between dots"
            ) from None
    else:
        if is_everywhere:
            raise ValueError(
                "means all addresses of a machine; write the address that other machines can reach"
            )
    return address


class Host(Settings):
    """One machine. Its processes listen at consecutive ports, starting with `port`."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,60}$")]
    """Name of the machine for `--host`."""
    address: Annotated[str, AfterValidator(_require_host_address)]
    """Address or network name at which other machines can reach it."""
    port: Annotated[int, Field(ge=1, le=65_000)] = 7600
    """First port of the machine."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of processes that clients share on the machine."""


class _Hosts(Settings):
    host: tuple[Host, ...] = Field(min_length=1)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Read the `[[host]]` tables of a file; the first machine runs the coordinator. Raises UserError."""
    try:
        hosts = _Hosts.model_validate(toml_tables(path)).host
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        keys = ", ".join(Host.model_fields)
        raise UserError(f"{where}: {first['msg']}; the keys of a [[host]] are {keys}", path) from None
    names = [host.name for host in hosts]
    if len(set(names)) < len(names):
        raise UserError(f"host: two hosts have the name {max(names, key=names.count)}", path)
    return hosts


def hosts_by_process(hosts: Sequence[Host], plan: Placement) -> dict[str, Host]:
    """Return the machine of each process, and of the coordinator, which is on the first machine.

    Processes of clients that crash or join later are on the first machine, where the coordinator ends and
    starts them. The others fill the machines in order, up to the `processes` of each; further ones are on the
    first machine.
    """
    slots = itertools.chain(
        (host for host in hosts for _ in range(host.processes)), itertools.repeat(hosts[0])
    )
    found = {COORDINATOR: hosts[0]}
    for process in plan.actors:
        found[process] = hosts[0] if process in plan.coordinated else next(slots)
    return found


def addresses_on(hosts: Sequence[Host], plan: Placement) -> dict[str, Address]:
    next_port = {host.name: host.port for host in hosts}
    found = {}
    for process, host in hosts_by_process(hosts, plan).items():
        found[process] = Address(host.address, next_port[host.name])
        next_port[host.name] += 1
    return found

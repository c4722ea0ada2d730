"""The machines of a live run, from a file."""

from __future__ import annotations

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
from sim.scenario.reading import contents_of

_NAME = re.compile(r"(?=.{1,253}$)[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?")


def _reachable(address: str) -> str:
    """Refuse what is no address of one machine: a process would listen everywhere, or nobody could ask."""
    try:
        is_everywhere = ip_address(address.partition("%")[0]).is_unspecified
    except ValueError:
        if not _NAME.fullmatch(address):
            raise ValueError(
                "must be an IP address, or a name of letters, digits and hyphens between dots"
            ) from None
    else:
        if is_everywhere:
            raise ValueError("stands for all addresses of a machine; state the one that the others reach")
    return address


class Host(Settings):
    """One machine. Its processes listen at ports one behind the other, from `port` on."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,60}$")]
    """What `--host` calls it."""
    address: Annotated[str, AfterValidator(_reachable)]
    """Its address or name, by which the others reach it."""
    port: Annotated[int, Field(ge=1, le=65_000)] = 7600
    """The first of its ports."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that clients share there."""


class _Hosts(Settings):
    host: tuple[Host, ...] = Field(min_length=1)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """The machines that a file lists in `[[host]]` tables; the first one has the coordinator. UserError."""
    try:
        hosts = _Hosts.model_validate(contents_of(path)).host
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        keys = ", ".join(Host.model_fields)
        raise UserError(f"{where}: {first['msg']}; a [[host]] has {keys}", path) from None
    names = [host.name for host in hosts]
    if len(set(names)) < len(names):
        raise UserError(f"host: two are called {max(names, key=names.count)}", path)
    return hosts


def host_of(hosts: Sequence[Host], plan: Placement) -> dict[str, Host]:
    """The machine of each process, and of the coordinator; those for crashing clients are on the first."""
    places = [host for host in hosts for _ in range(host.processes)]
    found = {COORDINATOR: hosts[0]}
    for number, process in enumerate(plan.actors):
        found[process] = places[number] if number < len(places) else hosts[0]
    return found


def addresses_on(hosts: Sequence[Host], plan: Placement) -> dict[str, Address]:
    next_port = {host.name: host.port for host in hosts}
    found = {}
    for process, host in host_of(hosts, plan).items():
        found[process] = Address(host.address, next_port[host.name])
        next_port[host.name] += 1
    return found

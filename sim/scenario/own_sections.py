"""Tables of a scenario that the user's own code reads: its keys are the arguments of a class or function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import create_model
from pydantic.errors import PydanticUserError

from actors.settings.tables import tagged
from actors.source_location import of_definition, written
from sim.errors import UserError
from sim.learning.data import Data
from sim.learning.data import own as own_data
from sim.learning.data.own import OwnData
from sim.learning.models import Model
from sim.learning.models import own as own_model
from sim.learning.models.own import OwnModel
from sim.learning.partitions import PartitionKind
from sim.learning.partitions import own as own_partition
from sim.learning.partitions.own import OwnPartition
from sim.plugins.section import OwnSection
from sim.scenario.places import places, put, value_at
from sim.scenario.schema import OwnTable
from sim.scenario.user_code import UserCode, is_users, load_users
from sim.world import churn_processes, own_slow_times, own_topology
from sim.world.bandwidths import ClientBandwidth, OwnBandwidth
from sim.world.churn_processes import ChurnProcess, OwnChurn
from sim.world.latency import Latency
from sim.world.latency import own as own_latency
from sim.world.latency.own import OwnLatency
from sim.world.own import OF_CLIENT
from sim.world.own_slow_times import OwnSlowTimes
from sim.world.own_topology import OwnTopology
from sim.world.speeds import OwnSpeed, OwnStepTime, Speed, StepTime
from sim.world.topology import Topology


@dataclass(frozen=True, eq=False)
class Door:
    """A table that may name the user's code.

    table: where it stands; "*" is each item of a list. key: which of its keys names the code. base: of the
    class that its section gets. provided: the arguments that the code is given, as far as it takes them.
    known: what comes with coterie, by name.
    """

    table: str
    key: str
    base: type[OwnSection]
    provided: tuple[str, ...]
    known: Mapping[str, type]


def _doors(
    key: str, base: type[OwnSection], provided: tuple[str, ...], known: Any, *tables: str
) -> list[Door]:
    return [Door(table, key, base, provided, tagged(known)) for table in tables]


DOORS = (
    *_doors("name", OwnModel, own_model.PROVIDED, Model, "model"),
    *_doors("name", OwnData, own_data.PROVIDED, Data, "data"),
    *_doors("kind", OwnPartition, own_partition.PROVIDED, PartitionKind, "data.partition"),
    *_doors("kind", OwnTopology, own_topology.PROVIDED, Topology, "clients.topology"),
    *_doors("kind", OwnLatency, own_latency.PROVIDED, Latency, "network.latency", "network.class.*.latency"),
    *_doors("kind", OwnBandwidth, OF_CLIENT, ClientBandwidth, "network.uplink", "network.downlink"),
    *_doors("kind", OwnStepTime, OF_CLIENT, StepTime, "devices.step_time", "devices.class.*.step_time"),
    *_doors("kind", OwnSpeed, OF_CLIENT, Speed, "devices.speed", "devices.class.*.speed"),
    *_doors("kind", OwnSlowTimes, own_slow_times.PROVIDED, (), "devices.slow_times.*"),
    *_doors("kind", OwnChurn, churn_processes.OWN_PROVIDED, ChurnProcess, "churn_process.*"),
)
"""All tables that may name the user's code."""


def users_of(raw: dict[str, Any], folder: Path | None, *, code: bool) -> Iterator[tuple[Door, UserCode]]:
    """What the tables of a scenario name of the user's own code, by absolute paths from then on.

    Where a name alone stands for a table, the table is written in its place. Raises UserError.
    """
    for door in DOORS:
        for place in places(raw, door.table):
            table = value_at(raw, place)
            name = table.get(door.key) if isinstance(table, Mapping) else table
            if not is_users(name):
                continue
            instead = ", ".join(door.known) or "none"
            user = load_users(f"{place}.{door.key}", name, folder, code=code, instead=instead)
            stated = table if isinstance(table, Mapping) else {}
            put(raw, place, {**stated, door.key: user.name})
            yield door, user


def own_tables(users: Iterable[UserCode]) -> Iterator[OwnTable]:
    """What the tables of a scenario that name these may hold, for its schema."""
    for user in users:
        *parts, key = user.key.split(".")
        place = ".".join("*" if part.isdecimal() else part for part in parts)
        for door in DOORS:
            if (door.table, door.key) == (place, key):
                yield OwnTable(door.table, user.name, section_of(door, user))


def section_of(door: Door, user: UserCode) -> type[OwnSection]:
    """The class of a table whose keys are the arguments of `user.found`, beside those that it is given.

    Raises UserError for arguments that a scenario cannot state.
    """
    is_code = inspect.isclass(user.found) or inspect.isfunction(user.found)
    if not is_code:  # what is unhashable cannot be remembered either
        what = type(user.found).__name__
        raise UserError(f"{user.stated}: must be a class or a function, not a {what}")
    return _section(door, user.stated, user.name, user.found)


@cache
def _section(door: Door, stated: str, name: str, found: Any) -> type[OwnSection]:
    fields: dict[str, Any] = {}
    takes = []
    for argument in _arguments(stated, found):
        if argument.name in door.provided:
            takes.append(argument.name)
        elif argument.kind is not inspect.Parameter.VAR_KEYWORD:
            fields[argument.name] = _field(door, stated, found, argument)
    try:
        made: type[OwnSection] = create_model(  # type: ignore[call-overload]
            found.__name__, __base__=door.base, **{door.key: (Literal[name], ...)}, **fields
        )
    except (PydanticUserError, TypeError, NameError) as error:
        raise _refused(stated, found, str(error).partition("\n")[0]) from error
    made.make, made.takes = staticmethod(found), frozenset(takes)
    made.keys, made.stated = tuple(fields), stated
    return made


def _arguments(stated: str, found: Any) -> list[inspect.Parameter]:
    called = inspect.getattr_static(found, "__init__") if isinstance(found, type) else found
    try:
        parameters = inspect.signature(found).parameters.values()
        hints = typing.get_type_hints(called, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise _refused(stated, found, f"its arguments cannot be read: {error}") from error
    return [each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]


def _field(door: Door, stated: str, found: Any, argument: inspect.Parameter) -> tuple[Any, Any]:
    """Type and default of a key."""
    empty, problem = inspect.Parameter.empty, ""
    kind, default = argument.annotation, argument.default
    if kind is empty and default is not empty and default is not None:
        kind = type(default)
    if argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
        problem = "cannot be stated by name"
    elif (
        argument.name in door.base.__class_vars__
        or hasattr(door.base, argument.name)
        or (argument.name in door.base.model_fields)
    ):
        problem = "is a key that all have; it needs another name"
    elif kind is empty:
        given = ", ".join(door.provided)
        problem = f"needs a type, such as `{argument.name}: int`; without a key it is given {given}"
    if problem:
        raise _refused(stated, found, f"its argument {argument.name} {problem}")
    if typing.get_origin(kind) is list:  # what a section holds cannot be changed
        kind = tuple[*typing.get_args(kind), ...]  # type: ignore[misc]
        default = tuple(default) if isinstance(default, list) else default
    return kind, ... if default is empty else default


def _refused(stated: str, found: Any, problem: str) -> UserError:
    if isinstance(found, type):
        where = of_definition(found)
    else:
        code = getattr(found, "__code__", None)
        where = code and written(code.co_filename, code.co_firstlineno)
    return UserError(f"{stated}: {where or 'there'}: {problem}")

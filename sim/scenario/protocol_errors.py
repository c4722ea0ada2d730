"""Error messages for a protocol's class that name the lines of its author."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from actors.message import describe
from actors.source_location import definition_location, failing_line
from protocols.framework.client import Client
from protocols.framework.node import Node
from protocols.framework.objectives import Objective
from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.server import ServerPlan
from protocols.shared.async_server import AsyncServer
from sim.errors import UserError
from sim.plugins.section import first_error_line
from sim.plugins.source_files import OURS
from sim.scenario.lost_merges import lost_merges
from sim.scenario.method_mistakes import method_mistakes
from sim.scenario.protocol_methods import is_server, location_text, method_location, unsound_methods
from sim.scenario.refusals import errors_in_file

if TYPE_CHECKING:
    from torch import Tensor

    from sim.learning.architecture import Architecture

_Item = TypeVar("_Item")
_Actor = TypeVar("_Actor")


def require_valid_protocol(kind: type[Client]) -> None:
    """Raise UserError for a class with settings or methods that a protocol must not have."""
    wrong = chain(
        _unsound_settings(kind),
        unsound_methods(kind),
        method_mistakes(kind),
        lost_merges(kind),
        _missing_step_errors(kind),
    )
    problem = next(wrong, None)
    if problem is not None:
        raise UserError(problem)


@contextmanager
def naming_users_line(kind: type, name: str, hint: str = "") -> Iterator[None]:
    """Raise errors in a method of the user's class as a UserError that names the line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        failed = f"{kind.__name__}.{name}() failed: {describe(error)}{hint}"
        raise UserError(f"{failing_line(kind, error, name)}: {failed}") from error


def _method_error(kind: type, name: str, problem: str) -> UserError:
    return UserError(f"{location_text(getattr(kind, name))}: {kind.__name__}.{name}() {problem}")


def call_class_method(kind: type[Client], name: str, *arguments: object) -> Any:
    """Return the result of a protocol's class method; errors become a UserError that names the line."""
    with naming_users_line(kind, name):
        return getattr(kind, name)(*arguments)


def protocol_objective(kind: type[Client], settings: ProtocolSettings) -> Objective | None:
    """Return the objective that a protocol's clients minimize, if it has one. Raises UserError if invalid."""
    found = call_class_method(kind, "objective", settings)
    if found is None:
        return None
    try:
        fits = callable(found) and not isinstance(found, type) and getattr(found, "views", 0) in (1, 2)
    except Exception as error:  # from a property of the user's class
        raise UserError(f"{failing_line(type(found), error, 'views')}: {first_error_line(error)}") from error
    if not fits or type(found).__hash__ is None:  # clients with equal ones are computed together
        what = "an instance of a frozen dataclass that has a method __call__, and `views` equal to 1 or 2"
        where = definition_location(type(found)) or location_text(kind.objective)
        raise UserError(
            f"{where}: {kind.__name__}.objective() returned {found!r:.60}; must return None, or {what}"
        )
    objective: Objective = found
    return objective


def require_scalar_loss(
    objective: Objective, model: "Architecture", inputs: "Tensor", labels: "Tensor"
) -> None:
    """Try an objective of the user on some samples; raise UserError with its line unless it is a mean loss.

    inputs [views times B, ...]. Objectives of coterie are not tried.
    """
    import torch

    kind = type(objective)
    if kind.__module__.partition(".")[0] in OURS:
        return
    with naming_users_line(kind, "__call__"), torch.no_grad():
        start = model.initial(torch.Generator().manual_seed(0))
        loss = objective(model, start, inputs, labels)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        what = f"a tensor {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        must = "must return the mean loss of a batch, a tensor without dimensions, not"
        raise _method_error(kind, "__call__", f"{must} {what}")


def protocol_requirements(kind: type[Client], settings: ProtocolSettings) -> list[Requirement]:
    """Return a protocol's requirements for other sections of a scenario. Raises UserError if invalid."""
    return _list_of(Requirement, kind, "requirements", call_class_method(kind, "requirements", settings))


def protocol_servers(
    kind: type[Client], settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
) -> tuple[ServerPlan, ...]:
    """Return the servers that a protocol names for these clients. Raises UserError if invalid."""
    try:
        plans = call_class_method(kind, "servers", settings, clients, clusters)
    except UserError as error:
        if type(error.__cause__) is ValueError:  # a method rejects the scenario by a ValueError
            raise UserError(str(error.__cause__)) from None
        raise
    found = _list_of(ServerPlan, kind, "servers", plans)
    servers = [plan.name for plan in found]
    problems = [f"two actors are called {name}" for name in servers if [*servers, *clients].count(name) > 1]
    for plan in found:
        problems += [
            f"{plan.name} serves {name}, which is not a client" for name in {*plan.clients} - {*clients}
        ]
        others = {*servers} - {plan.name}
        problems += [
            f"{plan.name} names {name}, which is not another server" for name in {*plan.servers} - others
        ]
        if not is_server(plan.kind):
            problems.append(f"{plan.name}: {plan.kind!r:.60} is not a subclass of Server")
    if problems:
        raise UserError(f"{method_location(kind, 'servers')}: {kind.__name__}.servers(): {min(problems)}")
    for each in dict.fromkeys(plan.kind for plan in found):
        wrong = chain(
            unsound_methods(each),
            method_mistakes(each),
            lost_merges(each),
            _missing_arrived_errors(kind, each),
        )
        if (problem := next(wrong, None)) is not None:
            raise UserError(problem)
    return tuple(found)


def _list_of(item: "type[_Item]", kind: type, name: str, found: Any) -> "list[_Item]":
    if not isinstance(found, list | tuple) or not all(isinstance(each, item) for each in found):
        raise _method_error(kind, name, f"must return a list of {item.__name__}, not {found!r:.60}")
    return list(found)


def create_actor(kind: "Callable[..., _Actor]", *arguments: object) -> "_Actor":
    """Create a client or a server of a protocol; raise errors of its `__init__` as a UserError."""
    assert isinstance(kind, type)
    given = "name, context, settings, initial" if is_server(kind) else "name, context, compute, settings"
    first_line = f"super().__init__({given})"
    try:
        actor: _Actor = kind(*arguments)
    except Exception as error:
        code = getattr(inspect.unwrap(kind.setup), "__code__", None)  # type: ignore[attr-defined]
        name = "begin" if getattr(code, "co_name", "") == "begin" else "setup"  # begin: the former name
        in_setup = any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))
        hint = "" if in_setup else f"; it takes (self, {given}) and starts with {first_line}"
        with naming_users_line(kind, name if in_setup else "__init__", _reserved_name_hint(error) or hint):
            raise
    try:  # not by vars(), which would undo the compact storage of an object's fields
        object.__getattribute__(actor, "_params")
    except AttributeError:
        raise _method_error(kind, "__init__", f"must call {first_line}") from None
    return actor


def _reserved_name_hint(error: Exception) -> str:
    """Return a hint if the error is an assignment to a property of coterie, else an empty text."""
    found = re.match(r"property '(\w+)' of .* has no setter", str(error))
    is_reserved = found is not None and hasattr(Node, found[1])
    return f"; {found[1]} is an attribute of coterie: choose another name" if found and is_reserved else ""


def require_statable(kind: type[Client], settings: ProtocolSettings) -> None:
    """Raise UserError for a setting with a value that no scenario file can state, such as a function."""
    for key in type(settings).model_fields:
        try:
            settings.model_dump(mode="json", include={key})
        except PydanticSerializationError:
            must = "must be a number, a text, true or false, or a tuple or a dict of these"
            value = f"{kind.__name__}.Settings.{key} = {getattr(settings, key)!r:.60}"
            raise UserError(
                f"{location_text(kind.Settings)}: {value}: {must}, as in a scenario file"
            ) from None


def _missing_step_errors(kind: type[Client]) -> Iterator[str]:
    if kind.step is Client.step and kind.run is Client.run and kind.asynchronous is None:
        missing = f"{location_text(kind)}: {kind.__name__} has no step()"
        yield f"{missing}: write `async def step(self):`, one iteration"


def _missing_arrived_errors(kind: type[Client], server: type) -> Iterator[str]:
    handlers = (AsyncServer.arrived, AsyncServer.on_message)
    if server is AsyncServer:
        must = "write `server = ...`, a subclass of AsyncServer with arrived()"
        yield f"{location_text(kind)}: {kind.__name__} does not name a server: {must}"
    elif issubclass(server, AsyncServer) and (server.arrived, server.on_message) == handlers:
        must = "write `def arrived(self, work, client, staleness):`"
        yield f"{location_text(server)}: {server.__name__} has no arrived(): {must}"


def _unsound_settings(kind: type[Client]) -> Iterator[str]:
    settings: Any = kind.Settings
    name = f"{kind.__name__}.Settings"
    base: Any = next(each for each in kind.__mro__ if {"_machinery", "Settings"} <= vars(each).keys())
    of_base: type[ProtocolSettings] = base.Settings
    if not (isinstance(settings, type) and issubclass(settings, of_base)):
        what = f"the class {settings.__name__}" if isinstance(settings, type) else type(settings).__name__
        where = location_text(settings if isinstance(settings, type) else kind)
        must = f"must be a class, written `class Settings({base.__name__}.Settings):`"
        yield f"{where}: {name} {must}, not {what}"
        return
    try:
        settings.model_validate({})
    except ValidationError as error:
        details = error.errors(include_url=False)
        # Errors without a location are about combinations of settings, which the scenario decides.
        missing = [each["loc"] for each in details if each["type"] == "missing" or not each["loc"]]
        if len(missing) < error.error_count():
            [first, *_] = [
                found for found in errors_in_file(settings, details, {}) if (found.key,) not in missing
            ]
            default = f"the default of {name}.{first.key} = {first.value!r}"
            yield f"{location_text(settings)}: {default}: {first.problem}"
    except Exception:  # from the user's validator, which may accept the values of a scenario
        return

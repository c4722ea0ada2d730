"""What is wrong with a protocol's class, in words that point at its author's own lines."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from actors.message import describe
from actors.source_location import of_definition, of_error, own_line
from protocols.framework.requirements import ProtocolSettings
from sim.errors import UserError
from sim.scenario.refusals import problems

if TYPE_CHECKING:
    from torch import Tensor

    from protocols.framework.client import Client
    from protocols.framework.objectives import Objective
    from protocols.framework.requirements import Requirement
    from protocols.framework.server import ServerPlan
    from sim.learning.architecture import Architecture

_AWAITED = ("on_start", "on_stop", "on_message", "on_failure", "run", "step")
_CALLED = (
    "heard", "peer_changed", "finish_iteration", "weights", "coalition", "objective", "requirements",
    "servers",
)  # fmt: skip


def require_sound(kind: "type[Client]") -> None:
    """Raises UserError for a class whose settings or methods are not of the kind that a protocol needs."""
    problem = next(_unsound(kind), None)
    if problem is not None:
        raise UserError(problem)


def called(kind: "type[Client]", name: str, *arguments: object) -> Any:
    """What a class method of a protocol returns; an error in it is a UserError that names its line."""
    method = getattr(kind, name)
    try:
        return method(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{_failed_at(kind, method, error)}: {kind.__name__}.{name}() failed: {describe(error)}"
        ) from error


def objective_of(kind: "type[Client]", settings: ProtocolSettings) -> "Objective | None":
    """What a protocol has clients minimise. Raises UserError for what can be none."""
    found = called(kind, "objective", settings)
    if found is None:
        return None
    views = getattr(found, "views", None)
    problem = ""
    if isinstance(found, type) or not callable(found):
        problem = f"not {found.__name__ if isinstance(found, type) else type(found).__name__}"
    elif type(views) is not int or views not in (1, 2):
        problem = f"with `views`, 1 or 2, not {views!r}"
    elif not _hashable(found):
        problem = "whose fields are hashable, so that clients with equal ones are computed together"
    if problem:
        what = "must return None or an instance of a frozen dataclass with a __call__"
        place = of_definition(type(found)) or defined(kind.objective)
        raise UserError(f"{place}: {kind.__name__}.objective() {what}, {problem}")
    objective: Objective = found
    return objective


def require_scalar_loss(
    objective: "Objective", model: "Architecture", inputs: "Tensor", labels: "Tensor"
) -> None:
    """Try an objective of the user's own on some samples; UserError with its line for what is no mean loss.

    inputs [views times B, ...]. One that comes with coterie is taken as it is.
    """
    import torch

    if type(objective).__module__.partition(".")[0] in ("protocols", "sim"):
        return
    call = f"{type(objective).__name__}.__call__()"
    try:
        with torch.no_grad():
            start = model.initial(torch.Generator().manual_seed(0))
            loss = objective(model, start, inputs, labels)
    except Exception as error:
        where = _failed_at(type(objective), type(objective).__call__, error)
        raise UserError(f"{where}: {call} failed: {describe(error)}") from error
    if not isinstance(loss, torch.Tensor) or loss.dim():
        what = f"a tensor {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        must = "must return the mean loss of a batch, a tensor without dimensions, not"
        raise UserError(f"{defined(type(objective).__call__)}: {call} {must} {what}")


def requirements_of(kind: "type[Client]", settings: ProtocolSettings) -> "list[Requirement]":
    """What a protocol needs of the rest of a scenario. Raises UserError for what are no requirements."""
    from protocols.framework.requirements import Requirement

    found = called(kind, "requirements", settings)
    if not isinstance(found, list | tuple) or not all(isinstance(need, Requirement) for need in found):
        must = f"must return a list of Requirement, not {found!r:.60}"
        raise UserError(f"{defined(kind.requirements)}: {kind.__name__}.requirements() {must}")
    return list(found)


def server_plans(kind: "type[Client]", plans: Any, clients: Sequence[str]) -> "list[ServerPlan]":
    """The servers that a protocol named for these clients. Raises UserError for what are none."""
    from protocols.framework.server import ServerPlan

    if not isinstance(plans, list | tuple) or not all(isinstance(plan, ServerPlan) for plan in plans):
        shown = f"{plans!r:.60}"
        where = defined(kind.servers)
        raise UserError(f"{where}: {kind.__name__}.servers() must return a list of ServerPlan, not {shown}")
    servers = [plan.name for plan in plans]
    problems = [f"two actors are called {name}" for name in servers if [*servers, *clients].count(name) > 1]
    for plan in plans:
        problems += [
            f"{plan.name} serves {name}, which is no client" for name in {*plan.clients} - {*clients}
        ]
        others = {*servers} - {plan.name}
        problems += [f"{plan.name} names {name}, no other server" for name in {*plan.servers} - others]
    if problems:
        raise UserError(f"{defined(kind.servers)}: {kind.__name__}.servers(): {min(problems)}")
    return list(plans)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def made(kind: "type[Client]", make: "Callable[[], Client]") -> "Client":
    """A client's learner; what is wrong with its class's `__init__` is a UserError."""
    given = "(self, name, context, compute, settings)"
    begin = "super().__init__(name, context, compute, settings)"
    try:
        learner = make()
    except UserError:
        raise
    except Exception as error:
        where, what = _failed_at(kind, kind.__init__, error), f"{kind.__name__}.__init__() failed"
        what = f"{what}: {describe(error)}; it takes {given} and begins with {begin}"
        raise UserError(f"{where}: {what}") from error
    if not _is_made(learner):
        raise UserError(f"{defined(kind.__init__)}: {kind.__name__}.__init__() must call {begin}")
    return learner


def _is_made(learner: "Client") -> bool:
    """Whether a learner's own __init__ was called: not by vars(), which would undo its compact form."""
    try:
        object.__getattribute__(learner, "_params")
    except AttributeError:
        return False
    return True


def defined(what: Any) -> str:
    """Where a function or class is defined."""
    return of_definition(what) or str(getattr(what, "__qualname__", what))


def _failed_at(kind: type, function: object, error: Exception) -> str:
    return own_line(kind, of_error(error)) or defined(function)


def _unsound(kind: "type[Client]") -> Iterator[str]:
    yield from _unsound_settings(kind)
    for name in (*_AWAITED, *_CALLED):
        method = inspect.unwrap(getattr(getattr(kind, name), "__func__", getattr(kind, name)))
        if not inspect.isfunction(method):
            yield f"{defined(kind)}: {kind.__name__}.{name} must be a method, not {type(method).__name__}"
        elif name in _AWAITED and not inspect.iscoroutinefunction(method):
            yield f"{defined(method)}: {kind.__name__}.{name}() must be written `async def {name}(...)`"
        elif name in _CALLED and inspect.iscoroutinefunction(method):
            must = f"must be written `def {name}(...)`, without async"
            yield f"{defined(method)}: {kind.__name__}.{name}() {must}"
    yield from _unsound_rounds(kind)


def _unsound_rounds(kind: "type[Client]") -> Iterator[str]:
    from protocols import RoundClient, RoundServer  # they import torch, as a class of a learner has done

    if not issubclass(kind, RoundClient):
        return
    inherits = getattr(kind.servers, "__func__", None) is getattr(RoundClient.servers, "__func__", None)
    server = getattr(kind, "server", None)
    if inherits and not isinstance(server, type):
        must = "must name the class of its server: `server = MyServer`, a RoundServer"
        yield f"{defined(kind)}: {kind.__name__} is a RoundClient and {must}"
    yield from _undefined(kind, RoundClient, "on_message", "async def work(self, task)")
    if isinstance(server, type) and issubclass(server, RoundServer):
        yield from _undefined(server, RoundServer, "answer", "def task(self, client, number)")
        yield from _undefined(server, RoundServer, "round", "def combine(self, answers, number)")


def _undefined(kind: type, base: type, caller: str, method: str) -> Iterator[str]:
    """What the base's `caller` calls must be defined, unless the class has a caller of its own."""
    name = method.split("def ")[1].split("(")[0]
    if getattr(kind, caller) is getattr(base, caller) and getattr(kind, name) is getattr(base, name):
        yield f"{defined(kind)}: {kind.__name__} is a {base.__name__} and must define `{method}`"


def _unsound_settings(kind: "type[Client]") -> Iterator[str]:
    settings: Any = kind.Settings
    name = f"{kind.__name__}.Settings"
    if not (isinstance(settings, type) and issubclass(settings, ProtocolSettings)):
        what = f"the class {settings.__name__}" if isinstance(settings, type) else type(settings).__name__
        where = defined(settings if isinstance(settings, type) else kind)
        must = "must be a class that is written `class Settings(Client.Settings):`"
        yield f"{where}: {name} {must}, not {what}"
        return
    try:
        settings.model_validate({})
    except ValidationError as error:
        details = error.errors(include_url=False)
        # What has no place is about how several fit together, which a scenario decides.
        missing = [each["loc"] for each in details if each["type"] == "missing" or not each["loc"]]
        if len(missing) < error.error_count():
            [first, *_] = [found for found in problems(settings, details, {}) if (found.key,) not in missing]
            yield f"{defined(settings)}: the default of {name}.{first.key} = {first.value!r}: {first.problem}"

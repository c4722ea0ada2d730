"""Sections that the user's own code reads: its keys are the arguments of a class or function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from actors.message import describe
from actors.settings.base import Settings
from actors.source_location import of_error, written
from sim.errors import UserError

FAILURES = (Exception, SystemExit)
"""What the user's code may raise and is said to have failed with: sys.exit() is no end of a run."""
USERS_CODE = r"^.+:[A-Za-z_]\w*$"
"""What the user's code is called, as a regular expression."""


class OwnSection(Settings):
    """A section of the user's own code; for each file there is a subclass, made when a scenario names it."""

    make: ClassVar[Callable[..., Any]]
    """The class or function."""
    takes: ClassVar[frozenset[str]]
    """Those of its arguments that it is given, and which are no keys."""
    keys: ClassVar[tuple[str, ...]]
    """Its other arguments."""
    stated: ClassVar[str]
    """What the scenario says, such as `model.name = "my.py:Net"`."""

    def call(self, **provided: Any) -> Any:
        """What it returns, given those of `provided` that it takes; raises whatever it raises."""
        given = {name: value for name, value in provided.items() if name in self.takes}
        return type(self).make(**given, **{name: getattr(self, name) for name in self.keys})

    def refusal(self, problem: str, error: BaseException | None = None) -> UserError:
        """What the scenario says, the user's file, its innermost line that took part, and what is wrong."""
        make = type(self).make
        file, line = place_of(make)
        lines = [frame for frame in of_error(error) if frame[0] == file] if error is not None else []
        where = written(*lines[-1]) if lines else written(file, line)
        return UserError(f"{self.stated}: {where}: {make.__name__} {problem}")


def place_of(make: Callable[..., Any]) -> tuple[str, int]:
    """File and line where a class or a function is written."""
    try:
        return inspect.getsourcefile(make) or "", inspect.getsourcelines(make)[1]
    except (OSError, TypeError):
        return "", 0


def in_short(error: BaseException) -> str:
    """The first line of what an error says."""
    return describe(error).partition("\n")[0]

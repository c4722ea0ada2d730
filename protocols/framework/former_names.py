"""Former names of methods that users override: they still work, with a warning."""

import inspect
import warnings

from actors.source_location import of_definition

FORMER_NAMES = {"begin": "setup", "heard": "intercept"}
"""Present name of each method that had another name."""


def accept_former_names(cls: type) -> None:
    """Make a method of a user's class callable by its present and its former name.

    `super().begin()` therefore still works. Raises TypeError for a class that defines both names.
    """
    for base in cls.__mro__:
        if base is object:
            continue
        for former, present in FORMER_NAMES.items():
            own = vars(base)
            if former in own and present in own:
                if own[former] is not own[present]:
                    raise TypeError(f"{_located(base, former)} is the former name of {present}(): remove one")
            elif inspect.isfunction(own.get(present)):
                setattr(base, former, own[present])
            elif inspect.isfunction(own.get(former)):
                rename = f"{_located(base, former)} has a new name: rename it to {present}()"
                warnings.warn(rename, FutureWarning, stacklevel=3)
                setattr(base, present, own[former])


def _located(cls: type, name: str) -> str:
    line = of_definition(vars(cls)[name])
    return f"{line or cls.__module__}: {cls.__qualname__}.{name}()"

"""Former names of methods that users override: they still work, with a warning."""

import inspect
import warnings

from actors.source_location import name_with_line

FORMER_NAMES = {"begin": "setup", "heard": "intercept"}
"""Current name of each method that was renamed."""


def accept_former_names(cls: type) -> None:
    """Make a method of a user's class callable by its current and its former name, including by `super()`.

    Raises TypeError for a class that defines both names.
    """
    for base in cls.__mro__[:-1]:
        own = vars(base)
        for former, present in FORMER_NAMES.items():
            if former in own and present in own:
                if own[former] is not own[present]:
                    problem = f"{name_with_line(own[former])}: {former}() is the former name of {present}()"
                    raise TypeError(f"{problem}; remove one of them")
            elif inspect.isfunction(own.get(present)):
                setattr(base, former, own[present])
            elif inspect.isfunction(own.get(former)):
                renamed = f"{name_with_line(own[former])}: {former}() is now called {present}(); rename it"
                warnings.warn(renamed, FutureWarning, stacklevel=3)
                setattr(base, present, own[former])

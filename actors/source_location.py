"""Locations in source code for error messages: the line of an actor's own file where it failed or waits."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

Frame = tuple[str, int]
"""A file and a line number in it."""


def innermost_own_line(kind: type, frames: Iterable[Frame]) -> str | None:
    """Return the innermost of `frames` in a file of an actor's class, or else of one of its base classes.

    `frames` are ordered from the outermost to the innermost. Files of classes in one package count alike.
    Files of classes with `_machinery` True do not count, because users did not write them. Returns None if no
    frame is in the file of another class.
    """
    packages: dict[str, set[str]] = {}
    for cls in kind.__mro__:
        module = sys.modules.get(cls.__module__)
        if (files := class_files(cls)) and not vars(cls).get("_machinery", False):
            packages.setdefault(getattr(module, "__package__", None) or "", set()).update(files)
    frames = list(frames)
    for files in packages.values():
        if within := [frame for frame in frames if frame[0] in files]:
            return location_text(*within[-1])
    return None


def class_files(cls: type) -> set[str]:
    """Return the file names of a class: of its module, and of the code of its methods."""
    found = {value.__code__.co_filename for value in vars(cls).values() if inspect.isfunction(value)}
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return found if file is None else {file, *found}


def location_text(file: str, line: int) -> str:
    """Return a location as "file:line", relative to the current folder if it is below it."""
    near = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f"{near}:{line}"


def definition_location(what: Any) -> str | None:
    """Return the "file:line" at which a class, function or method starts; None if its source is unknown."""
    try:
        what = inspect.unwrap(getattr(what, "__func__", what))
        return location_text(inspect.getfile(what), inspect.getsourcelines(what)[1])
    except (OSError, TypeError):
        return None


def name_with_line(method: Callable[..., object]) -> str:
    """Return a user's method with its line: "Mean.task() (mine.py:12)"."""
    line = definition_location(method)
    return f"{method.__qualname__}()" + (f" ({line})" if line else "")


def failing_line(kind: type, error: BaseException, method: str) -> str:
    """Return the line of a class's own code that was last active in an error, or the start of `method`."""
    blamed = getattr(kind, method)
    return (
        innermost_own_line(kind, traceback_frames(error))
        or definition_location(blamed)
        or blamed.__qualname__
    )


def coroutine_frames(coroutine: Any) -> list[Frame]:
    """Return the frames of a suspended coroutine, from the outermost to the innermost awaited coroutine."""
    frames, inner = [], coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:  # a future: the end of the chain
            break
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return frames


def traceback_frames(error: BaseException) -> list[Frame]:
    """Return the frames that an error passed through, from the outermost to the one that raised it."""
    frames: list[Frame] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        frames.append((step.tb_frame.f_code.co_filename, step.tb_lineno))
        step = step.tb_next
    return frames

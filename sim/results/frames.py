"""Tracebacks for people: the lines of the user's own files, without those of coterie and of libraries."""

import os
import re
import sysconfig
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+, in .*\n(?:    .*\n)*', re.MULTILINE)
_ROOT = Path(__file__).parents[2]
_OTHERS = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_ROOT / name for name in ("actors", "protocols", "sim", "coterie")),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)


def where_from(traceback: str) -> str:
    """Where a failure came from, in the user's own files, and what is left out of its traceback."""
    own, others = own_frames(traceback)
    more = f" (without {others} lines of coterie and libraries, which summary.json has)" if others else ""
    return f"where the first one came from{more}:\n{own}"


def own_frames(traceback: str) -> tuple[str, int]:
    """A traceback without the frames of others, and how many these were; whole where none would be left."""
    files = [frame["file"] for frame in _FRAME.finditer(traceback)]
    others = [file for file in files if _is_others(file)]
    if len(others) == len(files):
        return traceback, 0
    return _FRAME.sub(lambda frame: "" if _is_others(frame["file"]) else frame[0], traceback), len(others)


def _is_others(file: str) -> bool:
    return file.startswith(("<", *_OTHERS)) or f"{os.sep}site-packages{os.sep}" in file

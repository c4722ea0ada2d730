"""Short tracebacks: frames of the user's files, without frames of coterie and libraries."""

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


def failure_origin_text(traceback: str) -> str:
    """Describe the origin of a failure in the user's files, and the number of omitted frames."""
    own, others = own_frames(traceback)
    more = f" (summary.json also contains {others} lines of coterie and libraries)" if others else ""
    return f"origin of the first one{more}:\n{own}"


def own_frames(traceback: str) -> tuple[str, int]:
    """Return a traceback without the frames of other people's files, and the number of removed frames.

    If no frame would remain, the traceback is unchanged and the number is 0.
    """
    files = [frame["file"] for frame in _FRAME.finditer(traceback)]
    others = [file for file in files if _is_foreign_file(file)]
    if len(others) == len(files):
        return traceback, 0
    return _FRAME.sub(lambda frame: "" if _is_foreign_file(frame["file"]) else frame[0], traceback), len(
        others
    )


def _is_foreign_file(file: str) -> bool:
    return file.startswith(("<", *_OTHERS)) or f"{os.sep}site-packages{os.sep}" in file

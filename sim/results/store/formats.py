"""Format number of results, which determines the versions of coterie that can read them.

docs/results.md describes its guarantees. The number rises when an earlier version would misread new results:
a key or column disappears or changes its meaning. New keys and columns do not raise it.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.errors import UserError, one_line
from sim.files.input_file import InputFile

FORMAT = 1
"""Format written by this version. Releases up to 0.2.0 wrote no number, which counts as 0."""
KEY = "format"


class LaterFormat(UserError):
    """Results of a later version of coterie that this version cannot read."""


def require_known(file: Path) -> None:
    """Raise UserError if a JSON file of results has a format that this version cannot read.

    Damaged files pass; their readers report them.
    """
    found: Any = None
    with suppress(UserError):
        found = InputFile("", file).json()
    number = found.get(KEY, 0) if isinstance(found, dict) else 0
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if is_number and 0 <= number <= FORMAT:
        return
    problem = f"{file}: {KEY} = {one_line(json.dumps(number), 60)}: must be an integer from 0 to {FORMAT}"
    if is_number and number > FORMAT:
        raise LaterFormat(
            f"{problem}; a later version of coterie wrote these results: install that version to read them"
        )
    raise UserError(problem)

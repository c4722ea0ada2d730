"""The format of results: a number that says which version of coterie can read them.

docs/results.md says what it promises. It rises when an earlier version would misread new results: a key or a
column goes away, or means something else. One more key or column does not raise it.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.errors import UserError, one_line
from sim.files.input_file import InputFile

FORMAT = 1
"""That of the results which this version writes. Releases up to 0.2.0 wrote no number, which is 0."""
KEY = "format"


class LaterFormat(UserError):
    """Results that a later version of coterie wrote, and this one cannot read."""


def require_known(file: Path) -> None:
    """UserError if a JSON file of results says a format that this version cannot read.

    Nothing for a file that is damaged: whoever reads it says that.
    """
    found: Any = None
    with suppress(UserError):
        found = InputFile("", file).json()
    number = found.get(KEY, 0) if isinstance(found, dict) else 0
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if is_number and 0 <= number <= FORMAT:
        return
    said = f"{file}: {KEY} = {one_line(json.dumps(number), 60)}: must be a whole number from 0 to {FORMAT}"
    if is_number and number > FORMAT:
        raise LaterFormat(
            f"{said}; a later version of coterie wrote these results: install that version to read them"
        )
    raise UserError(said)

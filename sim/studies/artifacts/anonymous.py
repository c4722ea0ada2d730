"""Texts of an archive without this machine's paths, and without the names of the machine and the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from getpass import getuser
from socket import gethostname
from typing import Any

FOLDERS = r"(?<![\w:./<~*+)\]-])/(?:[^\s/\"'\\<>|:;,=()\[\]{}*]+/)*(?=[^\s/\"'\\<>|:;,=()\[\]{}*])"
"""The folders of an absolute path, without its last part: "/a/b/" in "File "/a/b/c.py", line 3"."""
ORDINARY = {"root", "user", "admin", "localhost", "ubuntu", "runner", "host"}
"""Names of users and machines that are ordinary words and identify no person."""


def machine_names() -> set[str]:
    """Return the names of this machine and of the user's account."""
    found = {gethostname(), gethostname().partition(".")[0]}
    with suppress(Exception):  # a user without a name
        found.add(getuser())
    return found


def removable_names() -> tuple[str, ...]:
    """Return the names of this machine and user that are long enough to be removed from texts."""
    return tuple(sorted(name for name in machine_names() if len(name) > 2 and name.lower() not in ORDINARY))


class Anonymizer:
    """Removes folders and names from texts.

    places: paths on this machine, with the corresponding paths in the archive. names: words to leave out.
    """

    def __init__(self, places: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._places = dict(sorted(places.items(), key=lambda item: -len(item[0])))
        self._names = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names) or r"(?!)")
        roots = "|".join(re.escape(place.rstrip("/")) for place in self._places if place.rstrip("/"))
        self._roots = re.compile(rf"(?<![\w.~/-])(?:{roots or '(?!)'})(?![\w-])")

    def text(self, text: str) -> str:
        """Return a text without known places and names."""
        return self._names.sub("-", self._roots.sub(lambda match: self._new(match[0]), text))

    def _new(self, place: str) -> str:
        return self._places.get(place) or self._places.get(f"{place}/") or "."

    def value(self, value: Any) -> Any:
        """Return a value of a JSON or TOML file in which no text contains an absolute path."""
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return re.sub(FOLDERS, "", self.text(value)) if isinstance(value, str) else value

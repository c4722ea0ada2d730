"""Texts of an archive without this machine's paths, and without the names of the machine and the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from getpass import getuser
from socket import gethostname
from typing import Any

_FOLDERS = r"(?<![\w:./<~*+)\]-])/(?:[^\s/\"'\\<>|:;,=()\[\]{}*]+/)*(?=[^\s/\"'\\<>|:;,=()\[\]{}*])"
"""The folders of an absolute path, without its last part: "/a/b/" in "File "/a/b/c.py", line 3"."""
_KNOWN = re.compile(r"/(?:home|root|tmp|work|Users|mnt|media|data|opt|usr|var|srv|scratch|private|nix|etc)/")
_ORDINARY = {"root", "user", "admin", "localhost", "ubuntu", "runner", "host"}
"""Names of users and machines that are ordinary words and identify no person."""


def identifying_names() -> tuple[str, ...]:
    """Return the names that identify this machine and this user."""
    found = {gethostname(), gethostname().partition(".")[0]}
    with suppress(Exception):  # a user without a name
        found.add(getuser())
    return tuple(sorted(name for name in found if len(name) > 2 and name.lower() not in _ORDINARY))


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
        return re.sub(_FOLDERS, "", self.text(value)) if isinstance(value, str) else value


def remaining_identifiers(text: str, names: tuple[str, ...]) -> list[str]:
    """Return "line N: what" for each absolute path and each of the names in a user's text."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        paths = [match[0] for match in re.finditer(_FOLDERS, line) if _KNOWN.match(match[0])]
        words = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line)]
        found += [f"line {number}: {what}" for what in (*paths, *words)]
    return found

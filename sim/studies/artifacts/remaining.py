"""Warnings about texts of an archive that still identify its authors: paths, e-mail addresses, and names."""

import html
import io
import re
import subprocess
import tokenize
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import PurePosixPath

from sim.results.store.output_dir import CELL, READS
from sim.studies.artifacts.anonymous import FOLDERS, ORDINARY, machine_names
from sim.studies.artifacts.archive import COMPARISON, DATA, Member
from sim.studies.index import INDEX

_KNOWN = re.compile(r"/(?:home|root|tmp|work|Users|mnt|media|data|opt|usr|var|srv|scratch|private|nix|etc)/")
_PART = r"[^\s/\"'\\<>|:;,=()\[\]{}*]+"
_HOME = re.compile(rf"(?<![\w.~-])(?<!\b[A-Za-z]:)/(?:home|Users)/{_PART}(?<!\.)")
_WINDOWS_HOME = re.compile(rf"(?<!\w)([A-Za-z]:)[\\/]{{1,4}}Users[\\/]{{1,4}}({_PART})")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.)+[A-Za-z][\w-]{1,62}(?!\w)")
_ESCAPED = re.compile(r"\\(?:\\|u00([0-9a-fA-F]{2})|[nrt])")
_BINARY = (".parquet", ".js")  # .js: a library of others, which the pages share
_LINES_SHOWN = 5
_SHORT = 3
"""Shorter names are ordinary words in pages and tables, and are searched only in files of the authors."""

Found = dict[int, tuple[str, dict[str, None]]]
"""For each line with a finding: its number, its text, and the findings."""


def author_names() -> tuple[str, ...]:
    """Return the names of the machine and the user, with the name and e-mail address in git's settings."""
    found = {name for name in (*machine_names(), *_git_names()) if len(name) > 1}
    return tuple(sorted(name for name in found if name.lower() not in ORDINARY))


def _git_names() -> Iterator[str]:
    for key in ("user.name", "user.email"):
        with suppress(OSError, subprocess.SubprocessError):  # a machine without git
            done = subprocess.run(
                ["git", "config", "--get", key], capture_output=True, timeout=10, check=False
            )
            yield done.stdout.decode(errors="replace").strip()


def identity_warnings(
    members: Mapping[str, Member], names: Collection[str], sweeps: Collection[str]
) -> list[str]:
    """Return "file, line N: what; line N: what" for each file of the authors that identifies them.

    Copies of a file are left out, and so are files of coterie, such as pages, that only repeat what a file of
    the authors contains. names: names to search for. sweeps: folders of sweeps in the archive.
    """
    warnings, contents = [], set[bytes]()
    lines, seen = set[tuple[str, str]](), set[str]()
    ranks = {name: _rank(name, members, sweeps) for name in members}
    for name in sorted(members, key=lambda each: (ranks[each], each)):
        content = _text_of(name, members[name])
        if content is None or content in contents:
            continue
        contents.add(content)
        rank = ranks[name]
        searched = [each for each in names if rank < _GENERATED or len(each) >= _SHORT]
        found = identifiers_by_line(_unescaped(name, content), searched, python=name.endswith(".py"))
        now = {(_bare(line), what) for line, items in found.values() for what in items}
        is_copy = rank == _OF_RUN and now <= lines
        if rank == _GENERATED:
            found = {number: (line, _new(items, seen)) for number, (line, items) in found.items()}
        if not is_copy and (places := [place for place in _places(found) if place]):
            more = len(places) - _LINES_SHOWN
            rest = [f"and {more:,} more line{'s' * (more > 1)}"] if more > 0 else []
            warnings.append(f"{name}, {'; '.join([*places[:_LINES_SHOWN], *rest])}")
        lines |= now
        seen |= {what for _, what in now}
    return warnings


_OF_SWEEP, _OF_AUTHORS, _OF_RUN, _GENERATED = range(4)


def _rank(name: str, members: Mapping[str, Member], sweeps: Collection[str]) -> int:
    """Return which files come first: files of the authors before their copies, and before generated files."""
    path = PurePosixPath(name)
    in_sweep = any(name.startswith(f"{folder}/") for folder in sweeps)
    inside = path.parts[2:]
    if in_sweep and inside != (INDEX,) and inside[:1] != (COMPARISON,):
        return _OF_SWEEP
    if path.suffix == ".py" or path.parts[0] == DATA:
        return _OF_AUTHORS
    if path.name == "scenario.toml" and str(path.with_name(CELL)) not in members:
        return _OF_RUN
    return _GENERATED


def _text_of(name: str, member: Member) -> bytes | None:
    """Return the content of a text file, None for other files."""
    if name.endswith(_BINARY) or name.endswith(f"/{READS}"):
        return None
    content = member if isinstance(member, bytes) else member.read_bytes()
    return None if b"\0" in content[:8192] else content


def _unescaped(name: str, content: bytes) -> str:
    """Return the text of a file, with the characters that JSON and HTML escape."""
    text = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if name.endswith((".html", ".svg")):
        text = html.unescape(text)
    if name.endswith((".html", ".json", ".ipynb")):
        text = _ESCAPED.sub(_character, text)
    return text


def _character(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 16)).replace("\n", " ")  # keeps the numbers of lines
    return "\\" if escape[0] == r"\\" else " "


def _bare(line: str) -> str:
    return line.strip().lstrip("#").strip()


def _new(items: Mapping[str, None], seen: Collection[str]) -> dict[str, None]:
    return dict.fromkeys(what for what in items if what not in seen)


def _places(found: Found) -> Iterator[str]:
    for number, (_, items) in found.items():
        yield f"line {number}: {', '.join(items)}" if items else ""


def identifiers_by_line(text: str, names: Collection[str], *, python: bool = False) -> Found:
    """Return the absolute paths, e-mail addresses and names in a text.

    python: the text is code, in which "a@b.mean" is a product of matrices. A finding within another one of
    the same line is left out.
    """
    spans: list[tuple[int, str]] = [
        (match.start(), match[0]) for match in re.finditer(FOLDERS, text) if _KNOWN.match(match[0])
    ]
    spans += [(match.start(), match[0]) for match in _HOME.finditer(text)]
    spans += [(match.start(), rf"{match[1]}\Users\{match[2]}") for match in _WINDOWS_HOME.finditer(text)]
    for name in names:
        words = r"\s+".join(map(re.escape, name.split()))
        spans += [(match.start(), name) for match in re.finditer(rf"(?<!\w){words}(?!\w)", text)]
    mails = list(_MAIL.finditer(text))
    if not spans and not mails:
        return {}
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    products = _operators(text, starts) if python and mails else set()
    spans += [(mail.start(), mail[0]) for mail in mails if mail.start() + mail[0].index("@") not in products]
    of_line: dict[int, dict[str, None]] = {}
    number = 0
    for start, what in sorted(spans):
        while starts[number] <= start:
            number += 1
        of_line.setdefault(number, {})[what] = None
    return {
        number: (text[starts[number - 1] : starts[number] - 1], _outermost(items))
        for number, items in of_line.items()
    }


def _outermost(items: Mapping[str, None]) -> dict[str, None]:
    return dict.fromkeys(
        what for what in items if not any(what != other and what in other for other in items)
    )


def _operators(text: str, starts: list[int]) -> set[int]:
    """Return the places of the operator "@" in Python code."""
    found = set()
    with suppress(tokenize.TokenError, SyntaxError):  # the rest of the code is searched as text
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP and token.string == "@":
                found.add(starts[token.start[0] - 1] + token.start[1])
    return found

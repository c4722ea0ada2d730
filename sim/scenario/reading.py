"""Scenario files: search by path or name, reading, and parsing. Invalid files raise UserError."""

import os
import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any

from actors.nearest import nearest
from sim.errors import UserError, naming_file_in_errors, one_line
from sim.files.input_file import read_regular
from sim.plugins.source_files import PRODUCT
from sim.scenario.sections.run import NAME_BYTES_MAX

_BYTES_MAX = 4 * 2**20  # twice the size of a list of 100,000 clients with positions
DEPTH_MAX = 32
"""Maximum depth of nested tables, and maximum number of parts of a key."""
_PART = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)"""
_DEEP_KEY = re.compile(rf"(?<![\w.-])(?:{_PART}[ \t]*+\.[ \t]*+){{{DEPTH_MAX}}}{_PART}")


def find_scenario(path: Path | str) -> Path:
    """Return `path`, or the scenario of that name in one of the known folders.

    A file has priority over a name. If there is neither, returns `path`, which cannot be read.
    """
    path = Path(path)
    if os.path.lexists(path) and not os.path.isdir(path):
        return path
    if path.name and len(path.parts) == 1:  # a name, not a path
        wanted = path.name.removesuffix(".toml")
        for known in (path.with_name(f"{wanted}.toml"), *scenario_files()):
            if known.stem == wanted and os.path.isfile(known):
                return known
    return path


def scenario_files() -> list[Path]:
    """Return the scenarios and studies in ./scenarios, and coterie's, unless their names occur there."""
    found: dict[str, Path] = {}
    roots = (Path("scenarios"), (PRODUCT / "coterie" / "scenarios").resolve())
    for folder in (root / part for root in roots for part in ("", "studies", "studies/papers")):
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return list(found.values())


def read_text(path: Path) -> str:
    """Read the text of a scenario file, in UTF-8. Raises UserError."""
    if os.path.isdir(path):  # unlike Path.is_dir, without an error for impossible names
        raise UserError("cannot be read: it is a folder; name a scenario file in it", path)
    try:
        return read_regular(path, _BYTES_MAX).decode("utf-8-sig")
    except UserError as error:
        raise UserError(f"cannot be read: {error.problem}", path) from None
    except FileNotFoundError:
        raise UserError(f"no such scenario file; {similar_scenario_hint(path)}", path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", path) from None
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is {error.object[error.start]:#x}"
        raise UserError(f"cannot be read: must be text in UTF-8, but {byte}", path) from None


def similar_scenario_hint(path: Path) -> str:
    """Return a hint to a scenario with a similar name, for a path without a file."""
    beside = [known for known in sorted(path.parent.glob("*.toml")) if known.is_file()]
    by_name = {known.stem: known for known in (*scenario_files(), *beside)}
    near = nearest(path.stem, by_name)
    if near is None:
        return "`coterie list scenarios` lists the known scenarios"
    return f"did you mean {by_name[near]}?"


def default_name(path: Path) -> str:
    """Return a scenario's default run.name: the file's name, with "-" for special characters."""
    name = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", path.stem)).strip("-.")
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore") or "scenario"


def first_comment(text: str) -> str:
    """Return a scenario's question: the first comment, without the comment signs."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("#:"):  # a directive for editors: `#:schema scenario.json`
            lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def scenario_question(path: Path) -> str:
    """Return the first line of a scenario's question, for lists, or the error if the file cannot be read."""
    try:
        return first_comment(read_text(path)).partition("\n")[0]
    except UserError as error:
        return error.problem


def toml_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, unchecked. Raises UserError."""
    with naming_file_in_errors(path):
        return parse_toml(read_text(path))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises UserError."""
    if deep := _DEEP_KEY.search(text):  # tomllib stores each part with all parts before it
        problem = f"not valid TOML: a key has more than {DEPTH_MAX} parts: {deep[0]}"
        raise UserError(one_line(problem, 150), line=text.count("\n", 0, deep.start()) + 1)
    try:
        contents = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also from int(), which rejects thousands of digits
        raise UserError(one_line(f"not valid TOML: {error}")) from None
    require_bounded(contents)
    return contents


def require_bounded(value: Any, key: str = "", depth: int = 0) -> None:
    """Reject tables that are nested too deeply, and whole numbers of more than TOML's 64 bits.

    Files and arrays cannot hold larger numbers. Raises UserError.
    """
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise UserError(one_line(f"{key}: a whole number must have at most 64 bits"))
    if isinstance(value, dict | list):
        if depth > DEPTH_MAX:
            raise UserError("tables or lists are nested too deeply")
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            require_bounded(item, f"{key}.{part}".removeprefix("."), depth + 1)

"""The text of scenario files: found by path or by name, read, and parsed; UserError for what is none."""

import os
import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any

from actors.nearest import nearest
from sim.errors import UserError, errors_about, one_line
from sim.files.input_file import read_regular
from sim.plugins.source_files import PRODUCT
from sim.scenario.sections.run import NAME_BYTES_MAX

_BYTES_MAX = 4 * 2**20  # a list of 100,000 clients with their places has half of it
DEPTH_MAX = 32
"""Tables within tables, and parts of a key."""
_PART = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)"""
_DEEP_KEY = re.compile(rf"(?<![\w.-])(?:{_PART}[ \t]*+\.[ \t]*+){{{DEPTH_MAX}}}{_PART}")


def find_scenario(path: Path | str) -> Path:
    """The file that is meant: `path` itself, or the scenario of that name in one of the known folders.

    A file comes before a name. Where there is neither, it is `path` again, which cannot be read.
    """
    path = Path(path)
    if os.path.lexists(path) and not os.path.isdir(path):
        return path
    if path.name and len(path.parts) == 1:  # a name, not a place
        wanted = path.name.removesuffix(".toml")
        for known in (path.with_name(f"{wanted}.toml"), *scenario_files()):
            if known.stem == wanted and os.path.isfile(known):
                return known
    return path


def scenario_files() -> list[Path]:
    """Scenarios and studies in ./scenarios, and those of coterie's own whose names are not there."""
    found: dict[str, Path] = {}
    places = (Path("scenarios"), (PRODUCT / "coterie" / "scenarios").resolve())
    for folder in (place / part for place in places for part in ("", "studies", "studies/papers")):
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return list(found.values())


def read_text(path: Path) -> str:
    """The text of a scenario file, in UTF-8. UserError."""
    if os.path.isdir(path):  # unlike Path.is_dir, no error for names that cannot be
        raise UserError("cannot be read: it is a folder; name a scenario file in it", path)
    try:
        return read_regular(path, _BYTES_MAX).decode("utf-8-sig")
    except UserError as error:
        raise UserError(f"cannot be read: {error.problem}", path) from None
    except FileNotFoundError:
        raise UserError(f"no such scenario file; {_instead_of(path)}", path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", path) from None
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is {error.object[error.start]:#x}"
        raise UserError(f"cannot be read: must be text in UTF-8, but {byte}", path) from None


def _instead_of(path: Path) -> str:
    """Which scenario may be meant by a path where there is no file."""
    beside = [known for known in sorted(path.parent.glob("*.toml")) if known.is_file()]
    by_name = {known.stem: known for known in (*scenario_files(), *beside)}
    near = nearest(path.stem, by_name)
    if near is None:
        return "`coterie list scenarios` names those that there are"
    return f"did you mean {by_name[near]}?"


def default_name(path: Path) -> str:
    """The name in results of a scenario without run.name: its file's, with "-" for what no name has."""
    name = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", path.stem)).strip("-.")
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore") or "scenario"


def first_comment(text: str) -> str:
    """The question that a scenario answers, as its first comment says, without the comment signs."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("#:"):  # which speaks to editors: `#:schema scenario.json`
            lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def question_of(path: Path) -> str:
    """The first line of a scenario's question, for lists, or why there is none."""
    try:
        return first_comment(read_text(path)).partition("\n")[0]
    except UserError as error:
        return error.problem


def contents_of(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, unchecked. UserError."""
    with errors_about(path):
        return parse_toml(read_text(path))


def parse_toml(text: str) -> dict[str, Any]:
    """The contents of TOML. UserError."""
    if deep := _DEEP_KEY.search(text):  # tomllib keeps each part together with all before it
        problem = f"not valid TOML: a key has more than {DEPTH_MAX} parts: {deep[0]}"
        raise UserError(one_line(problem, 150), line=text.count("\n", 0, deep.start()) + 1)
    try:
        contents = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of int(), too, which refuses thousands of digits
        raise UserError(one_line(f"not valid TOML: {error}")) from None
    require_bounded(contents)
    return contents


def require_bounded(value: Any, key: str = "", depth: int = 0) -> None:
    """Refuse what no scenario has: tables in tables without end, whole numbers of more than TOML's 64 bits.

    Files and arrays hold no larger ones. UserError.
    """
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise UserError(one_line(f"{key}: a whole number must have 64 bits at most"))
    if isinstance(value, dict | list):
        if depth > DEPTH_MAX:
            raise UserError("tables or lists are nested too deeply")
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            require_bounded(item, f"{key}.{part}".removeprefix("."), depth + 1)

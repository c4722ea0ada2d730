"""The command `coterie init`: files for a new method."""

import keyword
import sys
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sim.cli import options
from sim.cli.exit_codes import echo, exit_on_errors
from sim.errors import UserError

_FILES = {
    "{name}.py": "method.py.txt",
    "{name}.toml": "scenario.toml.txt",
    "test_{name}.py": "test.py.txt",
    "{name}.ipynb": "notebook.ipynb.txt",
}
"""Template of each file. NAME and CLASS in its text are replaced."""
_OURS = ("actors", "coterie", "protocols", "sim")


def init(
    name: Annotated[
        str, Argument(help="Name of the method: lowercase letters, digits and _, as for a Python module.")
    ],
    out: Annotated[
        Path, Option(help="Folder for the files.", parser=options.parse_folder, metavar="FOLDER")
    ] = Path("."),
) -> None:
    """Write four files for a new method: its code, a scenario, tests and a notebook.

    All four run without changes. Existing files are never replaced.
    """
    with exit_on_errors():
        _require_module_name(name)
        kind = "".join(part.capitalize() for part in name.split("_"))
        written = {out / pattern.format(name=name): template for pattern, template in _FILES.items()}
        if existing := [str(path) for path in written if path.exists() or path.is_symlink()]:
            verb = "exists" if len(existing) == 1 else "exist"
            raise UserError(f"{', '.join(existing)}: already {verb}; choose another name or --out")
        try:
            out.mkdir(parents=True, exist_ok=True)
            for path, template in written.items():
                text = files("sim.cli").joinpath("templates", template).read_text(encoding="utf-8")
                with path.open("x", encoding="utf-8") as file:
                    file.write(text.replace("NAME", name).replace("CLASS", kind))
        except OSError as error:
            raise UserError(f"{error.filename}: cannot be written: {error.strerror}") from None
    for path in written:
        typer.echo(path)
    scenario = out / f"{name}.toml"
    echo(f"To run the method: coterie run {scenario}", err=True)


def _require_module_name(name: str) -> None:
    """Raise UserError unless `name` can be a module, and the names derived from it are valid."""
    is_plain = name.isascii() and name.isidentifier() and name == name.lower() and name[0] != "_"
    if not is_plain or keyword.iskeyword(name) or name.startswith("test_") or len(name) > 100:
        raise UserError(
            f"{name!r:.120}: must consist of at most 100 lowercase letters, digits and _, start with a "
            "letter, not start with test_, and not be a Python keyword"
        )
    if name in {*_OURS, *sys.stdlib_module_names, *packages_distributions()}:
        raise UserError(f"{name}: is the name of an installed module; choose another name")

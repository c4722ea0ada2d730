"""Results for other tools, by options of `run` and `report`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sim.errors import UserError

Trace = Annotated[
    bool,
    typer.Option(
        "--trace", help="Also write trace.json, a timeline for ui.perfetto.dev or chrome://tracing."
    ),
]
TensorBoard = Annotated[
    bool,
    typer.Option(
        "--tensorboard", help="Also write what was measured for TensorBoard, which must be installed."
    ),
]


def require_packages(tensorboard: bool) -> None:
    """Raises UserError for what has been asked for and is not installed: before a run, not behind it."""
    if tensorboard and find_spec("tensorboard") is None:
        raise UserError("--tensorboard: needs the package tensorboard; pip install 'coterie[tensorboard]'")


def write_exports(path: Path, trace: bool, tensorboard: bool) -> None:
    """Write what was asked for into a result directory, and say where. Raises UserError."""
    if not (trace or tensorboard):
        return
    from sim.results.store.run_directory import RunDirectory

    directory = RunDirectory.load(path)
    try:
        if trace:
            from sim.results.perfetto import write_perfetto

            typer.echo(f"trace: {write_perfetto(directory)}")
        if tensorboard:
            from sim.results.tensorboard import write_tensorboard

            typer.echo(f"tensorboard: {write_tensorboard(directory)}")
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}") from error

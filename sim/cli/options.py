"""The options that several commands of `coterie` have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from actors.settings.units import DURATION


class DeviceChoice(StrEnum):
    """Where the numbers are computed."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


ScenarioFile = Annotated[
    Path,
    typer.Argument(metavar="SCENARIO", help="Scenario file (TOML), or the name of one, such as quickstart."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: --set network.loss=0.1"),
]
Unset = Annotated[
    list[str] | None,
    typer.Option(
        "--unset", metavar="KEY", help="Take a key out of the file, before any --set: --unset network.server"
    ),
]
NoCode = Annotated[
    bool,
    typer.Option(
        "--no-code",
        help="Execute no Python that does not come with coterie: no protocol, model, data, ... of a file.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Override run.seed.")]


def folder(text: str) -> Path:
    if not text:  # which a Path would take for the current folder: what "$UNSET" gives
        raise typer.BadParameter("must name a folder, and is empty; . is the current one")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the data sets; else COTERIE_DATA, else ./data.", parser=folder, metavar="DIRECTORY"
    ),
]


def duration(text: str) -> float:
    try:
        seconds = DURATION.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not seconds:
        raise typer.BadParameter(f"{text!r} must be more than 0; write {DURATION.allowed}")
    return seconds


CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        help="Real time between two checkpoints, from which `coterie resume` goes on.",
        parser=duration,
        metavar="TIME",
    ),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Go on with other code or libraries, and no longer exactly.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
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

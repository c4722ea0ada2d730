"""The options that several commands of `coterie` have."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from actors.settings.units import DURATION
from sim.errors import require_packages


class DeviceChoice(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def duration(text: str) -> float:
    try:
        seconds = DURATION.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not seconds:
        raise typer.BadParameter(f"{text!r} must be more than 0; write {DURATION.allowed}")
    return seconds


def refuse_address(address: str | None) -> None:
    """Refuse the address of a cluster where none is used, but for one that the environment has."""
    if address is not None and address != os.environ.get("RAY_ADDRESS"):
        raise typer.BadParameter("is for --on ray; add that, or leave it out", param_hint="--address")


TIME: Any = {"parser": duration, "metavar": "TIME"}
"""How an option reads a stretch of time."""
Device = Annotated[DeviceChoice, Option(help="Where to compute.")]
Run = Annotated[Path, Argument(metavar="RUN", help="Result directory of a run.")]
ScenarioFile = Annotated[
    Path, Argument(metavar="SCENARIO", help="Scenario file (TOML), or the name of one, such as quickstart.")
]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key: --set network.loss=0.1")
]
Unset = Annotated[
    list[str] | None,
    Option("--unset", metavar="KEY", help="Take a key out, before any --set: --unset network.server"),
]
NoCode = Annotated[bool, Option("--no-code", help="Execute no Python that does not come with coterie.")]
Address = Annotated[
    str | None,
    Option(help="Ray cluster; without, --on ray begins one here.", metavar="ADDRESS", envvar="RAY_ADDRESS"),
]
Seed = Annotated[int | None, Option(help="Override run.seed.")]


def folder(text: str) -> Path:
    if not text:  # which a Path would take for the current folder: what "$UNSET" gives
        raise typer.BadParameter("must name a folder, and is empty; . is the current one")
    return Path(text)


DataDir = Annotated[
    Path | None,
    Option(help="Folder with data sets; else COTERIE_DATA, else ./data.", parser=folder, metavar="DIRECTORY"),
]


CheckpointEvery = Annotated[
    float | None,
    Option(help="Real time between checkpoints, from which `coterie resume` goes on.", **TIME),
]
Anyway = Annotated[
    bool, Option("--anyway", help="Go on with other code or libraries, and no longer exactly.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Trace = Annotated[bool, Option("--trace", help="Also write trace.json for ui.perfetto.dev.")]


class Tracker(StrEnum):
    tensorboard = "tensorboard"
    wandb = "wandb"
    mlflow = "mlflow"


Track = Annotated[
    list[Tracker] | None,
    Option("--track", help="Also write what was measured for a tracker; may be repeated."),
]
TensorBoard = Annotated[bool, Option("--tensorboard", help="The same as --track tensorboard.")]


def trackers(track: list[Tracker] | None, tensorboard: bool) -> list[Tracker]:
    """The trackers that are asked for, each once. UserError where the package of one is missing."""
    asked = list(dict.fromkeys([*[Tracker.tensorboard] * tensorboard, *(track or ())]))
    for each in asked:
        require_packages(each, f"--track {each}", each)
    return asked

"""Options that several commands of `coterie` share."""

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


def parse_duration(text: str) -> float:
    try:
        seconds = DURATION.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not seconds:
        raise typer.BadParameter(f"{text!r} must be more than 0; write {DURATION.allowed}")
    return seconds


def parse_virtual_time(text: str) -> float:
    """Parse a virtual time, which may be 0."""
    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def refuse_address(address: str | None) -> None:
    """Reject --address without `--on ray`, unless the environment has the same address."""
    if address is not None and address != os.environ.get("RAY_ADDRESS"):
        raise needs_option("--address", "--on ray")


def needs_option(option: str, other: str) -> typer.BadParameter:
    """Return the error about an option that has an effect only with another one."""
    return typer.BadParameter(f"needs {other}; add {other}, or remove {option}", param_hint=option)


TIME: Any = {"parser": parse_duration, "metavar": "TIME"}
"""Settings of an option with a duration."""
Out = Annotated[Path, Option(help="Folder for result directories.")]
Device = Annotated[DeviceChoice, Option(help="Device that computes.")]
Run = Annotated[Path, Argument(metavar="RUN", help="Result directory of a run.")]
ScenarioFile = Annotated[
    Path, Argument(metavar="SCENARIO", help="Scenario file (TOML), or a scenario's name, such as quickstart.")
]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key: --set network.loss=0.1")
]
Unset = Annotated[
    list[str] | None,
    Option("--unset", metavar="KEY", help="Remove a key: --unset network.server. Applies before --set."),
]
NoCode = Annotated[bool, Option("--no-code", help="Reject Python code that is not part of coterie.")]
Address = Annotated[
    str | None,
    Option(
        help="Ray cluster; by default, --on ray starts a local one.", metavar="ADDRESS", envvar="RAY_ADDRESS"
    ),
]
Seed = Annotated[int | None, Option(help="Override run.seed.")]


def parse_folder(text: str) -> Path:
    if not text:  # Path("") is the current folder, but an unset shell variable is probably an error
        raise typer.BadParameter("must name a folder, but is empty; . is the current folder")
    return Path(text)


DataDir = Annotated[
    Path | None,
    Option(
        help="Folder with data sets; by default COTERIE_DATA or ./data.",
        parser=parse_folder,
        metavar="DIRECTORY",
    ),
]


CheckpointEvery = Annotated[
    float | None,
    Option(help="Wall-clock time between checkpoints for `coterie resume`.", **TIME),
]
Anyway = Annotated[
    bool, Option("--anyway", help="Continue with different code or libraries; the trace may then differ.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Trace = Annotated[bool, Option("--trace", help="Also write trace.pftrace for ui.perfetto.dev.")]


class Tracker(StrEnum):
    tensorboard = "tensorboard"
    wandb = "wandb"
    mlflow = "mlflow"


Track = Annotated[
    list[Tracker] | None,
    Option("--track", help="Also write the metrics for a tracker; you can repeat the option."),
]
TensorBoard = Annotated[bool, Option("--tensorboard", help="The same as --track tensorboard.")]


def trackers(track: list[Tracker] | None, tensorboard: bool, trace: bool) -> list[Tracker]:
    """Return the chosen trackers, without duplicates. Raises UserError if an export lacks its package."""
    if trace:
        require_packages("trace", "--trace", "perfetto")
    chosen = list(dict.fromkeys([*[Tracker.tensorboard] * tensorboard, *(track or ())]))
    for each in chosen:
        require_packages(each, f"--track {each}", each)
    return chosen

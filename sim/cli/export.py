"""The command `coterie export`: trained models of a run as files."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from sim.cli import options
from sim.cli.exit_codes import echo, exit_on_errors
from sim.errors import UserError
from sim.run.interrupts import raise_interrupted, signals_handled_by

_FOLDER = "models"  # in the results, by default


class Format(StrEnum):
    safetensors = "safetensors"
    peft = "peft"


_Clients = Annotated[
    list[str] | None,
    Option(help="Number or name of a client; you can repeat the option. By default, all clients."),
]
_At = Annotated[
    float | None,
    Option(
        help="Virtual time of the models; by default the end of the run.",
        parser=options.parse_virtual_time,
        metavar="TIME",
    ),
]
_Folder = Annotated[
    Path | None,
    Option(
        help="Folder for the files; by default `models` in the results.",
        parser=options.parse_folder,
        metavar="FOLDER",
    ),
]


def export(
    directory: options.Run,
    format_: Annotated[
        Format,
        Option("--format", help="Format: whole models, or adapters as the package peft reads them."),
    ] = Format.safetensors,
    client: _Clients = None,
    at: _At = None,
    model: Annotated[
        str | None,
        Option(help="Name of the model, for methods with several for each client.", metavar="NAME"),
    ] = None,
    out: _Folder = None,
    anyway: Annotated[
        bool, Option("--anyway", help="Also write models that differ from those of the run.")
    ] = False,
    data_dir: options.DataDir = None,
    no_code: options.NoCode = False,
) -> None:
    """Write the clients' models at the end of a run, or at TIME, to one file for each client.

    The tensors have the names of the torch module, so its `load_state_dict` accepts them. The
    models are computed again from the last checkpoint at or before that time, and compared with the run's
    checksums. With --format peft, the adapters of each client are written to a separate folder.

    The copy of your code in the results is executed, unless you pass --no-code, which rejects it.
    """
    with exit_on_errors(), signals_handled_by(raise_interrupted):
        from sim.results.store.output_dir import is_results
        from sim.run.resume.resuming import result_folders
        from sim.run.resume.trained_models import trained_models

        if out is None and not is_results(directory):
            result_folders(directory)  # raises if it is no run
            raise UserError(f"{directory} has no results yet; pass --out, a folder for the files")
        folder = directory / _FOLDER if out is None else out
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: is a file, not a folder; pass another --out")
        models = trained_models(
            directory,
            client,
            at,
            name=model,
            adapters=format_ is Format.peft,
            data_dir=data_dir,
            code=not no_code,
            anyway=anyway,
            notice=partial(echo, err=True),
        )
        for each in models:
            folder.mkdir(parents=True, exist_ok=True)
            typer.echo(each.save_adapters(folder) if format_ is Format.peft else each.save(folder))

"""Command `coterie pretrain`, which trains base models for adapters."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sim.cli import options
from sim.cli.console import StatusLine, Terminal
from sim.cli.exit_codes import FAILED, exit_code_of_interrupt, exit_on_errors, stop
from sim.errors import UserError
from sim.results import text


def pretrain(
    file: Annotated[
        Path | None,
        Argument(metavar="SETTINGS", help="Settings of the base (TOML); by default a base in English."),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an earlier base.")] = False,
    data_dir: options.DataDir = None,
    quiet: options.Quiet = False,
) -> None:
    """Train a small language model, in minutes, as the base of scenarios with model.name = "lora"."""
    with exit_on_errors(file):
        from pydantic import ValidationError

        from sim.core.process import torch_threads
        from sim.files.data_folder import DataFolder
        from sim.learning.language import pretraining
        from sim.run.interrupts import raise_interrupted, signals_handled_by
        from sim.scenario.reading import toml_tables
        from sim.scenario.refusals import error_line, errors_in_file, unique_errors

        contents = {} if file is None else toml_tables(file)
        try:
            settings = pretraining.Pretraining.model_validate(contents)
        except ValidationError as error:
            found = errors_in_file(pretraining.Pretraining, unique_errors(error), contents, ())
            raise UserError("\n".join(map(error_line, found))) from None
        out = Path(settings.out)
        if os.path.exists(out) and not overwrite:
            raise UserError(f'out = "{settings.out}": already exists; pass --overwrite to replace it')
        start_s = time.perf_counter()
        with signals_handled_by(raise_interrupted), StatusLine(Terminal(stderr=True), quiet) as line:

            def progress(step: int, loss: float) -> None:
                status = f"{step:,} of {settings.steps:,} steps, loss {loss:.3f}"
                line.update(status, step / settings.steps, time.perf_counter() - start_s)

            try:
                with torch_threads(1):  # another number changes the last bits of sums
                    path, loss = pretraining.pretrain(settings, DataFolder(data_dir), progress)
            except KeyboardInterrupt as error:
                stop("interrupted; no file was written", exit_code_of_interrupt(error))
    typer.echo(f"{path}: loss {loss:.3f}, after {text.duration(round(time.perf_counter() - start_s))}")
    if path != out:
        stop(f"cannot write {out}: move {path} there", FAILED)

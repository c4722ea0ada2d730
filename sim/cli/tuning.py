"""Command for tuning: `coterie tune`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from sim.cli import options
from sim.cli.commands import app
from sim.cli.exit_codes import FAILED, echo, exit_on_errors, stop
from sim.cli.studies import (
    Executor,
    Gpus,
    Jobs,
    On,
    executor,
    parsed_seeds,
    print_table,
    showing_sweep_progress,
)
from sim.errors import UserError, require_packages
from sim.results import text
from sim.studies.option_values import as_toml
from sim.studies.tuning.sampler_names import SamplerName

if TYPE_CHECKING:
    from sim.studies.tuning.tuning import Tuning, TuningResult

_MOST = 10_000
_Methods = Annotated[
    str | None,
    Option(
        metavar="NAMES",
        help='Methods, or cases of the sweep: fedavg,"Ditto, slow". By default, the file\'s method.',
    ),
]
_Seeds = Annotated[
    Any,
    Option(help="Number of seeds from 9001 on (by default 2), or a list: 11,12.", parser=parsed_seeds),
]
_ValidationShare = Annotated[
    float,
    Option(min=0.0, max=0.9, help="Share of training samples held out, if the scenario states none."),
]
_Over = Annotated[
    list[str] | None,
    Option(
        metavar="AXIS=CASE",
        help="Case of the file's sweep in which each trial runs. Repeat the option to score trials by "
        "the mean over several cases.",
    ),
]
_Keep = Annotated[
    list[str] | None,
    Option(
        metavar="KEY",
        help="Setting that is not searched; you can repeat the option: protocol.local_steps.",
    ),
]


@app.command()
def tune(
    file: options.ScenarioFile,
    methods: _Methods = None,
    trials: Annotated[int, Option(min=1, max=_MOST, help="Trials of each method.")] = 16,
    seeds: _Seeds = None,
    sampler: Annotated[SamplerName, Option(help="Sampler of the settings.")] = SamplerName.sobol,
    validation_share: _ValidationShare = 0.2,
    over: _Over = None,
    keep: _Keep = None,
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    jobs: Jobs = None,
    on: On = Executor.processes,
    address: options.Address = None,
    gpus: Gpus = None,
    out: options.Out = Path("runs"),
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    dry_run: Annotated[bool, Option("--dry-run", help="Only check and list the search.")] = False,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Search for the best settings of each method, in equal numbers of trials, scored on held-out samples.

    To resume an interrupted search, repeat the command: it keeps finished runs.
    """
    with exit_on_errors(file):
        if sampler is SamplerName.tpe:
            require_packages("tune", "tune --sampler tpe", "optuna")
        from sim.studies.cells import StatedScenario
        from sim.studies.tuning.files import write_files
        from sim.studies.tuning.methods import conditions_of, tuned_methods
        from sim.studies.tuning.tuning import Tuning, tuning_seeds
        from sim.studies.tuning.tuning import tune as run_tuning
        from sim.studies.worker import CellOptions

        stated = StatedScenario(file, tuple(overrides or ()), tuple(unset or ()), not no_code)
        found = tuned_methods(stated, _names(methods), validation_share, keep or ())
        seed, conditions = found[0].stated.scenario().run.seed, conditions_of(stated, over or (), found)
        tuning = Tuning(file, found, trials, tuning_seeds(seeds or 2), sampler, seed, conditions)
        if dry_run:
            _print_search(tuning)
            return
        execute, at_once = executor(on, address, jobs, gpus, tuning.threads, device)
        how = CellOptions(data_dir, device.value, not no_code, at_once=at_once)
        with showing_sweep_progress(quiet) as line:
            result = run_tuning(tuning, out=out, how=how, execute=execute, show=line.show)
        write_files(result)
    _print_result(result)


def _names(methods: str | None) -> list[str]:
    """Return the names in a list with commas, in which quotes may enclose a name. Raises UserError."""
    if methods is None:
        return []
    names = [name.strip() for name in next(csv.reader([methods], skipinitialspace=True), [])]
    if not all(names) or not names:
        raise UserError(f"--methods {as_toml(methods)}: must be names with commas between them: local,fedavg")
    return names


def _print_search(tuning: Tuning) -> None:
    for method in tuning.methods:
        trials = text.counted(tuning.trials, "trial")
        typer.echo(f"{method.name}: {trials} with seeds {', '.join(map(str, tuning.seeds))}")
        for key, values in method.space.items():
            typer.echo(f"  {key}: {values}")


def _print_result(result: TuningResult) -> None:
    from sim.studies.tuning.budgets import unequal_budgets
    from sim.studies.tuning.files import TRIALS, TUNED, best_rows

    heads = ["method", "failed", "default", "tuned", "best of all", "settings"]
    rows, failed = [], []
    for method, row in zip(result.tuning.methods, best_rows(result), strict=True):
        shown = [
            _measure_text(method.tested_by, row[key]) for key in ("default_test", "best_test", "oracle_test")
        ]
        rows.append([method.name, f"{row['failed']} of {row['trials']}", *shown, row["settings"]])
        failed += [] if result.best(method.name) else [method.name]
    print_table(heads, rows, len(heads))
    measures = ", ".join(dict.fromkeys(method.tested_by.label for method in result.tuning.methods))
    selected = ", ".join(dict.fromkeys(method.selected_by.label for method in result.tuning.methods))
    typer.echo(
        f"The table shows the {measures}; trials are selected by the {selected}. Every trial: {TRIALS}"
    )
    for warning in unequal_budgets(result):
        echo(f"warning: {warning}", err=True)
    if len(failed) < len(rows):
        typer.echo(f"To run the tuned methods, use: coterie sweep {result.directory / TUNED} --seeds 5")
    if failed:
        echo(
            f"all trials failed: {', '.join(failed)}; {result.directory / TRIALS} lists the reasons", err=True
        )
        stop(f"{len(failed)} of {text.counted(len(rows), 'method')} without a successful trial", FAILED)


def _measure_text(measure: Any, value: float | str) -> str:
    return text.NOTHING if value == "" else measure.text(value)

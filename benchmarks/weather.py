"""Remaining accuracy of every method in bad weather: loss of messages, speed or clients.

`coterie sweep scenarios/studies/weather.toml --full` makes the runs, and so do weather_one_model.toml and
weather_decoupled.toml; hours on one core. `python -m benchmarks.weather SWEEP...` prints the means over
seeds as CSV. With `--write` it adds the runs to docs/weather/runs.csv, so that the sweeps can be measured
in parts (`coterie sweep --only "method=cobo, asynchronous"`). When this file contains all runs, the command
also writes docs/weather/means.csv, the picture, and the columns of the slow client in docs/weather.md.
"""

import argparse
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.weather_picture import picture
from benchmarks.weather_table import AXES, CALM, KEYS, as_table, load, means, outcome, with_slow_client
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario, sweep_alone
from sim.studies.cells import plan
from sim.studies.study import Study, load_study

STUDIES = Path(__file__).parents[1] / "scenarios" / "studies"
DOCS = Path(__file__).parents[1] / "docs" / "weather"
RUNS, MEANS, PICTURE = "runs.csv", "means.csv", "weather.svg"
FAMILIES = {
    "weather": "Personal models",
    "weather_one_model": "One model for all",
    "weather_decoupled": "Decoupled models",
}
"""Families of methods, by name of their sweep."""


def planned_runs() -> list[tuple[Any, ...]]:
    """Return the keys (`KEYS`) of all runs of the full sweeps, in the order of the tables."""
    found: list[tuple[Any, ...]] = []
    for name, family in FAMILIES.items():
        file = STUDIES / f"{name}.toml"
        alone = sweep_alone(file)
        sweep = load_scenario(file).sweep if alone is None else alone[1]
        assert sweep is not None
        axes = sweep.axes(full=True)
        assert isinstance(axes.seeds, tuple)
        data, methods, weathers = [[str(c.name) for c in axes.case if c.axis == axis] for axis in AXES]
        found += [(each[0], family, *each[1:]) for each in product(data, methods, weathers, axes.seeds)]
    return sorted(found, key=lambda run: run[0])


def measured(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the rows of one sweep's runs that have a calm run.

    Raises UserError for runs of a changed sweep.
    """
    if study.name not in FAMILIES or set(study.axes) != set(AXES):
        there = f"{study.name}, by {', '.join(study.axes)}"
        raise UserError(
            f"{there}: is not a sweep of the weather; must be one of {', '.join(FAMILIES)}, unchanged"
        )
    _require_shipped(study)
    runs = {(*[str(run.values[axis]) for axis in AXES], run.seed): run for run in study.runs}
    for (data, method, weather, seed), run in runs.items():
        calm = runs.get((data, method, CALM, seed))
        if calm is not None:
            yield {
                **dict(zip(KEYS, (data, FAMILIES[study.name], method, weather, seed), strict=True)),
                "commit": (RunDirectory.load(run.directory).provenance()["commit"] or "")[:10],
                **outcome(run.view, calm.view, run.excluded),
            }


def _require_shipped(study: Study) -> None:
    """Raise UserError for runs of other scenarios than the sweep's."""
    file = STUDIES / f"{study.name}.toml"
    only = [f"{axis}={value}" for axis, values in study.axes.items() for value in values]
    planned = plan(file, full=True, only=only, seeds=tuple(sorted({run.seed for run in study.runs})))
    shipped = {(tuple(map(cell.values.get, AXES)), cell.seed): cell for cell in planned.cells}
    for run in study.runs:
        cell = shipped[tuple(map(run.values.get, AXES)), run.seed]
        scenario = load_scenario(planned.file, cell.overrides, cell.seed, unset=cell.unset)
        texts = [to_toml(scenario), RunDirectory.load(run.directory).scenario_text()]
        ours, theirs = [tomllib.loads(text) for text in texts]
        for contents in (ours, theirs):  # the path of an example may differ, and all engines give the same
            contents["protocol"]["name"] = contents["protocol"]["name"].rpartition("/")[2]
            del contents["engine"]
        if ours != theirs:
            raise UserError(f"{run.directory}: differs from the current {file.name}; run the sweep again")


def as_csv(table: pl.DataFrame) -> str:
    """Return a table of means as CSV, with two decimals."""
    return table.with_columns(pl.selectors.float().round(2)).write_csv()


def main() -> None:
    """Print the means, or write all files with `--write`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="*", metavar="SWEEP", help="folders of sweeps")
    parser.add_argument("--write", action="store_true", help=f"add to {RUNS}, write {MEANS} and the picture")
    chosen = parser.parse_args()
    new = as_table([row for path in chosen.sweeps for row in measured(load_study([path]))])
    if not chosen.write:
        print(as_csv(means(new)), end="")
        return
    runs = pl.concat([load(DOCS / RUNS), new]).unique(KEYS, keep="last")
    planned = planned_runs()
    order = {key: index for index, key in enumerate(planned)}
    if unknown := [key for key in runs.select(KEYS).rows() if key not in order]:
        raise UserError(f"{RUNS}: contains runs of no sweep: {unknown[0]}; remove them")
    runs = as_table(sorted(runs.to_dicts(), key=lambda row: order[tuple(row[key] for key in KEYS)]))
    runs.write_csv(DOCS / RUNS)
    if runs.height < len(planned):
        print(f"{MEANS} is unchanged: {len(planned) - runs.height} runs are missing in {RUNS}", flush=True)
        return
    (DOCS / MEANS).write_text(as_csv(means(runs)), encoding="utf-8")
    (DOCS / PICTURE).write_text(picture(means(runs)), encoding="utf-8")
    page = DOCS.with_suffix(".md")
    page.write_text(with_slow_client(page.read_text(encoding="utf-8"), means(runs)), encoding="utf-8")


if __name__ == "__main__":
    main()

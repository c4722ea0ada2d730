"""Every method in bad weather: what is left of its accuracy when messages, speed or clients are lost.

`coterie sweep scenarios/studies/weather.toml --full` makes the runs, and so do weather_one_model.toml and
weather_decoupled.toml; hours on one core. `python -m benchmarks.weather SWEEP... [--write]` prints the tables
of what there is of such sweeps. `--write` adds it to docs/weather.jsonl, so that the tables can be measured
in parts, on several days and machines (`coterie sweep --only "method=cobo, asynchronous"`). Once nothing is
missing there, it puts the tables below the reading in docs/weather.md, and the picture beside it.
"""

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from benchmarks.weather_picture import picture
from benchmarks.weather_record import Entry, Place, Record, load, save
from benchmarks.weather_table import CALM, Cell, Cells, outcome, page
from sim.errors import UserError
from sim.results.store import RunDirectory
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario, sweep_alone
from sim.studies.cells import plan
from sim.studies.study import Study, load_study

STUDIES = Path(__file__).parents[1] / "scenarios" / "studies"
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE, RECORD = DOCS / "weather.md", DOCS / "weather.svg", DOCS / "weather.jsonl"
TITLES = {
    "weather": "Personal models",
    "weather_one_model": "One model for all",
    "weather_decoupled": "Decoupled models",
}
"""The sweeps by name, and what their methods are called together."""
AXES = ("data", "method", "weather")
_OF_80 = "local, of 80 %"  # beside methods that judge models by held-back samples
_CONTROLS = {
    "learn-to-collaborate": _OF_80,
    "meta-l2c": _OF_80,
    "fedfomo": _OF_80,
    "dfedavgm": "dfedavgm, alone",
    "mapl": "mapl, alone",
    "mapl-plus": "mapl, alone",
}


def control_of(method: str) -> str | None:
    """The method without collaboration that one is held against; None for one that is such itself."""
    name = method.partition(",")[0]
    return None if name == "local" or method.endswith(", alone") else _CONTROLS.get(name, "local")


def places() -> list[Place]:
    """All runs of the full sweeps, in the order of the tables."""
    found: list[Place] = []
    for name, title in TITLES.items():
        file = STUDIES / f"{name}.toml"
        alone = sweep_alone(file)
        sweep = load_scenario(file).sweep if alone is None else alone[1]
        assert sweep is not None
        axes = sweep.axes(full=True)
        assert isinstance(axes.seeds, tuple)
        data, methods, weathers = [[str(c.name) for c in axes.case if c.axis == axis] for axis in AXES]
        for where, method, weather, seed in product(data, methods, weathers, axes.seeds):
            found.append(Place(where, title, method, weather, seed))
    return sorted(found, key=lambda place: place.data)


def entries(study: Study) -> Iterator[tuple[Place, Entry]]:
    """What the runs of one sweep came to, of those whose calm run is there as well.

    UserError for runs that are not those of the sweep as it is shipped.
    """
    if study.name not in TITLES or set(study.axes) != set(AXES):
        there = f"{study.name}, by {', '.join(study.axes)}"
        raise UserError(f"{there}: is no sweep of the weather; must be one of {', '.join(TITLES)}, as it is")
    runs = {
        Place(family=TITLES[study.name], seed=run.seed, **{axis: str(run.values[axis]) for axis in AXES}): run
        for run in study.runs
    }
    _require_shipped(study)
    for place, run in runs.items():
        calm = runs.get(place._replace(weather=CALM))
        if calm is not None:
            commit = RunDirectory.load(run.directory).provenance()["commit"]
            yield place, Entry(outcome(run.view, calm.view, run.struck), commit)


def _require_shipped(study: Study) -> None:
    """Refuse runs of other scenarios than the sweep's."""
    file = STUDIES / f"{study.name}.toml"
    only = [f"{axis}={value}" for axis, values in study.axes.items() for value in values]
    planned = plan(file, full=True, only=only, seeds=tuple(sorted({run.seed for run in study.runs})))
    shipped = {(tuple(map(cell.values.get, AXES)), cell.seed): cell for cell in planned.cells}
    for run in study.runs:
        cell = shipped[tuple(map(run.values.get, AXES)), run.seed]
        scenario = load_scenario(planned.file, cell.overrides, cell.seed, unset=cell.unset)
        texts = [to_toml(scenario), RunDirectory.load(run.directory).scenario_text()]
        ours, theirs = [tomllib.loads(text) for text in texts]
        for contents in (ours, theirs):  # the same example may lie elsewhere, and any engine gives the same
            contents["protocol"]["name"] = contents["protocol"]["name"].rpartition("/")[2]
            del contents["engine"]
        if ours != theirs:
            raise UserError(f"{run.directory}: is another run than {file.name} has by now")


def tables_of(record: Record, wanted: Sequence[Place]) -> dict[tuple[str, str], Cells]:
    """The cells of each (data, family), of those that the record has with all seeds."""
    outcomes: dict[tuple[str, str], dict[tuple[str, str], list[Entry | None]]] = {}
    for place in wanted:
        cells = outcomes.setdefault((place.data, place.family), {})
        cells.setdefault((place.method, place.weather), []).append(record.get(place))
    return {
        where: {
            key: Cell(tuple([each.outcome for each in found if each is not None]))
            for key, found in cells.items()
            if None not in found
        }
        for where, cells in outcomes.items()
    }


def page_of(tables: Mapping[tuple[str, str], Cells], seeds: Sequence[int]) -> str:
    """The tables as Markdown."""
    controls = {method: control_of(method) for cells in tables.values() for method, _ in cells}
    return f"Measured with the seeds {', '.join(map(str, seeds))}.\n\n{page(tables, controls)}\n"


def main() -> None:
    """Print the tables, and write them where that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="*", metavar="SWEEP", help="directories of sweeps")
    parser.add_argument("--write", action="store_true", help=f"add to {RECORD.name}, and write {PAGE.name}")
    chosen = parser.parse_args()
    measured = {place: entry for path in chosen.sweeps for place, entry in entries(load_study([path]))}
    if not chosen.write:
        seeds = sorted({place.seed for place in measured})
        print(page_of(tables_of(measured, list(measured)), seeds))
        return
    record = load(RECORD) | measured
    save(RECORD, record)
    wanted = places()
    if missing := [place for place in wanted if place not in record]:
        print(f"{PAGE.name} stays as it is: {len(missing)} runs are not in {RECORD.name} yet", flush=True)
        return
    tables = tables_of(record, wanted)
    seeds = sorted({place.seed for place in wanted})
    PAGE.write_text(f"{head_of(PAGE)}\n\n{page_of(tables, seeds)}", encoding="utf-8")
    PICTURE.write_text(picture(tables), encoding="utf-8")


MARK = "<!-- measured: what follows is written by `python -m benchmarks.weather --write` -->"


def head_of(file: Path) -> str:
    """What people wrote on the page, with the line that ends it; UserError where there is none."""
    head, mark, _ = file.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise UserError(f"{file} has no line {MARK!r}, below which the tables would go")
    return head + mark


if __name__ == "__main__":
    main()

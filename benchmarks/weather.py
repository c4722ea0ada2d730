"""Every method in bad weather: what is left of its accuracy when messages, speed or clients are lost.

Run `python -m benchmarks.weather --data-dir DIR [--jobs 16] [--quick] [--write]`; hours on one core.
The results of each run are kept under --out, and no run is repeated until its scenario or its method's source
changes. `--write` measures what docs/weather.jsonl lacks and adds it, so that the tables can be measured in
parts, on several days and machines: --data, --methods, --weathers, --seeds. Once nothing is missing there, it
puts the tables below the reading in docs/weather.md, and the picture beside it. What is to be measured again
must be deleted from the record.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from benchmarks.fidelity import Overrides, run
from benchmarks.weather_methods import FAMILIES, Family, Method
from benchmarks.weather_picture import picture
from benchmarks.weather_record import Entry, Place, Record, load, save
from benchmarks.weather_table import CALM, Cell, Cells, outcome, page
from sim.errors import UserError
from sim.results.place import CHECKPOINT, REPORT
from sim.results.store import RunDirectory
from sim.results.view import RunView

SCENARIO = Path(__file__).with_name("weather.toml")
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE, RECORD = DOCS / "weather.md", DOCS / "weather.svg", DOCS / "weather.jsonl"
SEEDS = (11, 12, 13)
"""Nothing was tuned on these."""
METHODS = list(dict.fromkeys(name for family in FAMILIES for name in family.methods))
DATA: dict[str, Overrides] = {
    "digits": [],
    "fashion-mnist": ["data.name=fashion-mnist", "data.partition.samples_per_client=100"],
}


@dataclass(frozen=True)
class Weather:
    """What happens: the overrides, and to which clients' device or life it does.

    loss: share of the messages that are lost. newcomers: how many clients come later, all to the last
    cluster. halves: clients on both sides of a partition, the servers with the first.
    """

    overrides: Overrides = ()
    struck: Sequence[int] = ()
    loss: float = 0.0
    newcomers: int = 0
    halves: Sequence[Sequence[int]] = field(default=())


# --- weathers -----------------------------------------------------------------------------------------------

SLOW, CRASHED, NEWCOMERS = (3, 6, 9), (1, 2, 8), (10, 11, 12)
HALVES = ((0, 2, 3, 5, 9), (1, 4, 6, 7, 8))


def _slow(clients: Sequence[int]) -> str:
    return f"devices.override=[{{clients={list(clients)},slowdown=20}}]"


def _churn(seconds: float) -> str:
    events = [("crash", CRASHED), ("join", NEWCOMERS)]
    entries = [
        f'{{at="{seconds / 2} s",event="{event}",clients={list(clients)}}}' for event, clients in events
    ]
    return f"churn=[{','.join(entries)}]"


def _absent(seconds: float, clients: Sequence[int]) -> str:
    """These come a millisecond before the end, too late for any message of theirs."""
    return f'churn=[{{at="{seconds - 0.001} s",event="join",clients={list(clients)}}}]'


def weathers(seconds: float) -> dict[str, Weather]:
    """Name -> what happens in a run of so many seconds.

    The last two are controls: what the others reach if those that are slow, or struck in any way, and their
    data, had never been there.
    """
    come_and_go, count = CRASHED + NEWCOMERS, len(NEWCOMERS)
    newcomers_too = (HALVES[0] + NEWCOMERS[:1], HALVES[1] + NEWCOMERS[1:])
    return {
        "calm": Weather(),
        "5 % lost": Weather(loss=0.05),
        "30 % lost": Weather(loss=0.3),
        "one slow": Weather([_slow(SLOW[:1])], SLOW[:1]),
        "three slow": Weather([_slow(SLOW)], SLOW),
        "churn": Weather([_churn(seconds)], come_and_go, newcomers=count),
        "partition": Weather(halves=HALVES),
        "all at once": Weather([_slow(SLOW), _churn(seconds)], SLOW + come_and_go, 0.3, count, newcomers_too),
        "slow absent": Weather([_absent(seconds, SLOW)], SLOW),
        "struck absent": Weather([_absent(seconds, SLOW + CRASHED)], SLOW + CRASHED),
    }


def overrides(family: Family, method: Method, weather: Weather, data: str) -> Overrides:
    """What differs from the scenario file in one cell."""
    seconds, sizes = family.seconds, [*family.clusters]
    sizes[-1] += weather.newcomers  # whoever comes at the end changes nobody else's data
    world = [
        f'run.duration="{seconds} s"',
        f'run.evaluate_every="{seconds / 20} s"',
        f"clients.count={sum(sizes)}",
        f"data.partition.sizes={sizes}",
    ]
    network = []
    if method.control is not None:  # else nothing is sent that could be lost: the run is that of calm weather
        network.append(f"network.loss={weather.loss}")
        if weather.halves:
            first, second = map(list, weather.halves)
            groups = f"[{[*first, 'servers'] if method.has_server else first},{second}]"
            cut = f'{{start="{0.6 * seconds} s",end="{0.8 * seconds} s",groups={groups}}}'
            network.append(f"network.partition=[{cut}]")
    return [*world, *network, *DATA[data], *family.overrides, *method.overrides, *weather.overrides]


# --- measuring ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """Which part of everything is measured, where results are kept and where the data are."""

    data: Sequence[str]
    seeds: Sequence[int]
    methods: Sequence[str]
    weathers: Sequence[str]
    out: Path
    data_dir: Path | None = None


def results_of(choice: Choice, changes: Overrides, seed: int) -> RunDirectory:
    """The results of one run."""
    directory = run(SCENARIO, changes, seed, choice.out, choice.data_dir)
    # The largest parts of it: `coterie report` makes the one, and no run of these goes on.
    for name in (REPORT, CHECKPOINT):
        (directory.path / name).unlink(missing_ok=True)
    return directory


def plan(choice: Choice, record: Record) -> dict[Place, Overrides]:
    """What each run that the record lacks is made of; with each the calm one that it is held against."""
    missing: dict[Place, Overrides] = {}
    for data in choice.data:
        for family in FAMILIES:
            for name, method in family.methods.items():
                for seed in choice.seeds if name in choice.methods else ():
                    places = {
                        Place(data, family.title, name, weather, seed): overrides(family, method, what, data)
                        for weather, what in weathers(family.seconds).items()
                        if weather == CALM or weather in choice.weathers
                    }
                    if not places.keys() <= record.keys():
                        missing |= places
    return missing


def measure(missing: Mapping[Place, Overrides], choice: Choice, jobs: int) -> None:
    """Make these runs, `jobs` at a time, each in a process of its own; the same run for two places once."""
    every = {(tuple(changes), place.seed): place for place, changes in missing.items()}
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=20) as pool:
        waiting = {
            pool.submit(_run_alone, changes, seed, choice.out, choice.data_dir): place
            for (changes, seed), place in every.items()
        }
        for number, done in enumerate(as_completed(waiting), 1):
            seconds, label = done.result(), ", ".join(map(str, waiting[done]))
            print(f"{number}/{len(waiting)} {label}: {seconds:.0f} s", flush=True)


def _run_alone(changes: Overrides, seed: int, out: Path, data_dir: Path | None) -> float:
    """Make one run, in a process of a pool; its seconds of CPU time."""
    before = time.process_time()
    run(SCENARIO, changes, seed, out, data_dir)
    return time.process_time() - before


def outcomes(missing: Mapping[Place, Overrides], choice: Choice) -> Iterator[tuple[Place, Entry]]:
    """What each of these runs came to; those that are not there yet are made one after the other."""
    struck = {weather: what.struck for weather, what in weathers(1.0).items()}
    for place, changes in missing.items():
        calm = results_of(choice, missing[place._replace(weather=CALM)], place.seed)
        results = results_of(choice, changes, place.seed)
        found = outcome(RunView(results), RunView(calm), struck[place.weather])
        print(f"{', '.join(map(str, place))}: {100 * found.accuracy:.1f}", flush=True)
        yield place, Entry(found, results.provenance()["commit"])


def cells(family: Family, data: str, choice: Choice, record: Record) -> dict[tuple[str, str], Cell]:
    """(method, weather) -> what its runs came to, of those that the record has with all seeds."""
    found: dict[tuple[str, str], Cell] = {}
    for name in family.methods:
        for weather in weathers(family.seconds):
            places = [Place(data, family.title, name, weather, seed) for seed in choice.seeds]
            if all(place in record for place in places):
                found[name, weather] = Cell(tuple(record[place].outcome for place in places))
    return found


def main() -> None:
    """Measure, print the tables, and write them where that was asked for."""
    choice, jobs, write = _choice()
    head, record = (head_of(PAGE), load(RECORD)) if write else ("", {})
    missing = plan(choice, record)
    if jobs > 1:
        measure(missing, choice, jobs)
    for place, entry in outcomes(missing, choice):
        record[place] = entry
        if write:
            save(RECORD, record)  # so that nothing is lost when this ends early
    text, tables = tables_of(choice, record)
    print(text)
    if write and (left := plan(Choice(list(DATA), SEEDS, METHODS, list(weathers(1.0)), choice.out), record)):
        print(f"{PAGE.name} stays as it is: {len(left)} runs are not in {RECORD.name} yet", flush=True)
    elif write:
        PAGE.write_text(f"{head}\n\n{text}", encoding="utf-8")
        PICTURE.write_text(picture(tables), encoding="utf-8")


def tables_of(choice: Choice, record: Record) -> tuple[str, dict[tuple[str, str], Cells]]:
    """The tables as Markdown, and as cells by (data, family)."""
    tables: dict[tuple[str, str], Cells] = {
        (data, family.title): cells(family, data, choice, record)
        for data in choice.data
        for family in FAMILIES
    }
    controls = {name: method.control for family in FAMILIES for name, method in family.methods.items()}
    seeds = ", ".join(map(str, choice.seeds))
    return f"Measured with the seeds {seeds}.\n\n{page(tables, controls)}\n", tables


def _choice() -> tuple[Choice, int, bool]:
    """What the command line asks for: what is measured, how many runs at a time, whether it is written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="digits and one seed only")
    parser.add_argument("--data", choices=list(DATA), nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=METHODS)
    parser.add_argument("--weathers", choices=list(weathers(1.0)), nargs="+", default=list(weathers(1.0)))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, a process each")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/weather"))
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"measure what {RECORD.name} lacks, and add it; once it is whole, write {PAGE.name}",
    )
    chosen = vars(parser.parse_args())
    if chosen.pop("quick"):
        chosen |= {"data": ["digits"], "seeds": [SEEDS[0]]}
    write, jobs = chosen.pop("write"), chosen.pop("jobs")
    return Choice(**chosen), jobs, write


MARK = "<!-- measured: what follows is written by `python -m benchmarks.weather --write` -->"


def head_of(file: Path) -> str:
    """What people wrote on the page, with the line that ends it; UserError where there is none."""
    head, mark, _ = file.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise UserError(f"{file} has no line {MARK!r}, below which the tables would go")
    return head + mark


if __name__ == "__main__":
    main()

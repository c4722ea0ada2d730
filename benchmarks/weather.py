"""Every method in bad weather: what is left of its accuracy when messages, speed or clients are lost.

Run `python -m benchmarks.weather --data-dir DIR [--quick] [--write]`; more than an hour on one core.
The results of each run are kept under --out, and no run is repeated until its scenario or its method's source
changes, so that a table can be measured in parts: --data, --methods, --weathers, --seeds. `--write` puts the
tables below the reading in docs/weather.md, and the picture beside it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fidelity import Overrides, run
from benchmarks.weather_picture import picture
from benchmarks.weather_table import Cell, Outcome, outcome, page
from sim.errors import UserError
from sim.results.place import REPORT
from sim.results.view import RunView

SCENARIO = Path(__file__).with_name("weather.toml")
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "weather.md", DOCS / "weather.svg"
SEEDS = (11, 12, 13)
"""Nothing was tuned on these."""
DATA: dict[str, Overrides] = {
    "digits": [],
    "fashion-mnist": ["data.name=fashion-mnist", "data.partition.samples_per_client=100"],
}


@dataclass(frozen=True)
class Method:
    """What differs from the scenario.

    control: the method without collaboration that it is held against; None for one that is such itself.
    """

    overrides: Overrides
    has_server: bool = False
    control: str | None = "local"


@dataclass(frozen=True)
class Family:
    """Methods with the same model and labels, in runs of the same virtual time.

    clusters: sizes of the clusters, which contradict each other.
    """

    title: str
    seconds: float
    clusters: Sequence[int]
    overrides: Overrides
    methods: dict[str, Method]


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


# --- methods ------------------------------------------------------------------------------------------------


def _both(name: str, *overrides: str, control: str = "local") -> dict[str, Method]:
    """A method's two forms."""
    return {
        f"{name}, {mode}": Method(_form(name, mode, *overrides), control=control)
        for mode in ("synchronous", "asynchronous")
    }


def _alone(name: str, *overrides: str) -> dict[str, Method]:
    """Each client by itself, as it trains in this method."""
    form = _form(name, "asynchronous", "protocol.alone=true", *overrides)
    return {f"{name}, alone": Method(form, control=None)}


def _form(name: str, mode: str, *overrides: str) -> Overrides:
    return [f"protocol.name={name}", f"protocol.mode={mode}", *overrides]


def _server(name: str, *overrides: str) -> dict[str, Method]:
    return {name: Method([f"protocol.name={name}", _STEPS, *overrides], has_server=True)}


_STEPS = "protocol.local_steps=10"  # between two exchanges of whoever makes them in rounds
_COBO = [
    "protocol.rho=0.2",
    "protocol.gamma=0.1",
    "protocol.sampling=mixed",
    "protocol.constant_iterations=200",
]
_MAPL = [
    "protocol.temperature=0.2",
    "protocol.warm_up=10",
    "protocol.similarity=per-class",
    "protocol.confidence=none",
    "protocol.degree_gradient=false",
    "protocol.beta=1.2",
    "protocol.graph_learning_rate=1.0",
]
_GOSSIP = ["protocol.name=gossip", _STEPS, 'protocol.period="1.5 s"']
_MOMENTUM = ["training.momentum=0.9", "training.learning_rate=0.01"]
FAMILIES = (
    Family(
        "Personal models",
        100.0,
        (5, 5),
        [],
        {
            "local": Method(["protocol.name=local"], control=None),
            **_server("oracle"),
            **_both("cobo", *_COBO),
        },
    ),
    Family(
        "One model for all",
        100.0,
        (10,),
        [],
        {
            "local": Method(["protocol.name=local"], control=None),
            **_both("dpsgd", _STEPS),
            **_alone("dfedavgm", _STEPS, *_MOMENTUM),
            **_both("dfedavgm", _STEPS, *_MOMENTUM, control="dfedavgm, alone"),
            "gossip, average": Method(_GOSSIP),
            "gossip, by age": Method([*_GOSSIP, "protocol.merge=age"]),
            **_server("fedavg"),
        },
    ),
    Family(
        "Decoupled models",
        40.0,
        (5, 5),
        [
            'model={name="decoupled",backbones=["deep-mlp"],features=64,projection_hidden=64}',
            "training.optimizer=adam",
            "training.learning_rate=0.002",
        ],
        {
            "local": Method(["protocol.name=local", _STEPS], control=None),
            **_alone("mapl", *_MAPL),
            **_both("mapl", *_MAPL, control="mapl, alone"),
            **_both("mapl-plus", *_MAPL, control="mapl, alone"),
            **_server("fedsim"),
            **_server("fedproto"),
            **_server("fedclassavg", "protocol.temperature=0.2"),
            **_server("pfedsim", "protocol.warm_up=10"),
        },
    ),
)

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

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out but seeds."""
        return (
            tuple(self.data) == tuple(DATA)
            and set(self.methods) >= {name for family in FAMILIES for name in family.methods}
            and set(self.weathers) >= set(weathers(1.0))
        )


def view_of(choice: Choice, changes: Overrides, seed: int) -> RunView:
    """The results of one run."""
    directory = run(SCENARIO, changes, seed, choice.out, choice.data_dir)
    (directory.path / REPORT).unlink(missing_ok=True)  # the largest part of it; `coterie report` makes it
    return RunView(directory)


def cells(family: Family, data: str, choice: Choice) -> dict[tuple[str, str], Cell]:
    """(method, weather) -> what its runs came to. The calm weather is measured with any other."""
    found: dict[tuple[str, str], Cell] = {}
    for name, method in family.methods.items():
        if name not in choice.methods:
            continue
        outcomes: dict[str, list[Outcome]] = {}
        for seed in choice.seeds:
            calm: RunView | None = None
            for weather, what in weathers(family.seconds).items():
                if weather != "calm" and weather not in choice.weathers:
                    continue
                view = view_of(choice, overrides(family, method, what, data), seed)
                calm = calm or view
                outcomes.setdefault(weather, []).append(outcome(view, calm, what.struck))
        found |= {(name, weather): Cell(tuple(those)) for weather, those in outcomes.items()}
        print(f"{data}: {name}: " + ", ".join(f"{w} {found[name, w].figure}" for w in outcomes), flush=True)
    return found


def main() -> None:
    """Measure, print the tables, and write them where that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(name for family in FAMILIES for name in family.methods))
    parser.add_argument("--quick", action="store_true", help="digits and one seed only")
    parser.add_argument("--data", choices=list(DATA), nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--methods", choices=names, nargs="+", default=names)
    parser.add_argument("--weathers", choices=list(weathers(1.0)), nargs="+", default=list(weathers(1.0)))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/weather"))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and {PICTURE.name}")
    chosen = vars(parser.parse_args())
    if chosen.pop("quick"):
        chosen |= {"data": ["digits"], "seeds": [SEEDS[0]]}
    write = chosen.pop("write")
    choice = Choice(**chosen)
    if write and not choice.is_all:
        parser.error("--write needs all data, methods and weathers")
    head = head_of(PAGE) if write else ""
    tables = {
        (data, family.title): cells(family, data, choice) for data in choice.data for family in FAMILIES
    }
    controls = {name: method.control for family in FAMILIES for name, method in family.methods.items()}
    seeds = ", ".join(map(str, choice.seeds))
    text = f"Measured with the seeds {seeds}.\n\n{page(tables, controls)}\n"
    print(text)
    if write:
        PAGE.write_text(f"{head}\n\n{text}", encoding="utf-8")
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

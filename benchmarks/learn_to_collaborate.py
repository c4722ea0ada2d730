"""The fidelity tables of Learning to Collaborate: Adult, two classes for each client, and bad weather.

Run `python -m benchmarks.learn_to_collaborate TABLE --data-dir DIR [--jobs N] [--device cuda]`, with TABLE
one of adult, fashion, cifar (which wants a GPU) and weather. A method with several variants runs each of them
on the tuning seeds first, and goes on with the best: by the clients' validation losses where it tells them,
as in the paper, and otherwise by test accuracy there, which favours it. Each run is a process of one thread;
its figures are written to --out as soon as it ends, and a run that has its figures there is not repeated.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.fidelity import Overrides, run
from benchmarks.measuring import table
from benchmarks.weather import SCENARIO as WEATHER
from benchmarks.weather import weathers
from sim.results.store import RunDirectory
from sim.scenario.scenario import digest, load_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
L2C = "learn-to-collaborate"
WEATHERS = ("calm", "5 % lost", "30 % lost", "one slow", "churn")


@dataclass(frozen=True)
class Method:
    """What differs from the table's scenario; of several `variants` the best on the tuning seeds counts.

    client: for whom; None for all of them. tuning: other seeds to choose on than the table's.
    """

    overrides: Overrides = ()
    variants: Sequence[Overrides] = ((),)
    client: str | None = None
    tuning: Sequence[int] = ()


@dataclass(frozen=True)
class Table:
    """Methods on the same data.

    tuning, seeds: which variants are chosen on, and which nothing was chosen on. by_client: a column for each
    client.
    """

    scenario: Path
    overrides: Overrides
    methods: Mapping[str, Method]
    tuning: Sequence[int] = (1, 2)
    seeds: Sequence[int] = (31, 32, 33)
    weathers: Mapping[str, Overrides] = field(default_factory=lambda: {"calm": ()})
    by_client: bool = False


@dataclass(frozen=True)
class Cell:
    """One run."""

    scenario: Path
    overrides: Overrides
    seed: int

    @property
    def key(self) -> str:
        """The same for the same run."""
        scenario = load_scenario(self.scenario, self.overrides, self.seed)
        return f"{scenario.name}-{scenario.protocol.name}-{self.seed}-{digest(scenario)}"


# --- tables -------------------------------------------------------------------------------------------------


def _baseline(name: str, *overrides: str, **variants: Sequence[Any]) -> Method:
    """A baseline; variants: the values of one key to choose from."""
    [(key, values)] = variants.items() or [("", ())]
    of_key = [[f"{key.replace('__', '.')}={value}"] for value in values]
    return Method([f"protocol.name={name}", *overrides], of_key or ((),))


def adult() -> Table:
    """Table 2 of the paper: local training to its end (24,000 steps), and for fewer.

    In the paper each client has a front of its own, and settings that suit its validation samples. Of these
    the second client has 70, so that settings are chosen on six splits. Its runs end soon after there are
    coalitions.
    """
    clipped = ["protocol.projection=clip", "protocol.search_learning_rate=0.1", "protocol.floor=0.13"]
    spo = [[f"protocol.rounds={rounds}", *clipped] for rounds in (100, 200, 400, 800)]
    step, short = "protocol.local_steps=1", ("run.duration=70 s", "run.evaluate_every=70 s")
    fronts = {
        f"SPO for client {client}": Method(short, spo, f"client-{client}", tuning=range(1, 7))
        for client in range(2)
    }
    return Table(
        SCENARIOS / "l2c_adult.toml",
        ["run.duration=170 s", "run.evaluate_every=170 s"],
        {
            **fronts,
            "local": Method(["protocol.name=local", "run.duration=240 s"]),
            "local, 2,000 steps": Method(["protocol.name=local", "run.budget.steps=2000"]),
            "AFL": _baseline("afl", step, protocol__ascent_rate=(0.01, 0.1)),
            "q-FFL": _baseline("q-ffl", step, protocol__q=(0.1, 1.0)),
        },
        seeds=(11, 12, 13, 14, 15),
        by_client=True,
    )


def _images(scenario: Path, steps: int, rates: Sequence[float]) -> Table:
    """SPO, and what to beat, each with as many steps as SPO has rounds; most of these are for one client."""
    spo = f"protocol.rounds={steps}"
    budget, rate = f"run.budget.steps={steps}", "training.learning_rate=0.05"
    return Table(
        scenario,
        ["run.evaluate_every=10 min"],
        {
            "SPO": _baseline(L2C, spo, protocol__hypernetwork_learning_rate=rates),
            "local": _baseline("local", budget, rate),
            "FedAvg": _baseline("fedavg", budget, rate, "protocol.local_steps=10"),
        },
        tuning=(1,),
    )


def fashion() -> Table:
    """The short form of the paper's table 3."""
    return _images(SCENARIOS / "l2c_fashion_mnist.toml", 300, (0.1,))


def cifar() -> Table:
    """Table 3 of the paper."""
    return _images(SCENARIOS / "l2c_cifar10.toml", 2000, (0.01,))


def bad_weather() -> Table:
    """Digits whose two clusters call them by different names, as in `benchmarks.weather`, for 10 minutes."""
    seconds = 600.0
    world = [
        f"run.duration={seconds} s",
        f"run.evaluate_every={seconds} s",
        "data.validation_share=0.2",
        'model={name="decoupled",backbones=["small-mlp"],features=16}',
    ]
    steps = "protocol.local_steps=10"
    l2c = [
        f"protocol.name={L2C}",
        "protocol.rounds=300",
        "protocol.hidden=[8]",  # a pass through the usual 100 costs the broker several training steps
        "protocol.time_limit=300 ms",
        "protocol.local_steps=2",
        "protocol.newcomer_rounds=50",
        "protocol.search_steps=20",
        "protocol.hypernetwork_learning_rate=0.05",
        "protocol.rule=threshold",
        "protocol.least=0.8",
        "protocol.patience=10 s",
        "protocol.search_limit=60 s",
    ]
    names = ("fedper", "lg-fedavg", "q-ffl", "afl", "per-fedavg", "pfedme", "pfedhn")
    return Table(
        WEATHER,
        world,
        {
            "local": Method(["protocol.name=local"]),
            "L2C": Method(l2c),
            **{name: Method([f"protocol.name={name}", steps]) for name in names},
        },
        tuning=(1,),
        seeds=(11, 12),
        weathers={
            name: _weather(name, seconds) for name in ("calm", "5 % lost", "30 % lost", "one slow", "churn")
        },
    )


def _weather(name: str, seconds: float) -> Overrides:
    what = weathers(seconds)[name]
    sizes = [5, 5 + what.newcomers]
    world = [f"clients.count={sum(sizes)}", f"data.partition.sizes={sizes}", f"network.loss={what.loss}"]
    return [*world, *what.overrides]


TABLES = {"adult": adult, "fashion": fashion, "cifar": cifar, "weather": bad_weather}


# --- runs ---------------------------------------------------------------------------------------------------


def figures(directory: RunDirectory) -> dict[str, Any]:
    """What is kept of a run: accuracies and losses of each client that is up, by time, and its coalitions."""
    summary, measured = directory.summary(), directory.scan("metrics").collect()
    curves: dict[str, dict[str, dict[str, float]]] = {}
    for row in measured.sort("time").to_dicts():
        if row["name"].startswith(("accuracy", "loss")) and row["actor"].startswith("client-"):
            at = curves.setdefault(row["name"], {}).setdefault(f"{row['time']:g}", {})
            at[row["actor"]] = row["value"]
    work = {key: summary["work"][key]["mean"] for key in ("steps", "gradients", "samples")}
    return {"curves": curves, "coalitions": summary.get("coalitions"), "work": work}


def measured(cell: Cell, out: Path, data_dir: Path | None, device: str) -> dict[str, Any]:
    """One run's figures. Runs in a process of its own."""
    started = time.process_time()
    found = figures(run(cell.scenario, cell.overrides, cell.seed, out / "runs", data_dir, device))
    return found | {
        "seed": cell.seed,
        "overrides": [*cell.overrides],
        "cpu_s": time.process_time() - started,
    }


class Runs:
    """Runs cells, as many at once as there are jobs, and remembers their figures in a folder."""

    def __init__(self, out: Path, data_dir: Path | None, device: str, jobs: int) -> None:
        self.out, self.data_dir, self.device, self.jobs = out, data_dir, device, jobs
        (out / "cells").mkdir(parents=True, exist_ok=True)

    def of(self, cells: Iterable[Cell]) -> list[dict[str, Any]]:
        """The figures of these cells, in their order."""
        wanted = [(self.out / "cells" / f"{cell.key}.json", cell) for cell in cells]
        missing = {path: cell for path, cell in wanted if not path.is_file()}
        one = partial(measured, out=self.out, data_dir=self.data_dir, device=self.device)
        # A forked process would share torch's threads, and CUDA cannot be used in one.
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(one, cell): path for path, cell in missing.items()}
            for future in as_completed(running):
                path, found = running[future], future.result()
                path.with_suffix(".part").write_text(json.dumps(found), encoding="utf-8")
                path.with_suffix(".part").replace(path)
                print(f"{path.stem}: {found['cpu_s']:.0f} s of a core", flush=True)
        return [json.loads(path.read_text(encoding="utf-8")) for path, _ in wanted]


# --- figures ------------------------------------------------------------------------------------------------


def final(found: Mapping[str, Any], name: str) -> dict[str, float]:
    """Each client's value at the end, of those that have one."""
    curve = found["curves"].get(name, {})
    return curve[max(curve, key=float)] if curve else {}


def score(found: Mapping[str, Any], client: str | None = None) -> float:
    """The more the better: minus the mean validation loss with all, or else the mean test accuracy.

    client: its alone.
    """
    losses = (found["coalitions"] or {}).get("losses", {})
    full = {name: each["full"] for name, each in losses.items() if each.get("full") is not None}
    accuracy = final(found, "accuracy")
    if client is not None:
        return -full[client] if full else accuracy[client]
    return -statistics.mean(full.values()) if full else statistics.mean(accuracy.values())


def chosen(what: Table, runs: Runs) -> dict[str, Overrides]:
    """Each method's overrides, with the variant that is best on the tuning seeds."""
    cells = {
        (name, number, seed): Cell(what.scenario, [*what.overrides, *method.overrides, *variant], seed)
        for name, method in what.methods.items()
        for number, variant in enumerate(method.variants)
        for seed in method.tuning or what.tuning
        if len(method.variants) > 1
    }
    scores: dict[tuple[str, int], list[float]] = {}
    for (name, number, _), found in zip(cells, runs.of(cells.values()), strict=True):
        scores.setdefault((name, number), []).append(score(found, what.methods[name].client))
    best: dict[str, Overrides] = {}
    for name, method in what.methods.items():
        numbers = range(len(method.variants))
        means = {number: statistics.mean(scores.get((name, number), [0.0])) for number in numbers}
        variant = method.variants[max(numbers, key=means.__getitem__)]
        best[name] = [*method.overrides, *variant]
        if len(method.variants) > 1:
            tried = ", ".join(f"{' '.join(method.variants[n])}: {mean:.4f}" for n, mean in means.items())
            print(f"{name}: {tried}; takes {' '.join(variant)}", flush=True)
    return best


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds, in per cent."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * deviation:.1f}"


def lines(name: str, found: Sequence[Mapping[str, Any]], by_client: bool) -> list[list[str]]:
    """A line for each model of a method, with a column for each client, or with the mean of all."""
    made = []
    for metric in ("accuracy", "accuracy_of_full"):
        values = [final(each, metric) for each in found]
        if not all(values):
            continue
        label = name if metric == "accuracy" and not any(each["coalitions"] for each in found) else ""
        label = label or f"{name}, {'on the front of all' if metric.endswith('full') else 'in equilibrium'}"
        if by_client:
            clients = sorted(set.intersection(*[set(each) for each in values]))
            made.append([label, *[spread([each[client] for each in values]) for client in clients]])
        else:
            means = [statistics.mean(each.values()) for each in values]
            made.append([label, spread(means), " / ".join(f"{100 * mean:.1f}" for mean in means)])
    return made


def report(what: Table, runs: Runs) -> None:
    """Run everything, and print the table."""
    best = chosen(what, runs)
    cells = {
        (name, weather, seed): Cell(what.scenario, [*what.overrides, *overrides, *happens], seed)
        for weather, happens in what.weathers.items()
        for name, overrides in best.items()
        for seed in what.seeds
    }
    found = dict(zip(cells, runs.of(cells.values()), strict=True))
    for weather in what.weathers:
        rows, clients = [], 0
        for name in best:
            of_method = [found[name, weather, seed] for seed in what.seeds]
            rows += lines(name, of_method, what.by_client)
            clients = len(rows[-1]) - 1
            groups = [(each["coalitions"] or {}).get("members") for each in of_method]
            if any(groups):
                print(f"{name}, {weather}: coalitions {groups}")
        heads = [f"client {client}, %" for client in range(clients)]
        heads = heads if what.by_client else ["accuracy, %", "by seed"]
        print(f"\n{weather}\n\n{table(['method', *heads], rows)}\n", flush=True)


def main() -> None:
    """Measure one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--methods", nargs="+", help="these alone")
    parser.add_argument("--seeds", type=int, nargs="+", help="others than those that nothing was chosen on")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="for all methods")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/learn_to_collaborate"))
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are to come
    what = TABLES[chosen.table]()
    methods = {name: what.methods[name] for name in chosen.methods or what.methods}
    common = [*what.overrides, *chosen.overrides]
    what = replace(what, overrides=common, methods=methods, seeds=chosen.seeds or what.seeds)
    report(what, Runs(chosen.out, chosen.data_dir, chosen.device, chosen.jobs))


if __name__ == "__main__":
    main()

"""What `benchmarks.scool` measures: cells, each a run of one method in one world with one seed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity import Overrides, run
from sim.results.metrics import graph_summary
from sim.results.place import REPORT
from sim.results.view import RunView

SBM, NON_IID, FEDERICO = [
    Path(f"scenarios/{name}.toml") for name in ("scool_sbm", "scool_non_iid", "federico")
]
ROUNDS = 20
"""At which iteration the graph of mark "graph" is judged."""


@dataclass(frozen=True)
class World:
    """What happens; struck: the clients that it happens to; dead: those of them that are gone at the end."""

    overrides: Overrides = ()
    struck: Sequence[int] = ()
    dead: Sequence[int] = ()


@dataclass(frozen=True)
class Cell:
    """One run. mark: what it is measured for; gpu: whether it is worth one."""

    mark: str
    setting: str
    method: str
    world: str
    seed: int
    path: Path
    overrides: tuple[str, ...]
    what: World = World()
    gpu: bool = False

    @property
    def key(self) -> str:
        """What makes it another cell."""
        return "|".join([self.setting, self.method, self.world, str(self.seed)])

    @property
    def by_shares(self) -> bool:
        """Whether the method's weights are shares of 1."""
        return self.method.startswith(("SCooL-attention", "FedeRiCo"))


# --- methods ------------------------------------------------------------------------------------------------

BLOCKS = ("protocol.prior=sbm", "protocol.aggregation=shares", "protocol.blocks=10")
ATTENTION = ("protocol.prior=attention", "protocol.aggregation=shares", "protocol.temperature=2.0")
_STEPS = "protocol.local_steps=20"


def _forms(name: str, *overrides: str) -> dict[str, Overrides]:
    return {
        f"{name}, {mode}": [*overrides, f"protocol.mode={mode}"] for mode in ("synchronous", "asynchronous")
    }


ALONE: Overrides = ["protocol.alone=true"]
SCOOL = {**_forms("SCooL-SBM", *BLOCKS), **_forms("SCooL-attention", *ATTENTION)}
CONTROLS: Mapping[str, Overrides] = {
    "alone": ALONE,
    **_forms("D-PSGD", "protocol.name=dpsgd", _STEPS),
    "FedAvg": ["protocol.name=fedavg", _STEPS],
}
FEDERICOS = _forms("FedeRiCo")
OTHERS: Mapping[str, Overrides] = {
    "FedAvg": ["protocol.name=fedavg"],
    "FedAvg+": ["protocol.name=fedavg-plus"],
    "FedEM": ["protocol.name=fedem", "protocol.models=4"],
    "FedFomo": ["protocol.name=fedfomo", "data.validation_share=0.2"],
    "IFCA": ["protocol.name=ifca", "protocol.models=4"],
    "Clustered FL": ["protocol.name=clustered-fl"],
    "Ditto": ["protocol.name=ditto"],
}
"""Beside FedeRiCo; each takes the scenario's budget of steps."""


# --- worlds -------------------------------------------------------------------------------------------------


def _lost(share: float) -> World:
    return World(["network.link=datagram", f"network.loss={share}"])


def _churn(dead: Sequence[int], crash_s: float, come: Sequence[int], join_s: float) -> World:
    events = [("crash", crash_s, dead), ("join", join_s, come)]
    entries = [f'{{at="{at} s",event="{event}",clients={list(who)}}}' for event, at, who in events]
    return World([f"churn=[{','.join(entries)}]", 'protocol.patience="10 s"'], [*dead, *come], dead)


def _slow(seconds: float, slowdown: int) -> World:
    slow = f"devices.override=[{{clients=[3],slowdown={slowdown}}}]"
    return World([f'run.duration="{seconds} s"', slow], [3])


WORLDS: Mapping[str, World] = {
    "calm": World(),
    "5 % lost": _lost(0.05),
    "30 % lost": _lost(0.3),
    "calm, 100 s": _slow(100.0, 1),
    "straggler, 100 s": _slow(100.0, 20),
}
_TIMED = ("calm, 100 s", "straggler, 100 s")
CHURN = {
    "SCooL": _churn([1, 9], 20.0, [6, 13], 25.0),
    "FedeRiCo": _churn([0], 30.0, [7], 30.0),
}

# --- cells, the most important first ------------------------------------------------------------------------

CIFAR = (
    *("data.name=cifar-10", 'model={name="cnn"}', "training.learning_rate=0.01"),
    *('network.uplink="10 Gbit/s"', 'network.downlink="10 Gbit/s"'),  # a model has 9 MB
)
MANY = ("clients.count=100",)
KEPT = (0.02, 0.05, 0.1)


def cells(seeds: Sequence[int], more: Overrides = ()) -> list[Cell]:
    """Everything, in the order in which it is worth measuring; `more` overrides are for all."""
    return [replace(cell, overrides=(*cell.overrides, *more)) for cell in _cells(seeds)]


def _cells(seeds: Sequence[int]) -> Iterator[Cell]:
    yield from _accuracies("Fashion-MNIST", seeds, ())
    yield from _accuracies("CIFAR-10", seeds, CIFAR, gpu=True)
    yield from _weather("SCooL", SBM, SCOOL, seeds)
    yield from _weather("FedeRiCo", FEDERICO, FEDERICOS, seeds)
    yield from _kept(seeds)
    for seed in seeds:
        for name, overrides in {**SCOOL, **CONTROLS}.items():
            yield Cell("accuracy", "non-iid", name, "calm", seed, NON_IID, tuple(overrides))
        for name, overrides in OTHERS.items():
            yield Cell("accuracy", "FedeRiCo", name, "calm", seed, FEDERICO, tuple(overrides))


def _accuracies(setting: str, seeds: Sequence[int], data: Overrides, gpu: bool = False) -> Iterator[Cell]:
    """Marks 2 and 4: all methods with equal budgets."""
    for seed in seeds:
        for name, overrides in {**SCOOL, **CONTROLS}.items():
            yield Cell("accuracy", setting, name, "calm", seed, SBM, (*overrides, *data), gpu=gpu)


def _weather(
    setting: str, path: Path, methods: Mapping[str, Overrides], seeds: Sequence[int]
) -> Iterator[Cell]:
    """Mark 6: what is lost, slow, or comes and goes."""
    worlds = {**WORLDS, "churn": CHURN[setting]}
    for seed in seeds:
        for world, what in worlds.items():
            done = setting == "SCooL" and world == "calm"  # of mark 4
            for name, overrides in {} if done else methods.items():
                changes = (*overrides, *what.overrides)
                yield Cell("weather", setting, name, world, seed, path, changes, what)
        for world in ("calm", *_TIMED):
            what = WORLDS[world]
            yield Cell("weather", setting, "alone", world, seed, path, (*ALONE, *what.overrides), what)


def _kept(seeds: Sequence[int]) -> Iterator[Cell]:
    """Mark 3, figure 7: few neighbours among a hundred; D-PSGD has as many, at random."""
    methods = {name: SCOOL[name] for name in ("SCooL-SBM, synchronous", "SCooL-attention, synchronous")}
    for seed in seeds:
        for share in KEPT:
            world = f"{share:.0%} kept"
            for name, overrides in methods.items():
                changes = (*overrides, *MANY, f"protocol.keep={share}")
                yield Cell("kept", "100 clients", name, world, seed, SBM, changes)
            degree = round(100 * share)
            graph = f'clients.topology={{kind="k-regular",degree={degree}}}'
            changes = (*CONTROLS["D-PSGD, synchronous"], *MANY, graph)
            yield Cell("kept", "100 clients", "D-PSGD, synchronous", world, seed, SBM, changes)
        yield Cell("kept", "100 clients", "alone", "calm", seed, SBM, (*ALONE, *MANY))


# --- measuring ----------------------------------------------------------------------------------------------


def row_distance(weights: Mapping[tuple[int, int], float], clusters: Sequence[int]) -> float:
    """Mean over clients of sum_j |w_ij - w*_ij| (0 to 2): each row of either shared out among its peers."""
    of = np.asarray(clusters)
    truth = (of[:, None] == of) & ~np.eye(len(of), dtype=bool)
    found = np.zeros((len(of), len(of)))
    for pair, weight in weights.items():
        found[pair] = weight
    rows = [matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-12) for matrix in (found, truth)]
    return float(np.abs(rows[0] - rows[1]).sum(axis=1).mean())


def graph_at(
    view: RunView, time_s: float, members: Sequence[int], by_shares: bool
) -> dict[str, float | None]:
    """What the last graph until then is like, among those clients; nothing where none is learned.

    by_shares: what makes an edge is a weight beside the largest of its row, as in a run's own summary.
    """
    times = view.snapshot_times(1_000_000)
    times = times[times <= time_s]
    if view.clusters is None or not times.size:
        return {}
    source, target, weight = [column.tolist() for column in view.snapshot(times[-1])]
    weights = dict(zip(zip(source, target, strict=True), weight, strict=True))
    largest: dict[int, float] = {}
    for (i, _), found_weight in weights.items() if by_shares else ():
        largest[i] = max(largest.get(i, 0.0), found_weight)
    scaled = {(i, j): w / (largest.get(i) or 1.0) for (i, j), w in weights.items()}
    threshold = view.get("graph", "edge_threshold")
    clusters = view.clusters.tolist()
    found = graph_summary(scaled, clusters, members, threshold=threshold)
    inside = {pair: w for pair, w in weights.items() if {*pair} <= {*members}}
    place = {client: index for index, client in enumerate(members)}
    moved = {(place[i], place[j]): w for (i, j), w in inside.items()}
    kept = {key: found[key] for key in ("edge_precision", "edge_recall", "l1")}
    return kept | {"l1_of_rows": row_distance(moved, [clusters[client] for client in members])}


def weight_of(view: RunView, clients: Sequence[int]) -> float:
    """All weight that is given to these at the end."""
    times = view.snapshot_times(1_000_000)
    if not times.size:
        return 0.0
    _, target, weight = [column.tolist() for column in view.snapshot(times[-1])]
    return float(sum([w for to, w in zip(target, weight, strict=True) if to in clients]))


def time_of_round(view: RunView, number: int) -> float:
    """When clients had done so many iterations, on average (s); the end if they never had."""
    panel = view.panel("iterations")
    if panel is None:
        return view.end_s
    means = panel.mean_of(np.ones(len(view.clients), dtype=bool))
    there = np.flatnonzero(means.values >= number)
    return float(means.times[there[0]]) if there.size else view.end_s


def measured(cell: Cell, out: Path, data_dir: Path | None, device: str) -> dict[str, Any]:
    """One row of the table; shares of 1."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    overrides = [*cell.overrides, "engine.threads=1"]
    directory = run(cell.path, overrides, cell.seed, out, data_dir, device if cell.gpu else "cpu")
    (directory.path / REPORT).unlink(missing_ok=True)
    view = RunView(directory)
    struck = cell.what.struck
    end = view.at_the_end
    others = [client for client in range(len(end)) if client not in struck]
    alive = [client for client in struck if client not in cell.what.dead and np.isfinite(end[client])]
    early = graph_at(view, time_of_round(view, ROUNDS), range(len(end)), cell.by_shares)
    last = graph_at(view, view.end_s, [*others, *sorted(alive)], cell.by_shares)
    return {
        **{name: getattr(cell, name) for name in ("mark", "setting", "method", "world", "seed")},
        "accuracy": float(np.nanmean(end[others])),
        "worst": float(np.nanmin(end[others])),
        "struck": float(np.mean(end[alive])) if alive else None,
        **last,
        "edge_precision_of_others": graph_at(view, view.end_s, others, cell.by_shares).get("edge_precision"),
        **{f"{name}_at_{ROUNDS}": value for name, value in early.items()},
        "weight_of_the_dead": weight_of(view, cell.what.dead),
        "virtual_s": view.end_s,
        "messages": view.summary["messages"]["sent"],
        "wall_s": round(time.perf_counter() - began_s, 1),
        "cpu_s": round(time.process_time() - cpu_s, 1),
        "scenario": str(cell.path),
        "overrides": list(cell.overrides),
    }

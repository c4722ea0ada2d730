"""The fidelity tables of SCooL: all methods on the same clients with equal budgets, several seeds.

Run with `python -m benchmarks.scool --data-dir DIR [--setting non-iid] [--cifar] [--seeds 1 2 3]`. The result
directory of each run is kept under --out; a run that has one is not repeated.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.fidelity import Overrides, run
from sim.results.store import RunDirectory

SCENARIOS = {"sbm": Path("scenarios/scool_sbm.toml"), "non-iid": Path("scenarios/scool_non_iid.toml")}
CIFAR = ["data.name=cifar-10", 'model={name="cnn"}']
ATTENTION = ["protocol.prior=attention", "protocol.aggregation=shares", "protocol.temperature=2.0"]
BLOCKS = [
    "protocol.prior=sbm",
    "protocol.aggregation=shares",
    "protocol.temperature=1.0",
    "protocol.blocks=5",
]


def methods() -> dict[str, Overrides]:
    """Name -> what differs from the scenario; each client takes as many steps, and no more."""
    steps = "protocol.local_steps=20"
    found: dict[str, Overrides] = {
        "local": ["protocol.name=local"],
        "D-PSGD, a step a round": ["protocol.name=dpsgd", "protocol.mode=synchronous"],
        "D-PSGD": ["protocol.name=dpsgd", "protocol.mode=synchronous", steps],
        "FedAvg": ["protocol.name=fedavg", steps],
    }
    for prior, overrides in {"SBM": BLOCKS, "attention": ATTENTION}.items():
        for mode in ("synchronous", "asynchronous"):
            found[f"SCooL-{prior}, {mode}"] = [*overrides, f"protocol.mode={mode}"]
    return found


def row_distance(weights: Mapping[tuple[int, int], float], clusters: Sequence[int]) -> float:
    """Mean over clients of sum_j |w_ij - w*_ij| (0 to 2): each row of either shared out among its peers."""
    of = np.asarray(clusters)
    truth = (of[:, None] == of) & ~np.eye(len(of), dtype=bool)
    found = np.zeros((len(of), len(of)))
    for pair, weight in weights.items():
        found[pair] = weight
    rows = [matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-12) for matrix in (found, truth)]
    return float(np.abs(rows[0] - rows[1]).sum(axis=1).mean())


def graph_at_the_end(directory: RunDirectory) -> dict[tuple[int, int], float]:
    """(i, j) -> w_ij as evaluated last."""
    table = directory.scan("graph").collect()
    if table.is_empty():
        return {}
    last = table.filter(table["time"] == table["time"].max())
    return {(row["source"], row["target"]): row["weight"] for row in last.to_dicts()}


def line(name: str, found: Sequence[RunDirectory], groups: Sequence[int] | None) -> str:
    """One line of the table."""
    summaries = [each.summary() for each in found]
    accuracies = [100 * summary["accuracy"]["mean"] for summary in summaries]
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    cells = [name, f"{statistics.mean(accuracies):.1f} ± {spread:.1f}"]
    cells.append(" / ".join(f"{accuracy:.1f}" for accuracy in accuracies))
    for key in ("edge_precision", "edge_recall", "l1") if groups is not None else ():
        values = [(summary["graph"] or {}).get(key) for summary in summaries]
        cells.append("-" if None in values else " / ".join(f"{value:.2f}" for value in values))
    if groups is not None:
        graphs = [graph_at_the_end(each) for each in found]
        distances = [row_distance(graph, groups) for graph in graphs]
        cells.append(" / ".join(f"{d:.2f}" for d in distances) if all(graphs) else "-")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setting", choices=list(SCENARIOS), default="sbm")
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 and its two-layer network")
    parser.add_argument("--methods", nargs="+", choices=list(methods()), default=list(methods()))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="for all methods")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/scool"))
    chosen = parser.parse_args()
    groups = [client // 4 for client in range(20)] if chosen.setting == "sbm" else None
    heads = ["method", "accuracy, %", "by seed"]
    heads += ["edge precision", "edge recall", "l1", "l1 of rows"] if groups is not None else []
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    common = [*(CIFAR if chosen.cifar else []), *chosen.overrides]
    for name in chosen.methods:
        found = [
            run(SCENARIOS[chosen.setting], [*methods()[name], *common], seed, chosen.out, chosen.data_dir)
            for seed in chosen.seeds
        ]
        print(line(name, found, groups), flush=True)


if __name__ == "__main__":
    main()

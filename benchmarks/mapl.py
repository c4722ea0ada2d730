"""The fidelity tables of MAPL: every method on the same clients, several seeds, as Markdown.

Run with `python -m benchmarks.mapl --data-dir DIR [--table few] [--scenarios 1 2] [--methods ...] [--seeds
...]`; a run takes minutes. All methods see as many images; "alone" is MAPL's own training without any
neighbour. The result directory of each run is kept under --out; a run that has one is not repeated.
`--set KEY=VALUE` changes the scenario of all runs.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.fidelity import Overrides, measure

ALONE = "protocol.alone=true"
LOCAL = ["protocol.name=local", "protocol.local_epochs=1"]
DIFFERENT = ['model.backbones=["small-mlp", "deep-mlp"]', "model.initialisation=independent"]
METHODS: dict[str, Overrides] = {
    "local": LOCAL,
    "fedsim": ["protocol.name=fedsim"],
    "fedproto": ["protocol.name=fedproto"],
    "fedclassavg": ["protocol.name=fedclassavg", "protocol.temperature=0.2"],
    "alone": [ALONE],
    "mapl": ["protocol.mode=asynchronous"],
    "mapl-synchronous": ["protocol.mode=synchronous"],
    "mapl-without-prototypes": ["protocol.prototype=false"],
    "mapl-without-graph-learning": ["protocol.graph_learning=false"],
}
FEW: dict[str, Overrides] = {
    "local": LOCAL,
    "alone": [ALONE],
    "mapl": ["protocol.name=mapl"],
    "mapl-plus": [],
    "mapl-plus-shared-heads": ["model.initialisation=shared"],
    "different-alone": ["protocol.name=mapl", ALONE, *DIFFERENT],
    "different-mapl": ["protocol.name=mapl", *DIFFERENT],
}
"""Name -> what differs from the scenario."""
TABLES: Mapping[str, tuple[Path, Mapping[str, Overrides]]] = {
    "mapl": (Path("scenarios/mapl.toml"), METHODS),
    "few": (Path("scenarios/mapl_few.toml"), FEW),
}


def row(scenario: int, name: str, summaries: Sequence[dict[str, Any]]) -> str:
    """One line of the table."""
    accuracies = [summary["accuracy"]["mean"] for summary in summaries]
    spread = stdev(accuracies) if len(accuracies) > 1 else 0.0
    cells = [str(scenario), name, f"{100 * mean(accuracies):.1f} ± {100 * spread:.1f}"]
    cells.append(" / ".join(f"{100 * accuracy:.1f}" for accuracy in accuracies))
    for key in ("edge_precision", "edge_recall"):
        values = [summary["graph"][key] for summary in summaries]
        cells.append("-" if None in values else " / ".join(f"{value:.2f}" for value in values))
    cells.append(f"{mean([summary['messages']['sent'] for summary in summaries]):,.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", choices=list(TABLES), default="mapl")
    parser.add_argument("--scenarios", type=int, nargs="+")
    parser.add_argument("--methods", choices=sorted({*METHODS, *FEW}), nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/mapl"))
    chosen = parser.parse_args()
    path, methods = TABLES[chosen.table]
    if unknown := sorted(set(chosen.methods or ()) - set(methods)):
        parser.error(f"--methods {' '.join(unknown)}: --table {chosen.table} has {', '.join(methods)}")
    print("| scenario | method | accuracy, % | by seed | edge precision | edge recall | messages |")
    print("| ---: | --- | --- | --- | --- | --- | ---: |", flush=True)
    for scenario in chosen.scenarios or ([1, 2] if chosen.table == "mapl" else [1]):
        for name in chosen.methods or methods:
            overrides = [f"data.partition.scenario={scenario}", *chosen.overrides, *methods[name]]
            found = [measure(path, overrides, seed, chosen.out, chosen.data_dir) for seed in chosen.seeds]
            print(row(scenario, name, found), flush=True)


if __name__ == "__main__":
    main()

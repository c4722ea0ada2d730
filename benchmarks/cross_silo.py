"""The fidelity table of CoBo across silos: every method on the same clients, several seeds, as Markdown.

Run with `python -m benchmarks.cross_silo --data-dir DIR [--model cnn] [--seeds 1 2 3]`; minutes for the MLP,
hours for the CNN. The result directory of each run is kept under --out; a run that has one is not repeated.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fidelity import Overrides, measure
from sim.scenario.scenario import load_scenario

SCENARIO = Path("scenarios/cobo_cross_silo.toml")
LOCAL_STEPS = (
    10  # between two rounds of the averaging baselines, which then do as many steps in all as the others
)
MODELS = {"mlp": [], "cnn": ['model={name="cnn"}']}


def methods(iterations: int) -> dict[str, Overrides]:
    """Name -> what differs from the scenario; each client takes `iterations` local steps, and no more."""
    budget = f"run.budget={{steps={iterations}}}"
    rounds = [
        budget,
        f"protocol.local_steps={LOCAL_STEPS}",
        f"run.iterations={iterations // LOCAL_STEPS}",
        f'run.evaluate_every="{iterations // LOCAL_STEPS} iterations"',
    ]
    return {
        "local": ["protocol.name=local", budget],
        "FedAvg": ["protocol.name=fedavg", *rounds],
        "CoBo, synchronous": ["protocol.mode=synchronous", budget],
        "CoBo, asynchronous": ["protocol.mode=asynchronous", budget],
        "oracle": ["protocol.name=oracle", *rounds],
    }


def row(name: str, summaries: Sequence[dict[str, Any]]) -> str:
    """One line of the table."""
    accuracies = [summary["accuracy"]["mean"] for summary in summaries]
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    cells = [name, f"{100 * statistics.mean(accuracies):.1f} ± {100 * spread:.1f}"]
    for key in ("edge_precision", "edge_recall"):
        values = [summary["graph"][key] for summary in summaries]
        cells.append("-" if None in values else " / ".join(f"{value:.2f}" for value in values))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(MODELS), default="mlp")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/cross-silo"))
    chosen = parser.parse_args()
    model = MODELS[chosen.model]
    iterations = load_scenario(SCENARIO, model).run.iterations
    assert iterations is not None
    print("| method | accuracy, % | edge precision | edge recall |\n| --- | --- | --- | --- |", flush=True)
    for name, overrides in methods(iterations).items():
        found = [
            measure(SCENARIO, [*model, *overrides], seed, chosen.out, chosen.data_dir)
            for seed in chosen.seeds
        ]
        print(row(name, found), flush=True)


if __name__ == "__main__":
    main()

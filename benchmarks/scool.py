"""The fidelity tables of SCooL and FedeRiCo: accuracies, graphs, few neighbours, bad weather, with controls.

Run `python -m benchmarks.scool --data-dir DIR --jobs 16 [--device cuda] [--marks accuracy weather kept]`.
Three seeds are about three hours of one core; the CIFAR-10 cells are 80 minutes of them, or minutes of a GPU.

Every cell is a run in a process of one thread. Those with CIFAR-10 run on --device, --gpu-jobs at a time, and
all others on the CPU. The most important ones come first, and each adds its row to OUT/cells.jsonl as soon as
it is known; one that is there is not measured again. `--show` prints the tables of what is there.
"""

import argparse
import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.measuring import table
from benchmarks.scool_cells import ROUNDS, Cell, cells, measured

SEEDS = (41, 42, 43)
"""Nothing was tuned on these."""
MARKS = ("accuracy", "weather", "kept")
COLUMNS = (
    "edge_precision",
    "edge_recall",
    "l1_of_rows",
    f"edge_precision_at_{ROUNDS}",
    f"l1_of_rows_at_{ROUNDS}",
)
Row = dict[str, Any]


def rows_in(file: Path) -> list[Row]:
    """What was measured."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def key(row: Row) -> str:
    """That of the cell that a row is of."""
    return "|".join([row["setting"], row["method"], row["world"], str(row["seed"])])


def share_gpu(jobs: int) -> None:
    """Take no more than a part of the GPU's memory: what PyTorch keeps for later is missing elsewhere.

    jobs: how many processes use it; 0 for one that does not.
    """
    if jobs:
        torch.cuda.set_per_process_memory_fraction(1.0 / jobs)


def measure(todo: Sequence[Cell], chosen: argparse.Namespace) -> Iterator[Row]:
    """The cells' rows, as they come."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a worker imports torch
    context = multiprocessing.get_context("spawn")
    on_gpu = [cell for cell in todo if cell.gpu and chosen.device != "cpu"]
    on_cpu = [cell for cell in todo if chosen.device == "cpu" or not cell.gpu]
    gpu_jobs = min(chosen.gpu_jobs, len(on_gpu))
    pools = []
    futures: dict[Future[Row], Cell] = {}
    try:
        cpu_jobs = max(1, chosen.jobs - gpu_jobs)
        for some, jobs, sharing in ((on_gpu, gpu_jobs, gpu_jobs), (on_cpu, cpu_jobs, 0)):
            if some:
                # A process for each cell: gigabytes of the run before would lie beside the next one's.
                pool = ProcessPoolExecutor(
                    jobs, context, initializer=share_gpu, initargs=(sharing,), max_tasks_per_child=1
                )
                pools.append(pool)
            for cell in some:
                future = pools[-1].submit(measured, cell, chosen.out, chosen.data_dir, chosen.device)
                futures[future] = cell
        for future in as_completed(futures):
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                print(f"{futures[future].key}: {type(error).__name__}: {error}", flush=True)
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def shown(values: Iterable[float | None]) -> str:
    """By seed; accuracies and graphs alike."""
    return " / ".join("-" if value is None else f"{value:.2f}" for value in values)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each mark and setting: its methods and worlds, over the seeds."""
    for mark, setting in dict.fromkeys((row["mark"], row["setting"]) for row in rows):
        group = [row for row in rows if (row["mark"], row["setting"]) == (mark, setting)]
        lines = []
        for name, world in sorted(dict.fromkeys((row["method"], row["world"]) for row in group)):
            those = [row for row in group if (row["method"], row["world"]) == (name, world)]
            those.sort(key=lambda row: row["seed"])
            percents = [100 * row["accuracy"] for row in those]
            line = [name, world, f"{fmean(percents):.1f}", " / ".join(f"{p:.1f}" for p in percents)]
            line.append(shown([row["struck"] for row in those]))
            lines.append([*line, *[shown([row.get(column) for row in those]) for column in COLUMNS]])
        head = ["method", "world", "accuracy, %", "by seed", "struck"]
        head += [column.replace("_", " ") for column in COLUMNS]
        yield f"{mark}, {setting}\n\n{table(head, lines)}"


def main() -> None:
    """Measure what has not been, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--marks", nargs="+", choices=MARKS, default=MARKS)
    parser.add_argument("--only", nargs="+", default=[], help="cells whose names have one of these in them")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="for all cells")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of the CIFAR-10 cells")
    parser.add_argument("--gpu-jobs", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/scool"))
    parser.add_argument("--show", action="store_true", help="print what is there, and measure nothing")
    chosen = parser.parse_args()
    file: Path = chosen.out / "cells.jsonl"
    known = {key(row) for row in rows_in(file)}
    todo = [cell for cell in cells(chosen.seeds, chosen.overrides) if cell.mark in chosen.marks]
    todo = [cell for cell in todo if cell.key not in known]
    if chosen.only:
        todo = [cell for cell in todo if any(part in cell.key for part in chosen.only)]
    if todo and not chosen.show:
        chosen.out.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            for row in measure(todo, chosen):
                print(json.dumps(row), file=stream, flush=True)
                print(f"{key(row)}: {100 * row['accuracy']:.1f} % in {row['cpu_s']} s", flush=True)
    for text in tables(rows_in(file)):
        print(f"\n{text}", flush=True)


if __name__ == "__main__":
    main()

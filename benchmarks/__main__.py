"""Entry point of `make bench`: measure, and write docs/benchmarks.md or a shorter page on a GPU."""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import (
    bytecodes,
    engine,
    event_loop,
    functions,
    growth,
    language,
    launches,
    many_clients,
    membership,
    profiling,
    shards,
    start_up,
    utilisation,
    walks,
    whole_run,
    wire,
    workers,
)
from benchmarks.measuring import FULL, QUICK, machine

DOCS = Path(__file__).parent.parent / "docs"
BENCHMARKS = {
    "start-up": start_up.measure,
    "event-loop": event_loop.measure,
    "engine": engine.measure,
    "language": language.measure,
    "workers": workers.measure,
    "utilisation": utilisation.measure,
    "launches": launches.measure,
    "whole-run": whole_run.measure,
    "bytecodes": bytecodes.measure,
    "functions": functions.measure,
    "growth": growth.measure,
    "many-clients": many_clients.measure,
    "shards": shards.measure,
    "profile": profiling.measure,
    "membership": membership.measure,
    "walks": walks.measure,
    "wire": wire.measure,
}

ON_CUDA = ("engine", "utilisation")

HEAD = """\
# Benchmarks

This page gives the speed and memory of coterie's parts, for developers who change them. `{command}` measures
everything and writes this page. **Read the ratios, not the rates**: a rate depends on the machine, the hour
and the load; the two sides of a ratio were measured alternately within the same minutes. Every rate is the
median of {repetitions} repetitions, after one warm-up repetition. A ratio is the median of the
ratios of the repetitions, so on a busy machine it can differ from the quotient of the two medians. Times are
wall-clock times unless the section says otherwise.

{machine}"""


def main() -> None:
    """Measure, print, and write the page if everything was measured in full."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions; write no file")
    parser.add_argument("--only", choices=list(BENCHMARKS), nargs="+", help="run only these; write no file")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="threads of torch (default: 1, as in a run by default)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: write a separate, shorter page",
    )
    chosen = parser.parse_args()
    on_cuda = chosen.device == "cuda"
    names = chosen.only or (ON_CUDA if on_cuda else list(BENCHMARKS))
    if on_cuda and not set(names) <= set(ON_CUDA):
        parser.error(f"with --device cuda only {' and '.join(ON_CUDA)} can be measured")
    device = torch.device(chosen.device)
    torch.set_num_threads(chosen.threads)
    effort = replace(QUICK if chosen.quick else FULL, device=device)
    page_file = DOCS / ("benchmarks_cuda.md" if on_cuda else "benchmarks.md")
    command = 'make bench ARGS="--device cuda"' if on_cuda else "make bench"
    started = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - started:4.0f} s  {line}", flush=True)

    sections = [HEAD.format(command=command, repetitions=effort.repetitions, machine=machine(device))]
    for name in names:
        sections.append(BENCHMARKS[name](effort, say))
    page = "\n\n".join(sections) + "\n"
    print(f"\n{page}")
    if chosen.quick:
        print(f"Quick run: {effort.repetitions} repetitions of small sizes; {page_file.name} is unchanged.")
    elif not chosen.only:
        page_file.write_text(page, encoding="utf-8")
        print(f"Written to {page_file}")


if __name__ == "__main__":
    main()

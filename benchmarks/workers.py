"""Gain of a second core: rounds of training by the engine's threads."""

from functools import partial

from benchmarks.engine import MODELS_MEASURED, SECONDS, with_engine
from benchmarks.measuring import (
    Effort,
    Say,
    interleaved,
    median_ratio,
    per_second,
    steps_per_second,
    table,
    times,
)

CLIENTS = {"logistic-regression": 1_000, "mlp": 1_000, "cnn": 16, "resnet9": 4}

TEXT = """\
The rounds of the section on the engine run with one thread and with two (`engine.workers`). The table gives
steps of single clients per second of wall-clock time. The results are the same to the last bit. If all
clients fit into one call, as a few small models do, a second thread has no work.
"""


def measure(effort: Effort, say: Say) -> str:
    """Return the section on workers, in Markdown."""
    rows = []
    for model in MODELS_MEASURED:
        clients = min(CLIENTS[model.name], effort.size_max)
        rates = interleaved(
            {
                workers: partial(
                    steps_per_second,
                    with_engine(model, clients, "auto", effort.device, workers=int(workers)),
                    SECONDS * effort.share,
                    effort.device,
                )
                for workers in ("1", "2")
            },
            effort.repetitions,
        )
        ratio = times(median_ratio(rates["2"], rates["1"]))
        rows.append([model.label, f"{clients:,}", per_second(rates["1"]), per_second(rates["2"]), ratio])
        say(f"workers, {model.label}, {clients:,} clients: {ratio}")
    head = ["model", "clients", "one thread, steps/s", "two, steps/s", "two to one"]
    return "\n\n".join(["## Two cores", TEXT.strip(), table(head, rows)])

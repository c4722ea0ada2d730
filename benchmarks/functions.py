"""What functions of a method's own cost: gossip with int8 messages, by `apply`, beside plain gossip."""

from functools import partial
from pathlib import Path

from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times
from benchmarks.whole_run import MODELS, PERIODS, run, scenario

INT8 = Path(__file__).parents[1] / "docs" / "examples" / "int8_gossip.py"

TEXT = """\
The runs of the section before, and the same with messages of one byte per number
(`docs/examples/int8_gossip.py`): every model that is sent becomes levels, and all levels that arrive become a
model, by `apply`; two functions more for each training step."""


def measure(effort: Effort, say: Say) -> str:
    """The section on functions of a method's own, in Markdown."""
    rows = []
    for label, model in MODELS.items():
        for clients in effort.sizes(*PERIODS):
            periods = max(2, round(PERIODS[clients] * effort.share))
            contenders = {
                "plain": partial(run, scenario(model, clients, periods)),
                "int8": partial(run, scenario(model, clients, periods, protocol=f"{INT8}:Int8Gossip")),
            }
            runs = interleaved(contenders, effort.repetitions)
            plain, int8 = ([found.updates_per_s for found in runs[name]] for name in contenders)
            ratio = times(median_ratio(int8, plain))
            say(f"int8 messages, {label}, {clients:,} clients: {ratio} of plain gossip")
            rows.append([label, f"{clients:,}", f"{periods}", per_second(plain), per_second(int8), ratio])
    head = ["model", "clients", "periods", "plain, updates/s", "int8, updates/s", "int8 to plain"]
    return "\n\n".join(["## Functions of a method's own", TEXT, table(head, rows)])

"""CPU seconds of many clients in a user's run: `coterie run`, limited links and a report."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.measuring import Effort, Say, interleaved, table
from benchmarks.start_up import cpu_s

SHORT, LONG = 1, 4  # periods; their difference gives the cost of messages
LINKS = {"limited": "10 Mbit/s", "unlimited": "unlimited"}

SCENARIO = """\
# What do many clients cost?
[run]
seed = 1
duration = "{periods} s"
evaluate_every = "{periods} s"

[clients]
count = {clients}
topology = {{ kind = "k-regular", degree = 20 }}

[data]
name = "digits"
partition = {{ kind = "iid", samples_per_client = 16, repeat = true }}

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 16

[protocol]
name = "gossip"
period = "1 s"

[network]
latency = {{ kind = "uniform", low = "10 ms", high = "100 ms" }}
uplink = "{bandwidth}"
downlink = "{bandwidth}"

[devices]
step_time = {{ kind = "uniform", low = "10 ms", high = "20 ms" }}

[engine]
workers = 1
"""

TEXT = f"""\
Asynchronous gossip with logistic regression on digits, which are dealt repeatedly
(`data.partition.repeat`), in a random 20-regular graph, run as by a user: `coterie run --quiet` in its own
process, with an evaluation at the start and at the end, all results and the report. The table gives CPU
seconds of user and system. *Start and end* is the cost of a run before its first message and after its
last: the time of a run of {SHORT} s without its messages. *Per message* is the cost of each further message
with its training step, from the difference from a run of {LONG} s. Links have 10 Mbit/s or are unlimited."""


class Cost(NamedTuple):
    """CPU seconds and sent messages of one run."""

    cpu_s: float
    messages: int


def run(clients: int, periods: int, bandwidth: str) -> Cost:
    """Run once in a new process."""
    with TemporaryDirectory() as folder:
        text = SCENARIO.format(clients=clients, periods=periods, bandwidth=bandwidth)
        Path(folder, "many.toml").write_text(text, encoding="utf-8")
        seconds = cpu_s(("-m", "sim", "run", "many.toml", "--quiet", "--out", "results"), Path(folder))
        (summary,) = Path(folder).glob("results/*/summary.json")
        return Cost(seconds, json.loads(summary.read_text(encoding="utf-8"))["messages"]["sent"])


def per_message_s(short: Cost, long: Cost) -> float:
    """Return the CPU seconds of each message that the longer run sent beyond the shorter one."""
    return (long.cpu_s - short.cpu_s) / (long.messages - short.messages)


def measure(effort: Effort, say: Say) -> str:
    """Return the section on many clients, in Markdown."""
    rows = []
    for clients in [100, *effort.sizes(1_000, 10_000, 100_000)]:
        contenders = {
            f"{links} {periods}": partial(run, clients, periods, bandwidth)
            for links, bandwidth in LINKS.items()
            for periods in (SHORT, LONG)
        }
        # The largest runs take minutes each, and their cost is large compared with its variation.
        measured = interleaved(contenders, 1 if clients >= 100_000 else effort.repetitions)
        for links in LINKS:
            row = _row(measured[f"{links} {SHORT}"], measured[f"{links} {LONG}"])
            rows.append([f"{clients:,}", links, *row])
            say(f"many clients, {clients:,}, {links}: {row[1]} ms a message")
    head = ["clients", "links", "start and end, CPU s", "per message, ms of CPU"]
    return "\n\n".join(["## Many clients", TEXT, table(head, rows)])


def _row(short: Sequence[Cost], long: Sequence[Cost]) -> list[str]:
    each = [per_message_s(*pair) for pair in zip(short, long, strict=True)]
    rest = [cost.cpu_s - cost.messages * message_s for cost, message_s in zip(short, each, strict=True)]
    return [f"{median(rest):.1f}", f"{median(each) * 1e3:.3f}"]

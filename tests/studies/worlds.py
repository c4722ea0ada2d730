"""A small study whose runs take a moment: no data but quadratics."""

from pathlib import Path

STUDY = """\
# Which of two methods?
[run]
seed = 3
duration = "4 s"
evaluate_every = "500 ms"

[clients]
count = 4
topology = "complete"

[data]
name = "quadratic"
dimension = 3
clusters = 2

[model]
name = "point"

[training]
learning_rate = 0.1
batch_size = 1

[protocol]
name = "local"

[network]
latency = "20 ms"
uplink = "10 Mbit/s"
downlink = "10 Mbit/s"

[devices]
step_time = "100 ms"

[sweep]
seeds = 2

[sweep.grid]
network.loss = [0, 0.2]

[[sweep.case]]
axis = "method"
name = "alone"

[[sweep.case]]
axis = "method"
name = "gossip"
set = ["protocol.name=gossip", "protocol.period=500 ms"]

[sweep.full]
seeds = 3
set = ["run.duration=5 s"]

[sweep.full.grid]
"network.loss" = [0.1]
"""


def study(folder: Path, text: str = STUDY) -> Path:
    """The file of the study."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path

"""Scenario texts that the tests start from."""

from pathlib import Path

from protocols.framework.requirements import ProtocolSettings

OF_ALL_METHODS = set(ProtocolSettings.model_fields)
"""Settings that every protocol has."""

SMALL = """\
# Does a small scenario load?
# It should.
[run]
duration = "1 min"
evaluate_every = "15 s"

[clients]
count = 4

[data]
name = "digits"
partition = { kind = "iid", samples_per_client = 20 }

[model]
name = "mlp"
hidden = [8]

[training]
learning_rate = 0.1
batch_size = 4

[protocol]
name = "gossip"
period = "500 ms"

[network]
latency = "20 ms"
uplink = "10 Mbit/s"
downlink = "unlimited"

[devices]
step_time = "100 ms"
"""

FULL = """\
# Does everything survive a round trip?
#
# Two paragraphs.
[run]
name = "everything"
seed = 7
duration = "10 min"
iterations = 500
evaluate_every = "100 iterations"
compare_alone = true
shuffle_ties = true
keep_messages = false
target_accuracy = 0.8

[clients]
count = 12
topology = { kind = "small-world", degree = 4, rewire = 0.25 }

[data]
name = "cifar-100"
partition = { kind = "disjoint-clusters", sizes = [5, 4, 3], samples_per_client = 60, relabel = true }
test_samples = 100
validation_share = 0.1

[model]
name = "resnet9"
width = 16
groups = 4
initialisation = "independent"

[training]
optimizer = "adamw"
learning_rate = 1e-3
weight_decay = 0.01
betas = [0.8, 0.99]
batch_size = 32
sampling = "replacement"

[protocol]
name = "gossip"
period = "35 ms"
merge = "age"

[network]
latency = { kind = "lognormal", median = "50 ms", sigma = 0.5 }
uplink = "1 MB/s"
downlink = "unlimited"
loss = 0.01
link = "datagram"
server = { uplink = "1 Gbit/s", downlink = "unlimited" }
membership = "all-knowing"

[[network.partition]]
start = 0
end = "1.5 min"
groups = [[0, 1], [2, 3, 4]]

[[network.partition]]
start = "2 min"
end = "3 min"
from = [5]
to = [6, 7]

[devices]
speed = { kind = "uniform", low = "1 GFLOP/s", high = "10 GFLOP/s" }
transient = { every = "5 min", length = "10 s", factor = 3 }

[[devices.override]]
clients = [3]
slowdown = 5

[[devices.override]]
clients = [4]
speed = "123456789 FLOP/s"

[[devices.slowdown]]
share = 0.5
factor = 2
start = "1 min"
end = "2 min"

[[churn]]
at = "2 min"
event = "join"
clients = [11]

[[churn]]
at = "5 min"
event = "crash"
clients = [0, 1]

[[churn]]
at = "6 min"
event = "rejoin"
clients = [1]
state = "fresh"

[engine]
way = "loop"
deferred = false
pending_limit = "64 MiB"
threads = 1

[supervision]
on_failure = "restart"
max_restarts = 1
"""


def changed(text: str, old: str, new: str) -> str:
    """`text` with its only `old` replaced."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def write(folder: Path, text: str, name: str = "small.toml") -> Path:
    """A scenario file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path

"""The examples of docs/extending.md: all diffs apply to the code, and a run uses what they add."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from actors.codec import head_size, size
from protocols.decentralized.gossip import AgedModel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/extending.md"
WORLD = """
[run]
seed = 1
duration = "20 s"
evaluate_every = "10 s"
metrics = ["accuracy", "kappa"]

[clients]
count = 5

[data]
name = "digits"
partition = { kind = "blocks" }

[model]
name = "mlp"
hidden = [8]

[training]
optimizer = "signsgd"
learning_rate = 0.01
batch_size = 8

[protocol]
name = "PROTOCOL"
local_steps = 2

[network]
latency = { kind = "exponential", mean = "50 ms" }
uplink = "10 Mbit/s"
downlink = "10 Mbit/s"
link = "datagram"
duplicate = 0.2

[devices]
step_time = "100 ms"

[[churn_process]]
kind = "shifts"
clients = [3, 4]
up = "6 s"
down = "2 s"
shift = "1 s"
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the code with all examples of the page."""
    if shutil.which("git") is None:
        pytest.skip("git, which applies the diffs, is not installed")
    copy = tmp_path_factory.mktemp("extended")
    for package in ("actors", "coterie", "protocols", "sim"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    diffs = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(diffs) == 10
    for diff in diffs:
        applied = subprocess.run(["git", "apply"], cwd=copy, input=diff, capture_output=True, text=True)
        assert applied.returncode == 0, (
            f"the code has changed: write this diff of docs/extending.md again\n{applied.stderr}{diff}"
        )
    return copy


def _run(extended: Path, protocol: str, *more: str) -> Path:
    world = extended / "world.toml"
    world.write_text(WORLD.replace("PROTOCOL", protocol), encoding="utf-8")
    words = ["run", str(world), "--quiet", "--out", f"runs-{protocol}", *more]
    done = subprocess.run([sys.executable, "-m", "sim", *words], cwd=extended, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (extended / f"runs-{protocol}").iterdir()
    return folder


@pytest.mark.long
def test_a_run_uses_what_the_examples_add(extended: Path) -> None:
    folder = _run(extended, "fedmedian", "--note", "a trial")
    assert '"note": "a trial"' in (folder / "summary.json").read_text(encoding="utf-8")
    assert "kappa" in pq.read_table(folder / "metrics.parquet")["name"].to_pylist()
    assert 'id="messages-by-type"' in (folder / "report.html").read_text(encoding="utf-8")
    events = pq.read_table(folder / "events.parquet").to_pylist()
    assert {row["is_copy"] for row in events if row["event"] == "sent"} == {False, True}
    joins = [
        row["time"] for row in events if row["actor"] == "client-3" and row["event"] in ("join", "rejoin")
    ]
    assert joins == [3.0, 11.0, 19.0]


@pytest.mark.long
def test_a_field_of_a_message_adds_to_its_size(extended: Path) -> None:
    events = pq.read_table(_run(extended, "gossip") / "events.parquet").to_pylist()
    before = AgedModel(params=np.zeros(64 * 8 + 8 + 8 * 10 + 10, np.float32), age=1, time=1.0)
    of_field = size("merges") + size(1)
    expected = head_size("client-0", "client-1") + size(before) + of_field
    assert {row["bytes"] for row in events if row["type"] == "AgedModel"} == {expected}

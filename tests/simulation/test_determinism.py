"""The same scenario and seed give the same trace, bit for bit, in whatever process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from tests.simulation.worlds import DIGITS, QUADRATIC, run, simulation, write

BUSY = f"""\
{DIGITS.replace('name = "gossip"', 'name = "cobo"').replace('period = "500 ms"', 'sampling = "none"')}
[devices.transient]
every = "1 s"
length = "200 ms"
factor = 3

[[churn]]
at = "1 s"
event = "crash"
clients = [4]

[[churn]]
at = "2 s"
event = "rejoin"
clients = [4]
state = "fresh"
"""
LOSSY = ("network.link=datagram", "network.loss=0.1", "run.duration=3 s")
SETS = """\
from dataclasses import dataclass
from protocols.decentralized.local import Local

@dataclass(frozen=True)
class Hint:
    step: int

class Unordered(Local):
    async def step(self):
        await super().step()
        for peer in {*self.peers}:
            self.tell(peer, Hint(self.iterations))

    async def on_message(self, message, sender):
        pass
"""


@pytest.mark.long
def test_two_processes_give_one_trace(tmp_path: Path) -> None:
    """This one has run other things before, and the strings in the other one have other hashes."""
    file, options = write(tmp_path, BUSY), [word for override in LOSSY for word in ("--set", override)]
    hash_seed = "11" if os.environ.get("PYTHONHASHSEED") != "11" else "12"
    other = subprocess.Popen(
        [sys.executable, "-m", "sim", "run", str(file), "--quiet", "--out", str(tmp_path), *options],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    here = run(tmp_path, BUSY, *LOSSY)
    output, _ = other.communicate()
    assert other.returncode == 0, output
    [there] = tmp_path.glob("world-1-*")
    runs = [RunDirectory.load(path) for path in (here.directory, there)]
    assert runs[0].summary()["trace_hash"] == runs[1].summary()["trace_hash"]
    for table in ("events", "metrics", "graph", "intervals"):
        assert runs[0].scan(table).collect().equals(runs[1].scan(table).collect())
    fates = here.summary["messages"]
    assert min(fates[fate] for fate in ("delivered", "lost", "dropped")) > 0


@pytest.mark.long
@pytest.mark.parametrize("shuffle", ["false", "true"])
@pytest.mark.parametrize(
    "protocol", ["local", "gossip", "dpsgd", "cobo", "fedavg", "oracle", "synchronous cobo"]
)
def test_a_second_run_is_the_first(tmp_path: Path, protocol: str, shuffle: str) -> None:
    name = protocol.split()[-1]
    overrides = [f"protocol.name={name}", "protocol.local_steps=2", f"run.shuffle_ties={shuffle}"]
    overrides += ["run.duration=2 s", "run.evaluate_every=1 s"]
    overrides += ["protocol.mode=synchronous"] if "synchronous" in protocol else []

    def trace_hash(*more: str) -> str:
        with simulation(tmp_path, QUADRATIC, *overrides, *more) as built:
            built.run()
            return built.trace.hash()

    assert trace_hash() == trace_hash()
    assert trace_hash() != trace_hash("run.seed=2")


def test_ties_are_shuffled_by_a_number_of_their_own(tmp_path: Path) -> None:
    def trace_hash(*overrides: str) -> str:
        short = ("protocol.name=dpsgd", "run.duration=2 s", "run.evaluate_every=1 s")
        with simulation(tmp_path, QUADRATIC, *short, *overrides) as built:
            built.run()
            return built.trace.hash()

    hashes = [trace_hash(f"run.shuffle_ties={ties}") for ties in ("false", "true", "0", "1", "2")]
    assert len(set(hashes)) == len(hashes)
    assert trace_hash("run.shuffle_ties=2") == hashes[-1]
    for wrong in ("-1", "1.0", '"yes"', "1000001"):
        with pytest.raises(UserError, match=r"shuffle_ties .*must be true, false"):
            trace_hash(f"run.shuffle_ties={wrong}")


@pytest.mark.long
def test_verify_finds_no_difference_and_runs_the_code_that_ran_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another coterie is installed."""
    (tmp_path / "installed" / "sim").mkdir(parents=True)
    (tmp_path / "installed" / "sim" / "__main__.py").write_text("raise SystemExit('another one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    file = write(tmp_path, QUADRATIC)
    options = ["--set", "protocol.name=cobo", "--set", "run.duration=1 s", "--set", "run.evaluate_every=1 s"]
    result = CliRunner().invoke(app, ["run", str(file), "--verify", "--out", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "verified: the second run has the same trace"


READS = """\
import json
from pathlib import Path
from protocols.decentralized.local import Local

TABLE = json.loads((Path(__file__).parent / "table.json").read_text())

class Reads(Local):
    async def step(self):
        await super().step()
        if self.now > 1 and TABLE["once"]:
            (Path(__file__).parent / "table.json").unlink(missing_ok=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("once", [False, True])
def test_verify_of_a_protocol_that_reads_a_file_beside_it(tmp_path: Path, once: bool) -> None:
    """As the first run did; where that left none, it is said that there was no second run."""
    (tmp_path / "reads.py").write_text(READS)
    (tmp_path / "table.json").write_text(json.dumps({"once": once}))
    file = write(tmp_path, QUADRATIC)
    options = ["--set", "protocol.name=reads.py:Reads", "--quiet", "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, ["run", str(file), "--verify", *options])
    if once:
        assert result.exit_code == 1
        assert result.stderr.startswith(
            "not verified: the second run could not be compared: it left no results, with exit code 2:\n"
        )
        assert "table.json" in result.stderr
    else:
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == "verified: the second run has the same trace"


@pytest.mark.long
def test_verify_of_a_protocol_that_was_edited_meanwhile(tmp_path: Path) -> None:
    """It is its copy that is run again."""
    edits = "        Path(__file__).write_text('edited') if 'runs' not in __file__ else None\n"
    (tmp_path / "edits.py").write_text(
        "from pathlib import Path\nfrom protocols.decentralized.local import Local\nclass Edits(Local):\n"
        f"    async def step(self):\n        await super().step()\n{edits}"
    )
    file = write(tmp_path, QUADRATIC)
    options = ["--set", "protocol.name=edits.py:Edits", "--quiet", "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, ["run", str(file), "--verify", *options])
    assert (tmp_path / "edits.py").read_text() == "edited"
    assert result.exit_code == 0, result.output


@pytest.mark.long
def test_verify_shows_the_first_difference_and_its_time(tmp_path: Path) -> None:
    (tmp_path / "unordered.py").write_text(SETS)
    file = write(tmp_path, QUADRATIC)
    options = ["--set", "protocol.name=unordered.py:Unordered", "--quiet", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["run", str(file), "--verify", *options])
    assert result.exit_code == 1
    first = r"first run:  t = 0\.125 s: (client-\d) sent Hint to (client-\d), \d+ B"
    second = r"second run: t = 0\.125 s: (client-\d) sent Hint to (client-\d), \d+ B"
    found = re.search(rf"the second run differs: entry \d+ differs:\n  {first}\n  {second}\n", result.stderr)
    assert found, result.stderr
    assert found[1] == found[3] and found[2] != found[4]

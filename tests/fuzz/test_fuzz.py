"""A few cases of each kind in this process, and the watching and judging of the others.

`make fuzz` tries thousands of cases, each in a process of its own with limits of time and memory.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from sim.cli.live import app
from sim.studies.cells import plan
from sim.studies.sweep import run_sweep
from tests.fuzz import data, grammar, isolation, spoil, worlds
from tests.fuzz.case import Case
from tests.fuzz.isolation import Outcome
from tests.fuzz.judge import fault
from tests.fuzz.kinds import KINDS
from tests.fuzz.results import RESULTS, SWEEP, study
from tests.studies.conftest import here

SEEDS = range(12)
COMPUTING = ("run", "sweep", "reproduce")  # whole runs are left to `make fuzz`
_SLOW = 10  # times as long as a case of `make fuzz` takes at most: other tests may use the machine, too
APART = ("packed", "call")  # which have tests of their own: below, and in tests/front
ALIKE = [kind for kind in KINDS if kind not in APART]
PACKED = 6  # cases: each is a fork that imports and unpacks


@pytest.fixture(autouse=True)
def _no_longer_than_allowed() -> Iterator[None]:
    """A case that hangs fails, and does not hang the tests."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {_SLOW * isolation.MOST_S:g} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(_SLOW * isolation.MOST_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all data, and with the results of one run and of one sweep."""
    folder = tmp_path_factory.mktemp("valid")
    data.write_all(folder)
    own = folder / RESULTS / "one"
    own.mkdir(parents=True)
    table = worlds.short("gossip")
    (own / "scenario.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    done = in_this_process(["run", str(own / "scenario.toml"), "--quiet", "--out", str(own)])
    assert done.code == 0, done.errors
    study(folder / SWEEP)
    planned = plan(folder / SWEEP / "study.toml")
    assert not run_sweep(planned, out=folder / SWEEP / "runs", execute=here).errors
    return folder


def met(arguments: list[str], folder: Path) -> Outcome:
    """What comes of a command; of one that serves a page in a fork, so that its end ends nothing else."""
    is_page = arguments[0] == "watch"
    return isolation.command(arguments, folder) if is_page else in_this_process(arguments)


def in_this_process(arguments: list[str]) -> Outcome:
    """A command without limits of time and memory, for input that is known to keep them."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.mark.long
@pytest.mark.parametrize("kind", ALIKE)
@pytest.mark.parametrize("seed", SEEDS)
def test_spoiled_input_is_refused_in_words(
    kind: str, seed: int, valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    (tmp_path / "data").symlink_to(valid)
    changed, commands = Case(kind, seed).prepare(KINDS[kind])
    first = next((arguments for arguments in commands if arguments[0] not in COMPUTING), None)
    if first is not None:
        found = fault(first, met(first, tmp_path))
        assert found is None, (changed, first, found)


@pytest.mark.long
@pytest.mark.parametrize("kind", ALIKE)
def test_unspoiled_input_is_accepted(
    kind: str, valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    (tmp_path / "data").symlink_to(valid)
    changed, commands = Case(kind, 1, unspoiled=True).prepare(KINDS[kind])
    outcome = met(commands[0], tmp_path)
    assert changed == [] and outcome.code in (0, 130), outcome.errors


_CHECK_PACKED = """
import sys
from pathlib import Path
import PIL.Image, polars, pyarrow.parquet, scipy.io, torch
import sim.cli.live, sim.learning.data.columns, sim.learning.data.saved, sim.run.setup.builder
from tests.fuzz import isolation
from tests.fuzz.case import Case
from tests.fuzz.judge import fault
from tests.fuzz.kinds import KINDS

for seed in range(int(sys.argv[2])):
    folder = Path(sys.argv[1], str(seed))
    folder.mkdir()
    isolation.watched(lambda: Case("packed", seed).prepare(KINDS["packed"]), folder)
    outcome = isolation.command(["check", "scenario.toml"], folder)
    if (found := fault(["check"], outcome)) is not None:
        print(seed, found)
"""


@pytest.mark.long
def test_packed_files_take_no_more_memory_than_there_is(tmp_path: Path) -> None:
    """In a process of its own, whose forks have 2 GB each, and a limit of time each."""
    signal.alarm(0)  # which is for one case; these are several
    arguments = [sys.executable, "-c", _CHECK_PACKED, str(tmp_path), str(PACKED)]
    done = subprocess.run(arguments, cwd=worlds.SCENARIOS.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]


def test_every_shipped_scenario_has_a_short_form() -> None:
    assert set(worlds.SHORT) == {path.stem for path in worlds.SCENARIOS.glob("*.toml")}


@pytest.mark.parametrize("name", worlds.SHORT)
def test_the_grammar_has_the_keys_of_the_shipped_scenarios(name: str) -> None:
    table = worlds.short(name)
    known = {
        key.place
        for found in (grammar.sections(), grammar.protocol(table["protocol"]["name"]))
        for key in found[1]
    }
    stated = {tuple(0 if isinstance(part, int) else part for part in place) for place in spoil.places(table)}
    in_values = {place for place in stated if place[:-1] in known and place[-1] == 0}
    assert stated - known - in_values <= {("protocol", "name")}


def test_a_case_is_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.parse("scenario:5")
    texts = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        words, _ = case.prepare(KINDS["scenario"])
        texts.append((words, Path("scenario.toml").read_text(encoding="utf-8")))
    assert texts[0] == texts[1]
    assert texts[0][0]
    assert Case.parse(str(case)) == case


# What watches -------------------------------------------------------------------------------------------


def test_a_command_that_hangs_is_ended_and_says_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "MOST_S", 0.1)
    outcome = isolation.watched(lambda: time.sleep(60), tmp_path)
    assert outcome.stopped == "time"
    assert "most recent call first" in outcome.errors
    found = fault(["check"], outcome)
    assert found is not None
    assert found.name == "time check outside our code"


# What judges --------------------------------------------------------------------------------------------

TRACEBACK = f"""\
Traceback (most recent call last):
  File "{worlds.SCENARIOS.parent}/sim/cli.py", line 1, in main
  File "{worlds.SCENARIOS.parent}/sim/world/devices/speeds.py", line 7, in _scores
  File "/usr/lib/python3/csv.py", line 97, in fieldnames
package.errors.UnicodeDecodeError: 'utf-8' codec can't decode
"""


@pytest.mark.parametrize(
    ("code", "output", "errors", "name"),
    [
        (0, "fine", "", None),
        (2, "", "x.toml: run.seed = -1: must be 0 or more", None),
        (1, "", "the run failed: nobody is left", None),
        (1, "", TRACEBACK, "traceback UnicodeDecodeError sim/world/devices/speeds.py:_scores"),
        (0, "", f"failed\n{TRACEBACK}", "traceback UnicodeDecodeError sim/world/devices/speeds.py:_scores"),
        (2, "said on the wrong stream", "", "exit 2 of check without a message"),
        (130, "", "interrupted", "exit 130 of check"),
        (-11, "", "Segmentation fault", "signal 11 check outside our code"),
        (0, "x" * 200_000, "", "check prints 200,001 characters"),
        (0, "", "/x/y.py:7: RuntimeWarning: overflow", "warning check y.py: RuntimeWarning: overflow"),
    ],
)
def test_how_a_command_may_end(code: int, output: str, errors: str, name: str | None) -> None:
    found = fault(["check", "x.toml"], Outcome(code, output, errors))
    assert (found and found.name) == name


def test_a_run_may_not_refuse_what_a_check_has_passed() -> None:
    refusal = Outcome(2, "", "x.toml: run.seed = -1: must be 0 or more")
    assert fault(["run", "x.toml"], refusal) is None
    found = fault(["run", "x.toml"], refusal, checked="check")
    assert found is not None
    assert found.name.startswith("check passes, run refuses")

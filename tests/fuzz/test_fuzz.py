"""A few cases of each kind in this process, and the watching and judging of the others.

`make fuzz` tries thousands of cases, each in a process of its own with limits of time and memory.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import tomli_w
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.files import input_file
from sim.results import text
from tests.fuzz import data, grammar, isolation, judge, tables, worlds
from tests.fuzz.case import Case, Kind, attempt, minimised
from tests.fuzz.isolation import Outcome
from tests.fuzz.judge import fault
from tests.fuzz.kinds import KINDS
from tests.fuzz.of_results import RESULTS

SEEDS = range(12)


@pytest.fixture(autouse=True)
def _no_longer_than_allowed() -> Iterator[None]:
    """A case that hangs fails, and does not hang the tests."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {isolation.MOST_S:g} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(isolation.MOST_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all data, and with the results of one run."""
    folder = tmp_path_factory.mktemp("valid")
    data.write_all(folder)
    own = folder / RESULTS / "one"
    own.mkdir(parents=True)
    table = worlds.short("cobo_quadratics")
    (own / "scenario.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    done = in_this_process(["run", str(own / "scenario.toml"), "--quiet", "--out", str(own)])
    assert done.code == 0, done.errors
    return folder


def in_this_process(arguments: list[str]) -> Outcome:
    """A command without limits of time and memory, for input that is known to keep them."""
    started = time.monotonic()
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr, time.monotonic() - started, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_spoiled_input_is_refused_in_words(
    kind: str, seed: int, valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    (tmp_path / "data").symlink_to(valid)
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 50_000_000)  # for files that become 3 GB
    changed, commands = Case.drawn(kind, seed).prepare(KINDS[kind], tmp_path)
    first = next((arguments for arguments in commands if arguments[0] != "run"), None)
    if first is not None:  # whole runs are left to `make fuzz`
        found = fault(first, in_this_process(first))
        assert found is None, (changed, first, found)


@pytest.mark.parametrize("kind", KINDS)
def test_unspoiled_input_is_accepted(
    kind: str, valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    (tmp_path / "data").symlink_to(valid)
    changed, commands = Case(kind, 1, ()).prepare(KINDS[kind], tmp_path)
    outcome = in_this_process(commands[0])
    assert (changed, outcome.code) == ([], 0), outcome.errors


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
    stated = {tuple(0 if isinstance(part, int) else part for part in place) for place in tables.places(table)}
    in_values = {place for place in stated if place[:-1] in known and place[-1] == 0}
    assert stated - known - in_values <= {("protocol", "name")}


def test_a_case_is_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.parse("scenario:5:0,1,3")
    texts = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        words, _ = case.prepare(KINDS["scenario"], tmp_path / name)
        texts.append((words, Path("scenario.toml").read_text(encoding="utf-8")))
    assert texts[0] == texts[1]
    assert len(texts[0][0]) == 3
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


def test_a_command_that_eats_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = isolation.watched(lambda: None, tmp_path).peak_bytes
    monkeypatch.setattr(isolation, "MOST_BYTES", without + 50_000_000)

    def eat() -> None:
        eaten = b"x" * 200_000_000
        time.sleep(60)
        del eaten

    outcome = isolation.watched(eat, tmp_path)
    assert outcome.stopped == "memory"
    assert outcome.peak_bytes > without + 50_000_000


def test_what_a_check_says_of_memory_is_understood() -> None:
    said = "  memory    {} of models and optimizers, 474 kB of samples"
    assert judge.announced_bytes(said.format(text.size(9_760))) == 9_760
    assert judge.announced_bytes(said.format(text.size(1.2e9))) == 1.2e9
    assert judge.announced_bytes("small.toml: run.seed = -1") == 0


def test_ctrl_c_reaches_a_command(tmp_path: Path) -> None:
    def wait() -> None:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    assert isolation.watched(wait, tmp_path, interrupt_after_s=0.05).code == 130


def test_nothing_in_a_case_reaches_the_network(tmp_path: Path) -> None:
    import socket

    outcome = isolation.watched(lambda: socket.create_connection(("127.0.0.1", 9)), tmp_path)
    assert outcome.network
    assert "no network in here" in outcome.errors


class Numbers(Kind):
    """Writes down which changes were made."""

    name = "numbers"

    def begin(self, folder: Path, rng: Random) -> list[str]:
        return []

    def change(self, state: list[str], rng: Random) -> str:
        state.append(str(rng.random()))
        return state[-1]

    def commands(self, state: list[str]) -> list[list[str]]:
        Path("numbers.txt").write_text(" ".join(state), encoding="utf-8")
        os.mkfifo("pipe")
        with open("empty", "wb") as file:  # 100 GB that take no room, until somebody copies them
            os.truncate(file.fileno(), 100_000_000_000)
        return [["check", "numbers.txt"]]


def test_a_fault_is_kept_with_no_more_changes_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = str(Random("numbers 1 2").random())

    def command(arguments: list[str], folder: Path, **options: object) -> Outcome:
        fails = wrong in (folder / "numbers.txt").read_text(encoding="utf-8")
        return Outcome(1 if fails else 0, "", TRACEBACK if fails else "", 0.1, 0)

    monkeypatch.setattr(isolation, "command", command)
    found = attempt(Case("numbers", 1, (0, 1, 2, 3)), Numbers(), tmp_path)
    least = minimised(found, Numbers(), tmp_path).case
    assert least == Case("numbers", 1, (2,))
    kept = tmp_path / "kept"
    attempt(least, Numbers(), tmp_path, kept)
    assert sorted(path.name for path in kept.iterdir()) == ["CASE.txt", "data", "numbers.txt"]
    assert (kept / "numbers.txt").read_text(encoding="utf-8") == wrong
    written = (kept / "CASE.txt").read_text(encoding="utf-8").splitlines()
    assert written[:4] == [
        "case numbers:1:2",
        f"changed: {wrong}",
        "coterie 'check' 'numbers.txt'",
        "exit codes (1,)",
    ]
    assert written[4] == "traceback UnicodeDecodeError sim/world/devices/speeds.py:_scores"


def test_unspoiled_input_that_is_refused_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Outcome(2, "", "numbers.txt: no", 0.1, 0)
    monkeypatch.setattr(isolation, "command", lambda arguments, folder, **options: refused)
    assert attempt(Case("numbers", 1, (0,)), Numbers(), tmp_path).fault is None
    found = attempt(Case("numbers", 1, ()), Numbers(), tmp_path).fault
    assert found is not None
    assert found.name == "check refuses unspoiled input"


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
        (0, "", "/x/y.py:7: RuntimeWarning: overflow", "warning check y.py: RuntimeWarning: overflow"),
    ],
)
def test_how_a_command_may_end(code: int, output: str, errors: str, name: str | None) -> None:
    found = fault(["check", "x.toml"], Outcome(code, output, errors, 0.1, 0))
    assert (found and found.name) == name


def test_a_run_may_not_refuse_what_a_check_has_passed() -> None:
    refusal = Outcome(2, "", "x.toml: run.seed = -1: must be 0 or more", 0.1, 0)
    assert fault(["run", "x.toml"], refusal) is None
    found = fault(["run", "x.toml"], refusal, checked=True)
    assert found is not None
    assert found.name.startswith("check passes, run refuses")


def test_a_check_may_not_use_the_network() -> None:
    found = fault(["check", "x.toml"], Outcome(2, "", "no data", 0.1, 0, network=True))
    assert found is not None
    assert found.name == "check uses the network"

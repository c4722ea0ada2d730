"""Settings that do less than they say: refused, or a line in `check` and in `run`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from tests.simulation.worlds import DIGITS, QUADRATIC, write

DATES = "when,value,label\n" + "".join(
    f"2024-{1 + n // 28 % 12:02d}-{1 + n % 28:02d} {n % 24:02d}:00:00,{n % 7},{'ab'[n % 2]}\n"
    for n in range(90)
)
IDS = "when,value,label\n" + "".join(f"id-{n},{n % 7},{'ab'[n % 2]}\n" for n in range(90))
WORDS = "when,value,label\n" + "".join(f"free text {n % 40},{n % 7},{'ab'[n % 2]}\n" for n in range(90))
TABLE = 'name = "table"\nfile = "t.csv"\nlabel = "label"\npartition = "iid"'


def answered(verb: str, folder: Path, text: str, *options: str) -> Result:
    file = write(folder, text)
    where = ("--out", str(folder / "runs"), "--device", "cpu", "--quiet") if verb == "run" else ()
    given = [each for option in options for each in ("--set", option)]
    return CliRunner().invoke(app, [verb, str(file), *where, *given])


def world(data: str) -> str:
    """The digits' world with other data."""
    lines = DIGITS.splitlines()
    start = lines.index("[data]")
    end = next(number for number in range(start + 1, len(lines)) if lines[number].startswith("["))
    return "\n".join([*lines[: start + 1], data, *lines[end:]])


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize(("table", "different"), [(DATES, 90), (IDS, 90), (WORDS, 40)])
def test_a_column_of_free_texts(verb: str, table: str, different: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    model = 'model={name="logistic-regression"}'
    result = answered(verb, tmp_path, world(TABLE), "clients.count=2", "run.duration=5 s", model)
    assert result.exit_code == 0, result.output
    said = f"column 'when' has {different} different texts in 90 rows, and each becomes a category"
    assert result.stderr.count(said) == 1
    assert "data.leave_out" in result.stderr
    if verb == "run":
        [folder] = (tmp_path / "runs").iterdir()
        assert any(said in notice for notice in RunDirectory.load(folder).summary()["notices"])


@pytest.mark.parametrize("more", ['categorical = ["when"]', 'leave_out = ["when"]'])
def test_a_column_of_texts_that_is_meant(more: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(DATES, encoding="utf-8")
    model = 'model={name="logistic-regression"}'
    result = answered("check", tmp_path, world(f"{TABLE}\n{more}"), "clients.count=2", model)
    assert result.exit_code == 0 and result.stderr == ""


def test_columns_of_few_categories_are_no_free_texts(tmp_path: Path) -> None:
    rows = "".join(f"kind {n % 5},{n % 7},{'ab'[n % 2]}\n" for n in range(90))
    (tmp_path / "t.csv").write_text(f"when,value,label\n{rows}", encoding="utf-8")
    model = 'model={name="logistic-regression"}'
    result = answered("check", tmp_path, world(TABLE), "clients.count=2", model)
    assert result.exit_code == 0 and result.stderr == ""


# --- churn ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("verb", ["check", "run"])
def test_events_of_which_none_comes_in_the_run(verb: str, tmp_path: Path) -> None:
    churn = "churn=[{at='1 s', event='crash', clients=[0, 1], spread='300 h'}]"
    result = answered(verb, tmp_path, QUADRATIC, "run.duration=5 s", churn)
    assert result.exit_code == 2
    assert 'churn.0.spread = "300 h": all events are after the end of the run (5 s)' in result.output


@pytest.mark.parametrize("verb", ["check", "run"])
def test_events_of_which_some_come_in_the_run(verb: str, tmp_path: Path) -> None:
    churn = "churn=[{at='1 s', event='crash', share=1.0, spread='8 s'}]"
    result = answered(verb, tmp_path, QUADRATIC, "run.duration=5 s", churn)
    assert result.exit_code == 0, result.output
    assert 'churn.0.spread = "8 s": ' in result.stderr and "after the end of the run" in result.stderr


def test_a_process_that_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "up.csv").write_text("client,start_s,end_s\n0,0,900\n1,0,900\n", encoding="utf-8")
    process = f"churn_process=[{{kind='table', file={str(tmp_path / 'up.csv')!r}, clients=[0, 1]}}]"
    result = answered("check", tmp_path, QUADRATIC, "run.duration=5 s", process)
    assert result.exit_code == 0, result.output
    assert "churn_process.0 causes no join or departure before the end of the run" in result.stderr


# --- lists and numbers that contradict each other -----------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("churn=[{at='1 s', event='crash', clients=[1, 1]}]", "churn.0.clients"),
        ("devices.override=[{clients=[1, 0, 1], slowdown=2}]", "devices.override.0.clients"),
        ("devices.class=[{name='slow', clients=[1, 1], slowdown=2}]", "devices.class.0.clients"),
    ],
)
def test_a_client_that_is_there_twice(option: str, key: str, tmp_path: Path) -> None:
    result = answered("check", tmp_path, QUADRATIC, "run.duration=5 s", option)
    assert result.exit_code == 2
    assert key in result.output and "client 1 twice; list each client only once" in result.output


def test_more_samples_at_least_than_each_client_has(tmp_path: Path) -> None:
    partition = "data.partition={kind='dirichlet', alpha=1, samples_per_client=20, min_samples=30}"
    result = answered("check", tmp_path, DIGITS, partition)
    assert result.exit_code == 2
    assert "data.partition.min_samples = 30" in result.output
    assert "must be at most samples_per_client = 20" in result.output
    assert answered("check", tmp_path, DIGITS, partition.replace("30", "20")).exit_code == 0


@pytest.mark.parametrize("key", ["engine.device", "run.device", "training.device", "device"])
def test_the_device_is_an_option_of_commands(key: str, tmp_path: Path) -> None:
    result = answered("check", tmp_path, QUADRATIC, f"{key}=cpu")
    assert result.exit_code == 2
    assert "use the option --device of a command" in result.output
    assert "did you mean" not in result.output


# --- the machine's clock ------------------------------------------------------------------------------------

CLOCKS = {
    "import time": "time.sleep(0)",
    "from time import sleep": "sleep(0)",
    "import time as t": "t.perf_counter()",
    "from datetime import datetime": "datetime.now()",
}


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize("imported", CLOCKS)
def test_a_method_that_waits_for_or_reads_the_machines_clock(
    verb: str, imported: str, tmp_path: Path
) -> None:
    call = CLOCKS[imported]
    code = f"{imported}\n\nfrom coterie import Client\n\n\nclass Own(Client):\n    async def step(self):\n"
    (tmp_path / "own.py").write_text(f"{code}        {call}\n        await self.sleep(1)\n", encoding="utf-8")
    text = QUADRATIC.replace('name = "local"', 'name = "own.py:Own"')
    result = answered(verb, tmp_path, text, "run.duration=5 s")
    assert result.exit_code == 0, result.output
    place = f"({tmp_path / 'own.py'}:8)"
    if "sleep" in call:
        assert f"time.sleep {place} takes no virtual time" in result.stderr
        assert "`await self.sleep(seconds)`" in result.stderr
    else:
        assert f"{place} reads the machine's clock, which differs in each run" in result.stderr


def test_the_clock_outside_of_functions_is_of_no_concern(tmp_path: Path) -> None:
    code = "import time\n\nfrom coterie import Client\n\nBEGAN = time.time()\n\n\nclass Own(Client):\n"
    step = "    async def step(self):\n        await self.sleep(1)\n"
    (tmp_path / "own.py").write_text(code + step, encoding="utf-8")
    text = QUADRATIC.replace('name = "local"', 'name = "own.py:Own"')
    result = answered("check", tmp_path, text, "run.duration=5 s")
    assert result.exit_code == 0 and result.stderr == ""


# --- files that are written as in other countries -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("m.csv", "0;1,5\n1,5;0\n", "contains semicolons; write numbers with a decimal point; commas"),
        (
            "slow.csv",
            "time_s,factor\n0,1\n0,5,4\n",
            "line 3: has 3 values; must have 2: time_s, factor",
        ),
        ("slow.csv", 'time_s,factor\n0,1\n"0,5",4\n', "time_s = '0,5': must be a number"),
    ],
)
def test_decimal_commas(name: str, content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    file = str(tmp_path / name)
    use = (
        f"network.latency={{kind='matrix', file={file!r}, unit='ms'}}"
        if name == "m.csv"
        else f"devices.measured={{file={file!r}}}"
    )
    result = answered("check", tmp_path, QUADRATIC, use)
    assert result.exit_code == 2
    assert problem in result.output and "decimal point" in result.output and "damaged" not in result.output


def test_a_decimal_comma_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("value,label\n1,a\n1,5,b\n2,a\n", encoding="utf-8")
    result = answered("check", tmp_path, world(TABLE), "clients.count=2")
    assert result.exit_code == 2
    assert "has 3 values; must have 2, one for each column (if numbers have decimal commas" in result.output
    assert "damaged" not in result.output


def test_spaces_behind_commas(tmp_path: Path) -> None:
    (tmp_path / "slow.csv").write_text("time_s, factor\n0, 1\n0.5, 4\n", encoding="utf-8")
    use = f"devices.measured={{file={str(tmp_path / 'slow.csv')!r}}}"
    result = answered("check", tmp_path, QUADRATIC, use)
    assert result.exit_code == 0, result.output


def test_spaces_make_the_same_run(tmp_path: Path) -> None:
    hashes = []
    for space in ("", " "):
        file = tmp_path / f"slow{len(space)}.csv"
        file.write_text(f"time_s,{space}factor\n0,{space}1\n0.5,{space}4\n", encoding="utf-8")
        out = str(tmp_path / f"out{len(space)}")
        use = f"devices.measured={{file={str(file)!r}}}"
        given = ["run", str(write(tmp_path, QUADRATIC)), "--quiet", "--out", out, "--set", use]
        assert CliRunner().invoke(app, [*given, "--set", "run.duration=5 s"]).exit_code == 0
        [folder] = Path(out).iterdir()
        hashes.append(json.loads((folder / "summary.json").read_text())["trace_hash"])
    assert hashes[0] == hashes[1]

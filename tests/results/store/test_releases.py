"""Results of each release open in all that reads results, and say where another version cannot go on."""

import csv
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import coterie as front
from sim.cli.live import app  # with all commands
from sim.cli.watch import state
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.store.tables import TABLES
from sim.studies.study import load_study

RELEASES = Path(__file__).parents[1] / "releases"
KEPT = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in RELEASES.glob("*/*/summary.json"))
OLDEST, NEWEST = "0.2.0/gossip", "before-0.3.0/gossip"
EXPLAIN = ("--at", "12 s", "--client", "1")
FORK = ("--at", "15 s", "--set", "training.learning_rate=0.05", "--quiet", "--device", "cpu")


@pytest.fixture
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return copied(request.param, tmp_path)


def copied(name: str, folder: Path) -> Path:
    return shutil.copytree(RELEASES / name, folder / "runs" / name.replace("/", "-"))


def coterie(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def states_in(folder: Path) -> list[str]:
    """What `coterie runs` says of each run."""
    result = coterie("runs", folder, "--csv")
    assert result.exit_code == 0, result.output
    return [row["state"] for row in csv.DictReader(result.stdout.splitlines())]


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kept", names, indirect=True)


def test_there_is_a_run_of_each_release() -> None:
    assert {name.partition("/")[0] for name in KEPT} >= {"0.2.0", "before-0.3.0"}


@of(*KEPT)
def test_its_report_is_written(kept: Path) -> None:
    result = coterie("report", kept, "--trace")
    assert result.exit_code == 0, result.output
    page = (kept / "report.html").read_text()
    assert f"<h1>{json.loads((kept / 'summary.json').read_text())['scenario']}</h1>" in page
    assert (kept / "trace.pftrace").stat().st_size > 1000


@pytest.mark.long
def test_releases_are_compared_with_each_other(tmp_path: Path) -> None:
    paths = [copied(name, tmp_path) for name in KEPT]
    assert len(load_study(paths).runs) == len(KEPT)
    old, new = (copied(name, tmp_path / "two") for name in (OLDEST, NEWEST))
    result = coterie("compare", old, new, "--out", tmp_path / "compared", "--metric", "accuracy")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "compared/comparison.html").is_file()


@of(OLDEST, NEWEST)
def test_a_client_is_explained(kept: Path) -> None:
    result = coterie("explain", kept, *EXPLAIN)
    assert result.exit_code == 0, result.output
    assert "client-1, up at 12 s" in result.stdout


@pytest.mark.long
@of(OLDEST, NEWEST)
def test_a_fork_is_made_where_other_code_may_make_it(kept: Path) -> None:
    made = coterie("fork", kept, *FORK, "--anyway")
    assert made.exit_code == 0, made.output
    assert f"{kept} has no checkpoint at or before --at: the fork runs from the start" in made.stderr
    [fork] = [each for each in kept.parent.iterdir() if each != kept]
    found = load_checked(fork)
    assert found.summary()["fork"] == {"of": kept.name, "at": 15.0}
    assert found.scan("parent").collect()["time"].to_list()[0] > 15
    assert coterie("report", fork).exit_code == 0


@of(OLDEST)
def test_that_the_code_is_another_is_said(kept: Path) -> None:
    explained = coterie("explain", kept, *EXPLAIN)
    assert f"this replay may differ from the run in {kept}: " in explained.stderr
    assert "the code of coterie was d3bdace7 and is now " in explained.stderr
    forked = coterie("fork", kept, *FORK)
    assert forked.exit_code == 2, forked.output
    assert f"{kept} cannot continue exactly: the clients' data was not recorded and is now " in forked.stderr
    assert "the code of coterie was d3bdace7 and is now " in forked.stderr
    assert "; pass --anyway to continue" in forked.stderr
    assert list(kept.parent.iterdir()) == [kept]


@of("0.2.0/gossip")
def test_a_checkpoint_of_another_form_stops_who_resumes_and_not_who_forks(kept: Path) -> None:
    file = kept / "checkpoint-15.pt"
    resumed = coterie("resume", kept, "--until", "40 s", "--quiet")
    assert resumed.exit_code == 2
    assert f"{file} was written by another version of coterie; delete it to compute the run" in resumed.stderr
    forked = coterie("fork", kept, *FORK)
    assert f"not used: {file} was written by another version of coterie\n" in forked.stderr


@of("0.2.0/cobo")
@pytest.mark.parametrize("words", [("explain", *EXPLAIN), ("fork", *FORK)], ids=lambda words: words[0])
def test_a_scenario_of_keys_that_are_gone_is_refused_with_what_to_do(kept: Path, words: tuple[str, ...]):
    result = coterie(words[0], kept, *words[1:])
    assert result.exit_code == 2, result.output
    assert "protocol.gradients_when_behind = 1.0: unknown key; allowed: " in result.stderr
    assert f"{kept} is a run of coterie 0.2.0, commit 3740cc5f14b9, and this version cannot" in result.stderr
    assert "install that version to resume, fork or explain it, or use `coterie run`" in result.stderr


def test_all_are_listed_and_watched_as_finished(tmp_path: Path) -> None:
    for name in KEPT:
        copied(name, tmp_path)
    assert states_in(tmp_path / "runs") == ["finished"] * len(KEPT)
    assert [entry["bad"] for entry in state(tmp_path / "runs")["ended"]] == [[]] * len(KEPT)


@of(*KEPT)
def test_its_tables_are_those_of_today(kept: Path) -> None:
    run = front.load(kept)
    for table, schema in TABLES.items():
        frame = getattr(run, table)
        assert frame.columns == schema.names
    assert not run.metrics.is_empty()
    assert not run.events.is_empty()
    assert [evaluation.time for evaluation in run.evaluations] == [0.0, 10.0, 20.0, 30.0]
    assert run.summary["measure"] == "accuracy"
    assert run.summary["accuracy"]["mean"] > 0.5
    assert "accuracy" in repr(run)
    assert "<" in run._repr_html_()


# --- 0.2.0, which has hashes in place of checksums ----------------------------------------------------------


@of(OLDEST)
def test_without_checksums_a_changed_scenario_is_refused(kept: Path) -> None:
    with (kept / "scenario.toml").open("a") as file:
        file.write("# changed\n")
    result = coterie("report", kept)
    assert result.exit_code == 2
    assert (
        f"{kept / 'scenario.toml'} does not match summary.json: it was changed, or belongs to another run"
        in result.stderr
    )


@of(OLDEST)
@pytest.mark.parametrize("table", TABLES)
def test_without_checksums_a_table_of_another_run_is_refused(kept: Path, table: str) -> None:
    file = kept / f"{table}.parquet"
    shutil.copy(RELEASES / "0.2.0/cobo" / file.name, file)
    result = coterie("report", kept)
    assert result.exit_code == 2
    assert f"{file} belongs to another run: its trace hash is " in result.stderr


@of("0.2.0/cobo")
@pytest.mark.parametrize("table", TABLES)
def test_without_checksums_a_damaged_table_is_refused(kept: Path, table: str) -> None:
    file = kept / f"{table}.parquet"
    content, page = file.read_bytes(), pq.read_metadata(file).row_group(0).column(0)
    end = (page.dictionary_page_offset or page.data_page_offset) + page.total_compressed_size
    changed = content[: end - 1] + bytes([content[end - 1] ^ 0x40]) + content[end:]
    for damaged in (content[:-100], b"PAR1" * 9, changed):
        file.write_bytes(damaged)
        result = coterie("report", kept)
        assert result.exit_code == 2, (result.output, result.exception)
        assert f"{file} is not a table, or is damaged: " in result.stderr


@of(NEWEST)
def test_later_results_without_their_checksums_are_not_complete(kept: Path) -> None:
    (kept / "checksums.json").unlink()
    with pytest.raises(UserError, match=r"checksums\.json is missing, so these results are incomplete"):
        RunDirectory.load(kept)

"""Checkpoints that were altered, cut off, or are of another version."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sim.errors import UserError
from sim.results.store.output_dir import CHECKPOINT
from sim.run.resume import checkpoint
from sim.run.resume.resuming import ResumableRun
from tests.resume.same import checkpoint_in
from tests.resume.test_resume import coterie
from tests.simulation.worlds import QUADRATIC, write

QUIET = ["--quiet", "--device", "cpu"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of 4 s, with checkpoints at 2 s and at the end."""
    options = ["--set", "run.duration=4 s", "--set", "run.evaluate_every=1 s", "--checkpoint-at", "2 s"]
    result = coterie("run", write(tmp_path, QUADRATIC), "--out", tmp_path / "runs", *options, *QUIET)
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "runs").iterdir()
    return path


def flip(file: Path) -> None:
    """Alter four bytes of the numbers that somebody held."""
    at = checkpoint_in(file.parent)
    there = max(at.rows.values(), key=lambda each: each.rows.numel())
    raw = bytearray(file.read_bytes())
    place = raw.index(there.rows.numpy().tobytes())
    for byte in range(place, place + 4):
        raw[byte] ^= 0x3F
    file.unlink()  # what is mapped into memory stays as it is
    file.write_bytes(raw)


def test_numbers_that_were_altered_are_refused(results: Path) -> None:
    flip(results / CHECKPOINT)
    with pytest.raises(UserError, match="checksum"):
        checkpoint_in(results)
    (results / "checkpoint-2.pt").unlink()
    result = coterie("resume", results, "--until", "6 s", *QUIET)
    assert result.exit_code == 2
    assert f"{results / CHECKPOINT} is damaged (its checksum differs); delete it to" in result.stderr


def test_what_is_said_beside_the_numbers_is_checked_too(results: Path) -> None:
    contents = torch.load(results / CHECKPOINT, weights_only=True)
    torch.save(contents | {"flushes": contents["flushes"] + 1}, results / CHECKPOINT)
    with pytest.raises(UserError, match="checksum"):
        checkpoint_in(results)


def test_a_run_that_finds_other_numbers_ends_unless_it_may_go_on(results: Path) -> None:
    (results / CHECKPOINT).unlink()
    (results / "checkpoint-2.pt").rename(results / CHECKPOINT)
    at = checkpoint_in(results)
    rows = {width: there._replace(rows=there.rows + 1) for width, there in at.rows.items()}
    replace(at, rows=rows).write(results / CHECKPOINT)
    result = coterie("resume", results, "--until", "6 s", *QUIET)
    assert result.exit_code == 2
    assert "the evaluation at 3 s has different models" in result.stderr
    assert coterie("resume", results, "--until", "6 s", "--anyway", *QUIET).exit_code == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut off", "altered"])
def test_another_one_that_is_intact_is_used(results: Path, how: str) -> None:
    file = results / CHECKPOINT
    if how == "altered":
        flip(file)
    else:
        file.write_bytes(file.read_bytes()[:1000])
    earlier = ResumableRun.find(results)
    assert earlier.time_s == 2
    [line] = earlier.unusable
    assert line.startswith(f"{file} is damaged (")
    result = coterie("fork", results, "--at", "3 s", "--set", "network.loss=0.5", *QUIET)
    assert result.exit_code == 0, result.output
    assert (f"not used: {file} is damaged (" in result.stderr) == (how == "cut off")  # else its time is known


def test_one_of_another_version_is_not_called_damaged(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_FORM", 1 + checkpoint._FORM)
    (results / "checkpoint-2.pt").unlink()
    with pytest.raises(UserError, match=f"{CHECKPOINT} was written by another version of coterie; delete it"):
        ResumableRun.find(results)


FORM = {"form": checkpoint._FORM}
FORK = ("fork", "--at", "3 s", "--set", "network.loss=0.5", *QUIET)
RESUME = ("resume", "--until", "6 s", *QUIET)
EXPLAIN = ("explain", "--at", "3 s", "--client", "0")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "name"),
    [
        *((FORK, name) for name in ("metrics.parquet", "summary.json", "scenario.toml")),
        *((RESUME, name) for name in ("summary.json", "scenario.toml", "provenance.json")),
        *((EXPLAIN, name) for name in ("summary.json", "scenario.toml", "provenance.json", "reads.log")),
    ],
)
@pytest.mark.parametrize("content", [b"", b"{}", None], ids=["empty", "another", "half"])
def test_what_results_say_is_theirs_or_refused(
    results: Path, words: tuple[str, ...], name: str, content: bytes | None
) -> None:
    file = results / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if content is None else content)
    result = coterie(words[0], results, *words[1:])
    assert result.exit_code == 2, (result.output, result.exception)
    assert f"{file} does not match checksums.json" in result.stderr


@pytest.mark.parametrize(
    "content", [{"form": checkpoint._FORM}, {"form": checkpoint._FORM, "rows": {1: 2}}, [1], "text"]
)
def test_what_is_no_checkpoint_is_not_taken_for_one(results: Path, content: object) -> None:
    torch.save(content, results / CHECKPOINT)
    (results / "checkpoint-2.pt").unlink()
    assert f"{results / CHECKPOINT} is damaged" in coterie("resume", results, *RESUME[1:]).stderr


@pytest.mark.parametrize("how", ["pipe", "folder", "terabyte"])
def test_a_checkpoint_that_is_no_file(results: Path, how: str) -> None:
    file = results / CHECKPOINT
    (results / "checkpoint-2.pt").unlink()
    file.unlink()
    if how == "pipe":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    result = coterie("resume", results, *RESUME[1:])
    assert (result.exit_code, f"{file} is damaged (" in result.stderr) == (2, True), result.exception

"""`coterie pretrain`: what it writes and says, and what it refuses."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.files.input_file import InputFile
from sim.learning.language import pretraining
from sim.learning.language.base import load_base

SMALL = 'corpus = "corpus.txt"\nwidth = 8\ndepth = 1\nheads = 2\ncontext = 8\nsteps = 4\nbatch_size = 2\n'


def pretrain(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, *options: str) -> Result:
    monkeypatch.chdir(folder)
    (folder / "corpus.txt").write_text("the cat sat on the mat. " * 9)
    if text is None:
        return CliRunner().invoke(app, ["pretrain", *options])
    (folder / "base.toml").write_text(text)
    return CliRunner().invoke(app, ["pretrain", "base.toml", *options])


def test_it_writes_a_base_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\n', "--quiet")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("mine.safetensors: loss 5.")
    path = tmp_path / "mine.safetensors"
    assert load_base(InputFile("model.base", path)).shape.width == 8
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    before = path.read_bytes()
    again = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\n')
    assert again.exit_code == 2
    assert (
        'base.toml: out = "mine.safetensors": already exists; pass --overwrite to replace it' in again.output
    )
    replaced = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\nseed = 2\n', "--overwrite")
    assert replaced.exit_code == 0 and path.read_bytes() != before


def test_without_settings_it_is_one_in_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[pretraining.Pretraining] = []

    def noted(settings: pretraining.Pretraining, *others: object) -> tuple[Path, float]:
        asked.append(settings)
        return Path(settings.out), 1.5

    monkeypatch.setattr(pretraining, "pretrain", noted)
    result = pretrain(tmp_path, monkeypatch, None)
    assert result.exit_code == 0, result.output
    assert (asked[0].out, asked[0].corpus) == ("english.safetensors", "python-documentation")


def test_the_base_hangs_on_no_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, train, before = [], pretraining._train, torch.get_num_threads()

    def noted(*given: Any) -> float:
        found.append(torch.get_num_threads())
        return train(*given)

    monkeypatch.setattr(pretraining, "_train", noted)
    torch.set_num_threads(2)
    try:
        assert pretrain(tmp_path, monkeypatch, SMALL).exit_code == 0
        assert (found, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_a_signal_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "_train", interrupted)
    result = pretrain(tmp_path, monkeypatch, SMALL)
    assert result.exit_code == 130 and "interrupted; no file was written" in result.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["base.toml", "corpus.txt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "width = 8\nwide = 3\n",
            "base.toml: wide = 3: unknown key; allowed: out, corpus, tokenizer",
        ),
        ("heads = 3\n", "base.toml: heads = 3: must divide the width, 128"),
        ("steps = 0\n", "base.toml: steps = 0: must be "),
        ('out = "base.pt"\n', 'base.toml: out = "base.pt": must end in .safetensors'),
        ("steps = \n", "base.toml: not valid TOML"),
        ('corpus = "nowhere.txt"\n', 'base.toml: corpus = "nowhere.txt": no such file in the current folder'),
        ("corpus = []\n", "base.toml: corpus = "),
    ],
)
def test_what_is_no_setting_is_refused(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = pretrain(tmp_path, monkeypatch, text)
    assert result.exit_code == 2, result.output
    assert problem in result.output
    assert not list(tmp_path.glob("*.safetensors"))


def _umask() -> int:
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- where it cannot be written -------------------------------------------------------------------------


@pytest.mark.parametrize("out", ["nowhere/mine.safetensors", "folder.safetensors", "base.toml/x.safetensors"])
def test_where_it_cannot_be_written_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    monkeypatch.setattr(pretraining, "_train", lambda *_: pytest.fail("it is trained"))
    result = pretrain(tmp_path, monkeypatch, SMALL + f'out = "{out}"\n', "--overwrite", "--quiet")
    assert result.exit_code == 2, result.output
    assert f'out = "{out}": ' in result.output


@pytest.mark.parametrize("where", ["read-only", "too small"])
def test_a_folder_or_disk_that_takes_no_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Root may write anywhere, so the system's answers are made up."""
    monkeypatch.setattr(pretraining, "_train", lambda *_: pytest.fail("it is trained"))
    if where == "read-only":

        def refuse(*_: object, **__: object) -> str:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.mkdtemp", refuse)
        problem = "cannot be written: Permission denied"
    else:
        monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 7))
        problem = "bytes, but the disk has 7"
    result = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\n', "--quiet")
    assert result.exit_code == 2, result.output
    assert 'out = "mine.safetensors": ' in result.output and problem in result.output


def test_a_disk_that_became_full_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed is kept elsewhere."""
    save, elsewhere = pretraining.save_base, tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))

    def full(path: Path, *others: Any) -> None:
        if path.is_relative_to(elsewhere):
            save(path, *others)
        else:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pretraining, "save_base", full)
    result = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\n', "--quiet")
    [kept] = elsewhere.glob("*/mine.safetensors")
    assert result.exit_code == 1
    assert f"mine.safetensors: move {kept} there" in result.output
    assert load_base(InputFile("model.base", kept)).shape.width == 8


def test_a_disk_that_is_full_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pretraining, "save_base", full)
    result = pretrain(tmp_path, monkeypatch, SMALL + 'out = "mine.safetensors"\n', "--quiet")
    assert result.exit_code == 2
    assert "cannot be written: No space left on device; " in result.output
    assert not isinstance(result.exception, OSError)

"""Damaged results, sweeps and checkpoints, and the commands that read them or find them in their way."""

import json
import shutil
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.fuzz import spoil
from tests.fuzz.case import Commands
from tests.studies.worlds import STUDY

RESULTS = "finished-runs"  # beside the data: results of runs, each with the scenario that it came from
SWEEP = "finished-sweep"  # a sweep's results, in a folder `runs` beside its study
_KEPT_WHEN_KILLED = ("scenario.toml", "provenance.json", "reads.log", "parent.parquet")


def _copied(rng: Random) -> Path:
    """The results of a run in the folder `runs`, and its scenario."""
    source = rng.choice(sorted(path for path in Path("data", RESULTS).iterdir() if path.is_dir()))
    shutil.copytree(source, "runs", symlinks=True)
    Path("runs", "scenario.toml").rename("scenario.toml")
    return next(path for path in Path("runs").iterdir() if path.is_dir())


def results(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Finished results with a spoiled table, summary or scenario, or with a file missing or replaced."""
    directory = _copied(rng)
    run, other = str(directory), "another"
    if changes and rng.random() < 0.3:
        shutil.copytree(directory, other)
    words = [spoiled(directory, rng) for _ in range(changes)]
    rerun = ["run", "scenario.toml", "--quiet", *rng.choice(([], ["--overwrite"]))]
    commands = [
        ["report", run],
        ["report", run],
        ["compare", run, *([other] if Path(other).is_dir() else [])],
        ["explain", run, "--at", "500 ms", "--client", "0"],
        ["explore", run, *rng.choice(([], ["--no-replay"], ["--at", "500 ms", "--client", "0"]))],
        ["explore", run, other if Path(other).is_dir() else run, "--no-replay"],
        ["runs", "runs"],
        ["export", run],
        _going_on(run, rng),
        rerun,
    ]
    first = rng.choice(commands)
    return words, [first, ["report", run]] if first is rerun else [first]


def _going_on(run: str, rng: Random) -> list[str]:
    fork = ["fork", run, "--at", rng.choice(("1 s", "1500 ms")), "--set", "network.loss=0.5", "--quiet"]
    return rng.choice((["resume", run, "--until", "3 s", "--quiet"], fork))


def checkpoints(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A run that continues from a spoiled checkpoint or log, some of them from what a killed process left."""
    directory = _copied(rng)
    names = ["reads.log", *sorted(path.name for path in directory.glob("checkpoint*.pt"))]
    if rng.random() < 0.5:
        for path in directory.iterdir():
            if path.name not in (*_KEPT_WHEN_KILLED, *names):
                path.unlink()
        hidden = directory.rename(directory.with_name(f".{directory.name}.0123abcd"))
        names += ["scenario.toml", "provenance.json"]
    else:
        hidden = directory
    words = [_spoiled_file(hidden / rng.choice(names), rng) for _ in range(changes)]
    explain = ["explain", str(directory), "--at", "500 ms", "--client", "0"]
    return words, [explain if rng.random() < 0.2 and hidden is directory else _going_on(str(directory), rng)]


_CLIENTS = ("0", "client-1", "client-0", "-1", "", "99", "client-", "x" * 5000, "0,1", "nan", "٣", "9" * 5000)
_TIMES = (
    "1 s",
    "500 ms",
    "0 s",
    "1500 ms",
    "2 s",
    "1e3 s",
    "nan",
    "",
    "-1 s",
    "5",
    "1" * 400 + " s",
    "1e-300 s",
)
_MODELS = ("model", "global", "", "model.0", "\U0001f600", "x" * 5000, "../x", "-")
_FOLDERS = (
    "files",
    ".",
    "",
    "nowhere/at/all",
    "/dev/null",
    "scenario.toml",
    "x" * 300,
    "/proc",
    "日本",
    "-x",
)


_FORMATS = ("peft", "safetensors", "", "pickle")


def exports(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Models of a run, exported with odd options, or from a spoiled checkpoint, log, table or scenario."""
    directory = _copied(rng)
    options: list[str] = []
    words: list[str] = []
    parts = sorted(path.name for path in directory.iterdir() if path.is_file() and path.suffix != ".html")
    for _ in range(changes):
        match rng.choice(("file", "client", "at", "model", "out", "format")):
            case "file":
                words.append(_spoiled_file(directory / rng.choice(parts), rng))
                continue
            case option:
                odd = {
                    "client": _CLIENTS,
                    "at": _TIMES,
                    "model": _MODELS,
                    "out": _FOLDERS,
                    "format": _FORMATS,
                }[option]
                more = [f"--{option}={rng.choice(odd)}"]
        options += more
        words.append(spoil.shown(more))
    return words, [["export", str(directory), *options]]


_NAMES = (
    *("mine", "two_words", "Mine", "", " ", "../up", "/etc/mine", "a/b", "class", "json", "torch", "1st"),
    *("_x", "test_mine", "x" * 300, "日本", "a\nb", "--out", "mine.py", "\ud800", "coterie"),
)


def inits(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Files for new methods with odd names, in odd folders, or twice."""
    commands: Commands = [["init", "mine"]] if not changes else []
    for _ in range(changes):
        options = [f"--out={rng.choice(_FOLDERS)}"] if rng.random() < 0.7 else []
        commands.append(["init", *options, "--", rng.choice(_NAMES)])
    return [spoil.shown(commands)] * bool(changes), commands


def sweeps(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A sweep with a spoiled list of its runs, or spoiled runs: compared, or run again and then compared."""
    for path in Path("data", SWEEP).iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, path.name)
    folders = sorted(path for path in Path("runs").iterdir() if path.is_dir())
    index = next(path for path in folders if (path / "sweep.json").is_file())
    words = [_spoiled_of_sweep(rng.choice((index, rng.choice(folders))), rng) for _ in range(changes)]
    compare = ["compare", str(index)]
    again = ["sweep", "study.toml", "--jobs", "1", "--quiet"]
    return words, rng.choice(([compare], [compare], [again, compare]))


def _spoiled_of_sweep(folder: Path, rng: Random) -> str:
    marks = [folder / name for name in ("sweep.json", "cell.json") if (folder / name).is_file()]
    return _spoiled_file(rng.choice(marks), rng) if marks and rng.random() < 0.6 else spoiled(folder, rng)


def study(folder: Path) -> None:
    """The study of a sweep of two runs that take a moment."""
    folder.mkdir(parents=True)
    text = STUDY[: STUDY.index("[sweep]")] + "[sweep]\nseeds = 2\n"
    (folder / "study.toml").write_text(text, encoding="utf-8")


# --- damage -------------------------------------------------------------------------------------------------


def spoiled(folder: Path, rng: Random) -> str:
    """Damage a file of a folder, or swap two."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []  # not one that was made a file before
    path, other = (rng.choice(there or [folder]) for _ in range(2))
    alike = path != other and path.suffix == other.suffix and path.is_file() and other.is_file()
    if not alike or rng.random() > 0.2:
        return _spoiled_file(path, rng)
    kept = path.rename(folder / "kept")  # one may be too large to be read
    other.rename(path)
    kept.rename(other)
    return f"{path.name} and {other.name} swapped"


def _spoiled_file(path: Path, rng: Random) -> str:
    """Damage a file: as what it is, as bytes, or by putting something else into its place."""
    if not path.is_file() or path.stat().st_size > 1e8 or rng.random() < 0.25:
        return spoil.replace_file(path, rng, special=True)
    try:
        if rng.random() < 0.7 and (how := _spoiled_content(path, rng)) is not None:
            return f"{path.name}: {how}"
    except Exception:
        pass  # an earlier change has left nothing that can be read
    content, how = spoil.damaged_bytes(path.read_bytes(), rng)
    path.write_bytes(content)
    return f"{path.name}: {how}"


def _spoiled_content(path: Path, rng: Random) -> str | None:
    if path.suffix == ".json":
        table = json.loads(path.read_text(encoding="utf-8"))
        how = spoil.damaged_table(table, rng)
        path.write_text(json.dumps(table, default=str), encoding="utf-8", errors="replace")
        return how
    if path.suffix == ".pt":
        table = torch.load(path, weights_only=True)
        how = spoil.damaged_table(table, rng)
        torch.save(table, path)
        return how
    if path.suffix == ".parquet":
        found = _tables(pq.read_table(path), rng)  # with what it says of itself beside its rows
        how = rng.choice(list(found))
        pq.write_table(found[how], path)
        return how
    return None


def _tables(table: pa.Table, rng: Random) -> dict[str, pa.Table]:
    some = rng.randrange(len(table.column_names))
    field = table.schema[some]
    floats = [number for number, each in enumerate(table.schema) if pa.types.is_floating(each.type)]
    place = rng.choice(floats)
    odd: Any = pa.array([rng.choice((float("nan"), float("inf"), -1.0, 1e300))] * len(table))
    return {
        "half its rows": table.slice(0, len(table) // 2),
        "no rows": table.slice(0, 0),
        f"no {field.name}": table.drop_columns([field.name]),
        f"nulls in {field.name}": table.set_column(some, field, pa.nulls(len(table), field.type)),
        f"odd numbers in {table.schema[place].name}": table.set_column(place, table.schema[place], odd),
        f"dates in {field.name}": table.set_column(
            some, field.name, pa.array([date(2020, 2, 29)] * len(table))
        ),
    }

"""Result directories with damaged files, for `report` and for a run that finds them in its way."""

import json
import shutil
from pathlib import Path
from random import Random

import polars as pl

from tests.fuzz import spoil
from tests.fuzz.case import Commands

RESULTS = "finished-runs"  # beside the data: results of runs, each with the scenario that it came from


def results(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Finished results with a spoiled table, summary or scenario, or with a file missing or replaced."""
    source = rng.choice(sorted(path for path in Path("data", RESULTS).iterdir() if path.is_dir()))
    shutil.copytree(source, "runs", symlinks=True)
    Path("runs", "scenario.toml").rename("scenario.toml")
    directory = next(path for path in Path("runs").iterdir() if path.is_dir())
    rerun = ["run", "scenario.toml", "--quiet", *rng.choice(([], ["--overwrite"]))]
    commands = [rerun] if rng.random() < 0.2 else []
    words = [_spoiled(directory, rng) for _ in range(changes)]
    return words, [*commands, ["report", str(directory)]]


def _spoiled(directory: Path, rng: Random) -> str:
    path, other = (rng.choice(sorted(directory.iterdir()) or [directory]) for _ in range(2))
    if not (path.is_file() and other.is_file()) or rng.random() < 0.15:
        return spoil.replace_file(path, rng)
    if path.suffix == other.suffix and rng.random() < 0.2:
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{path.name} and {other.name} swapped"
    try:
        if path.suffix == ".json" and rng.random() < 0.7:
            table = json.loads(path.read_text(encoding="utf-8"))
            how = spoil.damaged_table(table, rng)
            path.write_text(json.dumps(table, default=str), encoding="utf-8", errors="replace")
            return f"{path.name}: {how}"
        if path.suffix == ".parquet" and rng.random() < 0.7:
            frame = pl.read_parquet(path)
            some = rng.choice(frame.columns)
            found = {
                "half its rows": frame.head(len(frame) // 2),
                "no rows": frame.clear(),
                f"no {some}": frame.drop(some),
                f"nulls in {some}": frame.with_columns(pl.lit(None, frame.schema[some]).alias(some)),
            }
            how = rng.choice(list(found))
            found[how].write_parquet(path)
            return f"{path.name}: {how}"
    except (ValueError, pl.exceptions.PolarsError):
        pass  # an earlier change has left nothing that can be read
    content, how = spoil.damaged_bytes(path.read_bytes(), rng)
    path.write_bytes(content)
    return f"{path.name}: {how}"

"""docs/papers.md: every table, figure and algorithm of the five papers, with ours beside it.

`docs/papers.toml` says what there is. What studies give is kept in docs/papers/STUDY-DIGEST.csv, a number a
row; the digest is that of the study and its scenario. Where it has changed since, the page says so.
"""

import csv
import hashlib
import json
import math
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docs.build.scenarios import markdown_table
from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.index import DONE, INDEX, WAITING, SweepIndex, Value
from sim.studies.statistics import estimate
from sim.studies.study import is_share, load_study

ROOT = Path(__file__).parents[2]
DOCS, KEPT, STUDIES = ROOT / "docs", ROOT / "docs/papers", ROOT / "scenarios/studies/papers"
INTRODUCTION = """\
# The papers, row by row

Every algorithm, table and figure of the five papers: the paper's result, ours, and the command that gives it.
`make papers` writes this page from `docs/papers.toml` and what studies gave. Accuracy in %, with half of the
95 % interval over seeds. Sizes are smaller than the papers', so compare the order of the methods, which is
what *agrees* is about. A row names its own command: studies have seeds and settings of their own, also those
of one table.
*Untuned*: a baseline below training alone, whose settings nobody has looked for. *Old*: the study has changed
since it ran. The pages behind the links say what was measured, and how. `--only method=local` runs one method
of a study, by the name in its file, and `--seeds 51,` one seed.
"""


class Kept(NamedTuple):
    """What the runs of a case gave: a number by seed, and whether the study is still the one that ran."""

    values: dict[int, float]
    is_current: bool


def digest(study: str) -> str:
    """Eight hexadecimal digits that change with what a study or its scenario says, comments apart."""
    path = STUDIES / f"{study}.toml"
    contents = tomllib.loads(path.read_text(encoding="utf-8"))
    base = (path.parent / contents["sweep"]["scenario"]).read_text(encoding="utf-8")
    both = json.dumps([contents, tomllib.loads(base)], sort_keys=True)
    return hashlib.blake2b(both.encode(), digest_size=4).hexdigest()


def keep(runs: Path) -> None:
    """Take what the studies gave from their latest results in the folder `runs`, if these have their axes.

    A case goes by its value on the study's first axis. A study that still runs is left as it is.
    """
    KEPT.mkdir(exist_ok=True)
    for path in sorted(STUDIES.glob("*.toml")):
        planned = plan(path)
        found = [index.parent for index in runs.glob(f"{planned.name}-sweep-*/{INDEX}")]
        found = [folder for folder in found if _has_ended(SweepIndex.read(folder), planned.axes)]
        if not found:
            continue
        results = max(found, key=lambda folder: (folder / INDEX).stat().st_mtime)
        comparison = Comparison(load_study([results]))
        rows = [
            [next(iter(group.texts.values())), run.seed, metric, run.number(metric)]
            for metric in comparison.metrics
            for group in comparison.groups
            for run in group.runs
            if math.isfinite(run.number(metric))
        ]
        for earlier in KEPT.glob(f"{path.stem}-????????.csv"):
            earlier.unlink()
        with (KEPT / f"{path.stem}-{digest(path.stem)}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["case", "seed", "metric", "value"], *rows])


def _has_ended(index: SweepIndex, axes: dict[str, tuple[Value, ...]]) -> bool:
    """Whether a sweep has these axes, some results, and no run that still waits."""
    states = {cell.state for cell in index.cells}
    return index.axes == axes and DONE in states and WAITING not in states


@cache
def _table(study: str) -> tuple[tuple[dict[str, str], ...], bool]:
    """The rows that are kept of a study, none before it has run, and whether they are of the present one."""
    found = sorted(KEPT.glob(f"{study}-????????.csv"))
    if not found:
        return (), True
    with found[-1].open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file)), found[-1].stem.endswith(digest(study))


def kept(study: str, case: str, metric: str) -> Kept:
    """What a case of a study gave, without values before the study has run."""
    rows, is_current = _table(study)
    own = [row for row in rows if (row["case"], row["metric"]) == (case, metric)]
    return Kept({int(row["seed"]): float(row["value"]) for row in own}, is_current)


def papers() -> dict[str, Any]:
    """The contents of docs/papers.toml."""
    return tomllib.loads((DOCS / "papers.toml").read_text(encoding="utf-8"))


def is_met(row: dict[str, Any]) -> bool:
    """Whether there is something of ours: a row that a study has not run yet has none."""
    if "needs" in row:
        return False
    return all(kept(row["study"], case, _metric(row)).values for case in cases(row))


def cases(row: dict[str, Any]) -> list[str]:
    """The cases of its study that a row shows: `case`, or each of `cases`; none without a study."""
    if "study" not in row:
        return []
    return row["cases"] if "cases" in row else [row["case"]]


def _metric(row: dict[str, Any]) -> str:
    return str(row.get("metric", "accuracy"))


def _ours(row: dict[str, Any]) -> str:
    if "study" not in row:
        return str(row.get("ours", ""))
    if not is_met(row):
        return ""
    if "case" in row:
        return _interval(row, row["case"])
    return "; ".join(f"{case}: {_interval(row, case)}" for case in row["cases"])


def _interval(row: dict[str, Any], case: str) -> str:
    metric = _metric(row)
    values = [*kept(row["study"], case, metric).values.values()]
    found, scale = estimate(values), 100 if is_share(metric) or metric == "better_than_alone" else 1
    digits = 1 if scale == 100 else 2
    mean = f"{found.mean * scale:.{digits}f}"
    if len(values) == 1:
        return f"{mean} (1 seed)"
    return f"{mean} ± {(found.high - found.mean) * scale:.{digits}f} ({len(values)} seeds)"


def _verdict(row: dict[str, Any], alone: str | None) -> str:
    if "needs" in row:
        return f"- ({row['needs']})"
    if not is_met(row):
        return "- (the study has yet to run)"
    said = [row["agrees"]]
    if "study" in row:
        metric = _metric(row)
        local = kept(row["study"], alone or "", metric).values
        found = [kept(row["study"], case, metric) for case in cases(row)]
        is_one = metric == "accuracy" and "case" in row
        if is_one and local and _mean(found[0].values) < _mean(local):
            said.append("untuned")
        if not all(each.is_current for each in found):
            said.append("old")
    return "; ".join(said)


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)


def command(row: dict[str, Any]) -> str:
    """What runs a row; "" where nothing does."""
    if "study" in row:
        return f"coterie sweep scenarios/studies/papers/{row['study']}.toml"
    return str(row.get("command", ""))


def page() -> str:
    """The text of docs/papers.md."""
    return "\n".join([INTRODUCTION, *_parts()])


def _parts() -> Iterator[str]:
    found = papers()
    counts = [
        [f"[{name}](fidelity/{paper['page']})", f"{len(paper['rows'])}", f"{sum(map(is_met, paper['rows']))}"]
        for name, paper in found.items()
    ]
    total = [str(sum(int(row[place]) for row in counts)) for place in (1, 2)]
    yield markdown_table(["", "rows", "with a result here"], [*counts, ["all", *total]])
    for name, paper in found.items():
        rows = [
            [
                row["what"],
                row.get("theirs", ""),
                _ours(row),
                _verdict(row, row.get("local", paper.get("local"))),
                _code(command(row)),
            ]
            for row in paper["rows"]
        ]
        yield f"## {name}\n"
        yield markdown_table(["what", "paper", "ours", "agrees", "command"], rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main(arguments: Sequence[str]) -> None:
    """Write the page; `arguments`: the folder of results, runs by default."""
    keep(Path(*arguments or ["runs"]))
    (DOCS / "papers.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Generator of docs/papers.md: the tables, figures and algorithms of the five papers, and coterie's results.

`docs/papers.toml` lists the items. The results of the studies are stored in docs/papers/STUDY-DIGEST.csv, one
value per row. DIGEST is the hash of the study and its scenario. The page marks results of an older digest.
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
# Compare coterie with the papers

This page is for readers who want to compare coterie with the five papers. It lists every algorithm, table and
figure. Each row gives the paper's result, coterie's result, and the command that reproduces it.
`make papers` generates this page from `docs/papers.toml` and the results of the studies.

Accuracies are in %, with half of the 95 % interval over seeds. Experiments here are smaller than the papers'.
Compare the order of the methods instead; the column *agreement* refers to this order. Each row names its
command, because studies differ in seeds and settings, even studies of the same table.

*Untuned* marks a baseline below local training with untuned settings. *Old* marks a result from
before the latest change of its study. The linked pages describe the measurements. To run one method of a
study, pass `--only method=local`, with the name in the study's file. To run one seed, pass `--seeds 51,`.
"""


class Kept(NamedTuple):
    """Values of a case by seed, and whether the study is unchanged since its run."""

    values: dict[int, float]
    is_current: bool


def digest(study: str) -> str:
    """Return eight hexadecimal digits that depend on a study and its scenario, except for their comments."""
    path = STUDIES / f"{study}.toml"
    contents = tomllib.loads(path.read_text(encoding="utf-8"))
    base = (path.parent / contents["sweep"]["scenario"]).read_text(encoding="utf-8")
    both = json.dumps([contents, tomllib.loads(base)], sort_keys=True)
    return hashlib.blake2b(both.encode(), digest_size=4).hexdigest()


def copy_results(runs: Path) -> None:
    """Copy the studies' latest results from the folder `runs`, if they have the axes of the study.

    The first axis of a study names its cases. Results of an unfinished study are not copied.
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
    """Return whether a sweep has these axes, at least one result, and no waiting run."""
    states = {cell.state for cell in index.cells}
    return index.axes == axes and DONE in states and WAITING not in states


@cache
def _table(study: str) -> tuple[tuple[dict[str, str], ...], bool]:
    """Return the stored rows of a study (none before its first run), and whether they are current."""
    found = sorted(KEPT.glob(f"{study}-????????.csv"))
    if not found:
        return (), True
    with found[-1].open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file)), found[-1].stem.endswith(digest(study))


def kept(study: str, case: str, metric: str) -> Kept:
    """Return the results of a case of a study, without values before the first run of the study."""
    rows, is_current = _table(study)
    own = [row for row in rows if (row["case"], row["metric"]) == (case, metric)]
    return Kept({int(row["seed"]): float(row["value"]) for row in own}, is_current)


def papers() -> dict[str, Any]:
    """Return the contents of docs/papers.toml."""
    return tomllib.loads((DOCS / "papers.toml").read_text(encoding="utf-8"))


def is_met(row: dict[str, Any]) -> bool:
    """Return whether a row has a result of coterie: a row whose study has not run has none."""
    if "needs" in row:
        return False
    return all(kept(row["study"], case, _metric(row)).values for case in cases(row))


def cases(row: dict[str, Any]) -> list[str]:
    """Return the cases of a row's study: `case`, or each of `cases`; none without a study."""
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
        return f"- (needs {row['needs']})"
    if not is_met(row):
        return "- (the study has yet to run)"
    parts = [row["agrees"]]
    if "study" in row:
        metric = _metric(row)
        local = kept(row["study"], alone or "", metric).values
        found = [kept(row["study"], case, metric) for case in cases(row)]
        is_one = metric == "accuracy" and "case" in row
        if is_one and local and _mean(found[0].values) < _mean(local):
            parts.append("untuned")
        if not all(each.is_current for each in found):
            parts.append("old")
    return "; ".join(parts)


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)


def command(row: dict[str, Any]) -> str:
    """Return the command that reproduces a row; "" if there is none."""
    if "study" in row:
        return f"coterie sweep scenarios/studies/papers/{row['study']}.toml"
    return str(row.get("command", ""))


def page() -> str:
    """Return the text of docs/papers.md."""
    return "\n".join([INTRODUCTION, *_parts()])


def _parts() -> Iterator[str]:
    found = papers()
    counts = [
        [f"[{name}](fidelity/{paper['page']})", f"{len(paper['rows'])}", f"{sum(map(is_met, paper['rows']))}"]
        for name, paper in found.items()
    ]
    total = [str(sum(int(row[column]) for row in counts)) for column in (1, 2)]
    yield markdown_table(["paper", "rows", "rows with a result"], [*counts, ["all", *total]])
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
        yield markdown_table(["item", "paper", "coterie", "agreement", "command"], rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main(arguments: Sequence[str]) -> None:
    """Write the page from the results in the folder that `arguments` names, `runs` by default."""
    copy_results(Path(*arguments or ["runs"]))
    (DOCS / "papers.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

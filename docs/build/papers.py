"""Generator of docs/papers.md, and of the table in docs/fidelity/README.md.

docs/papers.md has the tables, figures and algorithms of the five papers, and coterie's results.
`docs/papers.toml` lists the items. The results of the studies are stored in docs/papers/STUDY-DIGEST.csv, one
value per row. DIGEST is the hash of the study and its scenario. The page marks results of an older digest.
"""

import csv
import hashlib
import json
import math
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docs.build.claims import IN_PART, VERDICTS, YES, Claim, judge, overall, read_claim, read_side
from docs.build.scenarios import markdown_table
from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.index import DONE, INDEX, WAITING, SweepIndex, Value
from sim.studies.statistics import estimate
from sim.studies.study import is_share, load_study

NUMBER = re.compile(r"[0-9]+\.[0-9]+")  # a case may be named 1, but not 1.0
COUNTS = ("paper", "rows", "yes", "in part", "no", "without a result", "computed", "stated by hand")
ROOT = Path(__file__).parents[2]
DOCS, KEPT, STUDIES = ROOT / "docs", ROOT / "docs/papers", ROOT / "scenarios/studies/papers"
INDEX_PAGE, MARK, END_MARK = DOCS / "fidelity/README.md", "<!-- headlines -->", "<!-- end -->"
INTRODUCTION = """\
# Compare coterie with the papers

This page is for readers who want to compare coterie with the five papers. It lists their algorithms, tables
and figures; of FedeRiCo's paper, only the appendix was available. Each row gives the paper's result,
coterie's result, and the command that reproduces it. `make papers` generates this page from
`docs/papers.toml` and the results of the studies.

Accuracies are in %, with half of the 95% interval over seeds. Experiments here are smaller than the papers':
unless a row names its data, images are from Fashion-MNIST, with small networks. Compare the order of the
methods, not their figures. Each row names its command, because studies differ in seeds and settings, even
studies of the same table.

*Agreement* is `yes`, `in part` or `no`. It is computed for rows with a study, and stated by hand for other
rows. A computed verdict rests on claims: the order of the methods in the paper's table or text. The column
*why* lists the claims by their verdicts.

- `A > B` holds (*yes*) if the 95% interval of the differences of the same seeds is above 0, or if the
  difference is positive with each of at least three seeds. It holds *in part* if only the mean difference is
  positive.
- `A < B` is the reverse. Perplexities and losses are better if they are smaller.
- `A = B within 0.01` holds if the mean difference is at most 0.01, which is one point of accuracy.
- A row agrees if all its claims hold (*yes*), disagrees if none holds even in part (*no*), and otherwise
  agrees *in part*. If the experiment differs too much from the paper's, the row agrees at most *in part*.

*Tuned* marks settings that [tuning](how-to/tuning.md) selected, and *untuned* a row of a single method that
is below local training without them. *Old* marks a result from before the latest change of its study. The
linked pages describe the measurements. To run one method of a study, pass `--only method=local`, with the
name in the study's file. To run one seed, pass `--seeds 721,`.
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
    if not all(kept(row["study"], case, _metric(row)).values for case in cases(row)):
        return False
    return all(all(_sides(row, claim)) for claim in claims(row).values())


def cases(row: dict[str, Any]) -> list[str]:
    """Return the cases of a row's study: `case`, or each of `cases`; none without a study."""
    if "study" not in row:
        return []
    return row["cases"] if "cases" in row else [row["case"]]


def claims(row: dict[str, Any]) -> dict[str, Claim]:
    """Return the claims of a row by their text; none if its verdict is stated by hand."""
    return {text: read_claim(text) for text in row.get("claims", [])}


def _sides(row: dict[str, Any], claim: Claim) -> tuple[dict[int, float], dict[int, float]]:
    """Return the values of both sides of a claim by seed; a number is repeated for each seed."""
    metric = claim.metric or _metric(row)
    left, right = (kept(row["study"], *read_side(side, metric)).values for side in (claim.left, claim.right))
    if not right and NUMBER.fullmatch(claim.right):
        right = dict.fromkeys(left, float(claim.right))
    return left, right


def verdicts(row: dict[str, Any]) -> dict[str, str]:
    """Return the verdict on each claim of a row, by the text of the claim."""
    return {text: judge(claim, *_sides(row, claim)) for text, claim in claims(row).items()}


def verdict(row: dict[str, Any]) -> str:
    """Return yes, in part, or no, from the claims of a row or as stated by hand; "-" without a result.

    The verdict is at most "in part" if the experiment differs too much from the paper's.
    """
    if not is_met(row):
        return "-"
    found = overall(verdicts(row).values()) if "study" in row else str(row["agrees"])
    return IN_PART if found == YES and "differs" in row else found


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


def _why(row: dict[str, Any], alone: str | None) -> str:
    """Return the words beside a verdict: marks, reason, difference from the paper's experiment, claims."""
    if "needs" in row:
        return f"needs {row['needs']}"
    if not is_met(row):
        return "the study has yet to run"
    by_verdict = {
        word: ", ".join(f"`{text}`" for text, found in verdicts(row).items() if found == word)
        for word in VERDICTS
    }
    return "; ".join(
        [
            *_marks(row, alone),
            *([row["because"]] if "because" in row else []),
            *([f"other experiment: {row['differs']}"] if "differs" in row else []),
            *(f"{word}: {found}" for word, found in by_verdict.items() if found),
        ]
    )


def _marks(row: dict[str, Any], alone: str | None) -> list[str]:
    if "study" not in row:
        return []
    metric = _metric(row)
    local = kept(row["study"], alone or "", metric).values
    found = [kept(row["study"], case, metric) for case in cases(row)]
    is_one = metric == "accuracy" and "case" in row
    is_below = is_one and local and _mean(found[0].values) < _mean(local)
    is_tuned = all(_is_tuned(row["study"], case) for case in cases(row))
    is_old = not all(each.is_current for each in found)
    marks = {"tuned": is_tuned, "untuned": is_below and not is_tuned, "old": is_old}
    return [f"*{mark}*" for mark, holds in marks.items() if holds]


@cache
def _is_tuned(study: str, case: str) -> bool:
    """Return whether `coterie tune` selected the settings of a case."""
    contents = tomllib.loads((STUDIES / f"{study}.toml").read_text(encoding="utf-8"))
    of_case = [each for each in contents["sweep"]["case"] if each["name"] == case]
    return any(key.startswith("tuned.study=") for each in of_case for key in each.get("set", ()))


def _mean(values: dict[int, float]) -> float:
    """Return the mean of a row's values, which its cells round, too."""
    return estimate([*values.values()]).mean


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
    counts = [_counts(f"[{name}](fidelity/{paper['page']})", paper["rows"]) for name, paper in found.items()]
    total = _counts("all", [row for paper in found.values() for row in paper["rows"]])
    yield markdown_table(COUNTS, [*counts, total])
    for name, paper in found.items():
        rows = [
            [
                row["what"],
                row.get("theirs", ""),
                _ours(row),
                verdict(row),
                _why(row, row.get("local", paper.get("local"))),
                _code(command(row)),
            ]
            for row in paper["rows"]
        ]
        yield f"## {name}\n"
        yield markdown_table(["item", "paper", "coterie", "agreement", "why", "command"], rows)


def headlines() -> str:
    """Return the table of docs/fidelity/README.md: one row for each headline result of the papers."""
    columns = ["method", "item", "paper", "coterie", "alone, paper", "alone, coterie", "agreement"]
    return markdown_table(
        columns,
        [_headline(paper, row) for paper in papers().values() for row in paper["rows"] if "headline" in row],
    )


def _headline(paper: dict[str, Any], row: dict[str, Any]) -> list[str]:
    stated = {"alone": "local", "alone_metric": _metric(row), **row, **row["headline"]}
    ours, alone = (
        kept(row["study"], case, metric).values
        for case, metric in ((stated["case"], _metric(row)), (stated["alone"], stated["alone_metric"]))
    )
    return [
        f"[{stated['method']}]({paper['page']})",
        row["what"].partition(":")[0],
        stated["theirs"],
        f"{100 * _mean(ours):.1f}",
        stated["theirs_alone"],
        f"{100 * _mean(alone):.1f}",
        verdict(row),
    ]


def index_page() -> str:
    """Return docs/fidelity/README.md with its current table."""
    text = INDEX_PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARK)
    return f"{before}{MARK}\n{headlines()}{END_MARK}{rest.partition(END_MARK)[2]}"


def _counts(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return a row of the table of counts, in the order of `COUNTS`."""
    words = [verdict(row) for row in rows]
    computed = sum("study" in row and is_met(row) for row in rows)
    by_hand = sum("study" not in row and is_met(row) for row in rows)
    return [name, *map(str, (len(rows), *map(words.count, (*VERDICTS, "-")), computed, by_hand))]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main(arguments: Sequence[str]) -> None:
    """Write the pages from the results in the folder that `arguments` names, `runs` by default."""
    copy_results(Path(*arguments or ["runs"]))
    (DOCS / "papers.md").write_text(page(), encoding="utf-8")
    INDEX_PAGE.write_text(index_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

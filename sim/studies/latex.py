"""Tables of a comparison in LaTeX."""

from collections.abc import Sequence

from sim.results import text
from sim.studies.comparison import Comparison
from sim.studies.footnotes import DAGGER
from sim.studies.tables import (
    PLUS_MINUS,
    axis_labels,
    caption,
    cost_name_and_scope,
    interval_text,
    metric_column_head,
    over_clients_table,
    target_cost_text,
    target_text,
    with_footnote_marks,
)

_MATHEMATICS: dict[str, str | int | None] = {
    "\N{NO-BREAK SPACE}": "~",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
}
_MATHEMATICS |= {text.NOTHING: "--", PLUS_MINUS: r"$\pm$", DAGGER: r"$\dagger$"}
_SPECIAL: dict[str, str | int | None] = {character: f"\\{character}" for character in "&%$#_{}"}
_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _mathematics(shown: str, mark: str = "") -> str:
    return shown.translate(str.maketrans(_MATHEMATICS)) + (f"${mark}$" if mark else "")


def _escaped(words: str) -> str:
    return words.translate(str.maketrans(_SPECIAL))


def latex(comparison: Comparison) -> str:
    """Return a LaTeX table for booktabs, with a row per group and a column per metric and cost."""
    axes = axis_labels(comparison)
    heads = [*axes, *[metric_column_head(comparison, metric) for metric in comparison.metrics]]
    heads += [f"{cost_name_and_scope(kind)} to {target_text(comparison)}" for kind in comparison.kinds]
    rows = []
    for group in comparison.groups:
        cells = [_escaped(value) for value in group.texts.values()]
        for metric in comparison.metrics:
            line = comparison.line(group, metric)
            shown = _mathematics(interval_text(line.estimate, metric), "^{*}" if line.is_significant else "")
            cells.append(shown + _mathematics(with_footnote_marks("", comparison, group)))
        for target in comparison.targets_of(group):
            reached = f" ({target.count}/{len(group.runs)})" if target.count < len(group.runs) else ""
            cells.append(
                _mathematics(with_footnote_marks(target_cost_text(target) + reached, comparison, group))
            )
        rows.append(cells)
    return _tabular(caption(comparison), heads, len(axes), rows, _footnotes(comparison))


def robust_latex(comparison: Comparison) -> str:
    """Return the table of `over_clients_table` in LaTeX; empty if no metric is measured per client."""
    shown = over_clients_table(comparison)
    if shown is None:
        return ""
    words = len(shown.axes)
    rows = [[*map(_escaped, row[:words]), *map(_mathematics, row[words:])] for row in shown.rows]
    return _tabular(shown.note, [*shown.axes, *shown.heads], words, rows, _footnotes(comparison))


def _footnotes(comparison: Comparison) -> list[str]:
    return [_escaped(str(each)).replace(DAGGER, r"$\dagger$") for each in comparison.footnotes.lines]


def _protected(row: str) -> str:
    r"""Return a row that the end of the row before it, `\\` or `\midrule`, does not take for its argument."""
    return rf"\relax {row}" if row.startswith(("[", "*")) else row


def _tabular(
    note: str, heads: Sequence[str], words: int, rows: Sequence[Sequence[str]], footnotes: Sequence[str]
) -> str:
    """Return a table in LaTeX; the first `words` columns contain words, the others numbers."""
    return "\n".join(
        [
            f"% {note}",
            rf"\begin{{tabular}}{{{'l' * words + 'r' * (len(heads) - words)}}}",
            r"\toprule",
            " & ".join(map(_escaped, heads)) + r" \\",
            r"\midrule",
            *[_protected(" & ".join(row)) + r" \\" for row in rows],
            r"\bottomrule",
            *[
                rf"\multicolumn{{{len(heads)}}}{{p{{\linewidth}}}}{{\footnotesize {each}}} \\"
                for each in footnotes
            ],
            r"\end{tabular}",
            "",
        ]
    )

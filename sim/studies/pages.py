"""A comparison written to a folder: page, tables and pictures."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sim.errors import UserError
from sim.results.palette import FONT
from sim.studies.comparison import Comparison
from sim.studies.pictures import write_pictures
from sim.studies.tables import budgets_to_show, caption, latex, rows_to_show, targets_to_show, write_csv

PAGE = "comparison.html"


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write comparison.html, tables (CSV, LaTeX) and pictures (PNG, SVG); the page's path. UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = write_csv(comparison, folder)
        (folder / "table.tex").write_text(latex(comparison), encoding="utf-8")
        titles = write_pictures(comparison, folder)
        path = folder / PAGE
        names = [file.name for file in files] + ["table.tex"]
        path.write_text(_page(comparison, folder, titles, names), encoding="utf-8")
        return path
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def _page(comparison: Comparison, folder: Path, titles: dict[str, str], files: list[str]) -> str:
    loader = PackageLoader("sim.studies")
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    words = len(comparison.study.axes)
    tables = [("At the end", rows_to_show(comparison), words, caption(comparison))]
    if comparison.targets:
        tables.append((f"To reach {comparison.target:g}", targets_to_show(comparison), words, ""))
    spent = "Spent per client" + (", of all clients" if comparison.study.clients else "")
    tables.append((spent, budgets_to_show(comparison), words, ""))
    return templates.get_template("comparison.html").render(
        title=comparison.study.name,
        question=comparison.study.question,
        warnings=comparison.warnings,
        tables=tables,
        pictures=[(title, name, _svg(folder / f"{name}.svg")) for name, title in titles.items()],
        files=files,
        font=Markup(FONT),  # in a style, where quotes are no quotes
    )


def _svg(path: Path) -> Markup:
    """A picture as it may stand in a page: without the head of a file of its own."""
    content = path.read_text(encoding="utf-8")
    return Markup(content[content.index("<svg") :])

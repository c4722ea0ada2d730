"""Files of a comparison: page, tables and pictures."""

from pathlib import Path

from markupsafe import Markup

from sim.errors import UserError
from sim.results.report.html import rendered_page
from sim.studies.comparison import Comparison
from sim.studies.latex import latex, robust_latex
from sim.studies.pictures import write_pictures
from sim.studies.tables import tables_to_show, write_csv

PAGE = "comparison.html"


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write page, tables (CSV, LaTeX) and pictures (PNG, SVG); return the page's path. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = write_csv(comparison, folder)
        tex = {"table.tex": latex(comparison), "robust.tex": robust_latex(comparison)}
        tex = {name: content for name, content in tex.items() if content}
        for name, content in tex.items():
            (folder / name).write_text(content, encoding="utf-8")
        titles = write_pictures(comparison, folder)
        path = folder / PAGE
        names = [file.name for file in files]
        path.write_text(_page(comparison, folder, titles, [*names, *tex]), encoding="utf-8")
        return path
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def _page(comparison: Comparison, folder: Path, titles: dict[str, str], files: list[str]) -> str:
    return rendered_page(
        "comparison.html",
        title=comparison.study.name,
        question=comparison.study.question,
        warnings=comparison.warnings,
        footnotes=comparison.footnotes.lines,
        tables=tables_to_show(comparison),
        pictures=[(title, name, _svg(folder / f"{name}.svg")) for name, title in titles.items()],
        files=files,
    )


def _svg(path: Path) -> Markup:
    """Return an SVG file's content for a page, without the XML header."""
    content = path.read_text(encoding="utf-8")
    return Markup(content[content.index("<svg") :])  # texts are escaped  # nosec B704

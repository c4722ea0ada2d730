"""Files of a comparison: page, tables and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sim.errors import UserError
from sim.results.report.columns import json_for_script, packed
from sim.results.report.html import rendered_page
from sim.studies.comparison import Comparison
from sim.studies.comparison_options import OPTIONS, ComparisonOptions
from sim.studies.forks import forks_table
from sim.studies.latex import latex, robust_latex
from sim.studies.page_data import study_page_content
from sim.studies.pictures import ENDINGS, write_pictures
from sim.studies.tables import CSV_FILES, tables_to_show, write_csv

PAGE = "comparison.html"
_BUTTONS = {
    "table.csv": "Table as CSV",
    "table.tex": "Table as LaTeX",
    "robust.tex": "Table over clients as LaTeX",
}
_INLINE_MAX = 300_000  # characters of a picture or a table in the page


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write page, tables (CSV, LaTeX), pictures (PNG, SVG) and options; return the page's path.

    Raises UserError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = _earlier_files(folder)
        files = write_csv(comparison, folder)
        tex = {"table.tex": latex(comparison), "robust.tex": robust_latex(comparison)}
        tex = {name: content for name, content in tex.items() if content}
        for name, content in tex.items():
            (folder / name).write_text(content, encoding="utf-8")
        pictures = write_pictures(comparison, folder)
        names = [*[file.name for file in files], *tex]
        texts = {name: (folder / name).read_text(encoding="utf-8") for name in _BUTTONS if name in names}
        path = folder / PAGE
        page = study_page(comparison, folder, pictures=pictures, files=names, texts=texts)
        path.write_text(page, encoding="utf-8")
        written = [*names, *[f"{name}.{ending}" for name in pictures for ending in ENDINGS]]
        for name in set(earlier).difference(written):
            (folder / name).unlink(missing_ok=True)  # such as the costs of an earlier target
        ComparisonOptions.of(comparison, written).write(folder)
        return path
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def _earlier_files(folder: Path) -> Sequence[str]:
    """Return the names of the files that an earlier comparison wrote into a folder."""
    if not (folder / OPTIONS).is_file():
        return ()
    try:
        return ComparisonOptions.read(folder).files or CSV_FILES  # older versions did not list them
    except UserError:  # damaged; it is written again
        return ()


def study_page(
    comparison: Comparison,
    folder: Path,
    *,
    pictures: Mapping[str, str],
    files: Sequence[str] = (),
    texts: Mapping[str, str],
    refresh_s: int = 0,
) -> str:
    """Return the page of a comparison in a folder.

    pictures: titles of the pictures in the folder, by name. files: names of the tables in the folder. texts:
    contents of tables for the buttons, by name. refresh_s: seconds after which a browser reloads the page.
    """
    content = study_page_content(comparison, folder)
    index, data = packed(content.columns)
    texts = {name: each for name, each in texts.items() if len(each) <= _INLINE_MAX}
    facts = content.facts | {"files": texts}
    forks = forks_table(comparison)
    tables = [each._asdict() | {"of_groups": True} for each in tables_to_show(comparison)]
    return rendered_page(
        "comparison.html",
        title=facts["title"],
        question=comparison.study.question,
        answer=facts["answer"],
        warnings=facts["warnings"],
        footnotes=facts["footnotes"],
        tables=[*tables, *([forks._asdict() | {"of_groups": False}] if forks else [])],
        buttons=[(name, words) for name, words in _BUTTONS.items() if name in texts],
        pictures=[(title, name, _svg(folder / f"{name}.svg")) for name, title in pictures.items()],
        files=files,
        refresh_s=refresh_s,
        facts=json_for_script({"facts": facts, "columns": index}),
        data=data,
    )


def _svg(path: Path) -> Any:
    """Return a small SVG file's content for a page, without the XML header; empty if it is large."""
    content = path.read_text(encoding="utf-8")
    if len(content) > _INLINE_MAX:
        return ""
    return Markup(content[content.index("<svg") :])  # texts are escaped  # nosec B704

"""Generator of Sphinx's input for the site: `python -m docs.build.site build/docs` writes it into a folder.

The input contains the pages of docs/ with links changed to pages of the site. Other files of the repository
that a page links to get a page that shows them.
"""

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.build.commands import commands_page
from docs.build.method_pages import method_pages
from docs.build.reference_page import reference_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHOWN = (
    "scenarios/**/*.toml",
    "docs/examples/**/*.*[!c]",
    "docs/notebooks/*.py",
    "protocols/**/*.py",
    "LICENSE",
)
"""Patterns of files with a page that shows them and offers them for download."""
ASSETS = ("*.png", "*.svg", "*.csv", "*.ipynb")
"""Patterns of files of docs/ that are copied to the site unchanged."""
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
METHOD_ROW = re.compile(r"^\| `([\w-]+)` \|", re.MULTILINE)
KEYS = re.compile(r"^(?=\| key (\| of \w+ )?\| value \| default )", re.MULTILINE)
"""Start of a table of keys, which site.css lays out for narrow screens."""
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}
TOCTREE = "\n:::{{toctree}}\n:hidden:\n:glob:\n\n{}\n:::\n"


def pages() -> dict[str, str]:
    """Return all pages by their names in the site. Links within the site start with "/"."""
    made = {f"protocols/{name}.md": text for name, text in method_pages().items()}
    made |= {"reference.md": reference_page(), "commands.md": commands_page(), **dict(_shown())}
    for path in [*sorted(DOCS.rglob("*.md")), ROOT / "CHANGELOG.md", ROOT / "README.md"]:
        name = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
        original = path.read_text(encoding="utf-8")
        text = LINK.sub(lambda link, folder=path.parent: target(link[1], folder), original)
        made[name] = text + (TOCTREE.format("*") if name.endswith("/README.md") else "")
    table, sections = re.split(r"(?=\n## )", made["protocols.md"], maxsplit=1)
    table = METHOD_ROW.sub(r"| [`\1`](/protocols/\1.md) |", table)
    made["protocols.md"] = table + sections + TOCTREE.format("protocols/*")
    return {name: KEYS.sub(r"```{rst-class} keys\n```\n\n", text) for name, text in made.items()}


def target(link: str, folder: Path) -> str:
    """Return the site's path of the file or folder to which a page in this folder of the repository links."""
    if ":" in link:
        return link
    path = os.path.relpath(folder / link, ROOT)
    if path == "README.md":
        return "/index.md"
    if path.endswith((".md", ".ipynb", ".png", ".svg")) or path.startswith(
        ("docs/studies/", "docs/weather/")
    ):
        return f"/{path.removeprefix('docs/')}"
    return f"/files/{path}.md"


def shown_files() -> list[Path]:
    """Return the files that get a page of their contents."""
    found = {path for pattern in SHOWN for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


def _shown() -> Iterator[tuple[str, str]]:
    """Yield pages that show a file, and pages that list a folder of these files."""
    head = "---\norphan: true\nnosearch: true\n---\n\n# {}\n\n"
    files = shown_files()
    for path in files:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8").rstrip()
        language, link = LANGUAGES.get(path.suffix, "text"), f"{{download}}`Download <{path.name}>`"
        yield f"files/{name}.md", f"{head.format(name)}{link}\n\n````{language}\n{text}\n````\n"
    for folder in sorted({folder for path in files for folder in path.parents if folder != ROOT}):
        if folder.is_relative_to(ROOT):
            name = folder.relative_to(ROOT).as_posix()
            inside = [path for path in files if folder in path.parents]
            links = {path: path.relative_to(folder) for path in inside}
            lines = [f"- [{link}](/files/{name}/{link}.md){_about(path)}\n" for path, link in links.items()]
            yield f"files/{name}.md", head.format(name) + "".join(lines)


def _about(path: Path) -> str:
    """Return the first line of a file's docstring, or of the comment at the top of a scenario."""
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    else:
        text = path.read_text(encoding="utf-8") if path.suffix == ".toml" else ""
    line = text.partition("\n")[0].removeprefix("# ")
    return f": {line}" if line else ""


def main() -> None:
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for name, text in pages().items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    copies = {path: out / path.relative_to(DOCS) for pattern in ASSETS for path in DOCS.rglob(pattern)}
    copies |= {path: out / "files" / path.relative_to(ROOT) for path in shown_files()}
    for path, copy in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


if __name__ == "__main__":
    main()

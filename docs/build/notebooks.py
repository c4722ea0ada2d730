"""Generator of the notebooks in docs/notebooks with their outputs: `python -m docs.build.notebooks`.

The source of a notebook is a Python file in the format of many editors: `# %%` starts a cell of code, and
`# %% [markdown]` a cell of text, in which each line is a comment.
"""

import ast
import contextlib
import io
import json
import linecache
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"


def cells_of(text: str) -> list[tuple[str, str]]:
    """Return the kind ("code" or "markdown") and source of each cell."""
    parts = re.split(r"^# %%( \[markdown\])?\n", text, flags=re.MULTILINE)[1:]
    found = []
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        words = re.sub(r"(?m)^# ?", "", source).strip()
        found.append(("markdown", words) if kind else ("code", source.strip()))
    return found


def made(text: str) -> dict[str, Any]:
    """Return the notebook of a source, with every cell run in an empty folder."""
    space: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for kind, source in cells_of(text):
                cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
                cell["id"] = f"cell-{len(cells)}"
                if kind == "code":
                    number = 1 + sum(each["cell_type"] == "code" for each in cells)
                    cell |= {"execution_count": number, "outputs": outputs(source, number, space)}
                cells.append(cell)
        finally:
            os.chdir(before)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def outputs(source: str, number: int, space: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the printed output of a cell and the value of its last expression."""
    filename = f"<cell {number}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, filename, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), filename, "eval"), space)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        result = {"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}}
        found.append(result)
    return found


def main() -> None:
    for text in sorted(FOLDER.glob("*.py")):
        notebook = made(text.read_text(encoding="utf-8"))
        path = text.with_suffix(".ipynb")
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()

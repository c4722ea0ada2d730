"""Generator of the runs and reports in the site's gallery: `python -m docs.build.gallery build/gallery`."""

import html
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import coterie

SCENARIOS = ("quickstart", "gossip", "cobo_quadratics", "l2c_synthetic")
"""Small scenarios of different methods. They take at most two minutes on one core and need no network."""


def write(out: Path, changes: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write `runs.html`, a part of the page, and the reports that it links to.

    changes: overrides of keys, by scenario.
    """
    reports, parts = out / "files" / "reports", []
    reports.mkdir(parents=True, exist_ok=True)
    for name in SCENARIOS:
        run = coterie.run(name, set=(changes or {}).get(name), out=out / "runs", overwrite=True, quiet=True)
        shutil.copy(run.report, reports / f"{name}.html")
        question = html.escape(run.scenario.partition("\n")[0].strip("# "))
        head = f'<h3>{name}</h3><p>{question} <a href="reports/{name}.html">Open the report</a></p>'
        parts.append(f"<section>{head}{run._repr_html_()}</section>")
    (out / "runs.html").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

"""report.html from its templates: one file that needs no network, or one of many that share their script."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sim.results.palette import DARK, FONT, LIGHT
from sim.results.report.blocks import Block, Section


def document(head: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """A whole HTML page. `head` is what `templates/report.html` says of the run before the sections."""
    page = _templates().get_template("report.html")
    return page.render(
        head=head,
        sections=sections,
        plotly=get_plotlyjs(),
        font=FONT,
        light=LIGHT,
        dark=DARK,
        variables=_variables,
    )


SCRIPT = "plotly.min.js"
_SHARED = f"""<script src="../{SCRIPT}" onerror="document.documentElement.className = 'lone'"></script>"""


def share_script(report: Path) -> None:
    """Have a report load the script that draws its pictures from beside its folder; it is put there.

    The page is then 4.8 MB smaller. Raises OSError.
    """
    own, script = f"<script>{get_plotlyjs()}</script>", report.parent.parent / SCRIPT
    if not script.is_file():
        new = script.with_name(f".{SCRIPT}.{os.getpid()}.new")
        new.write_text(get_plotlyjs(), encoding="utf-8")
        new.replace(script)
    new = report.with_name(f".{report.name}.new")
    new.write_text(report.read_text(encoding="utf-8").replace(own, _SHARED, 1), encoding="utf-8")
    new.replace(report)


def rendered_page(template: str) -> str:
    """A page of a template alone, in the report's colours."""
    return _templates().get_template(template).render(font=FONT, light=LIGHT, dark=DARK, variables=_variables)


def rendered(block: Block) -> str:
    """A block alone."""
    return str(_templates().get_template("blocks.html").module.block(block))  # type: ignore[attr-defined]


@cache
def _templates() -> Environment:
    loader = PackageLoader("sim.results.report")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)


def _variables(colours: Mapping[str, str]) -> Markup:
    return Markup(" ".join(f"--{name}: {value};" for name, value in colours.items()))

"""report.html from its templates: all in one file that needs no network."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sim.results.report.blocks import Block, Section
from sim.results.report.style import DARK, FONT, LIGHT


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

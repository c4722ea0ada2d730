"""report.html from its templates: a self-contained file, or one of several files that share a script."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sim.results import outcome, text
from sim.results.measures import measure_called
from sim.results.palette import DARK, FONT, LIGHT
from sim.results.report.blocks import Section
from sim.results.view import RunView

MOST_FAILURES = 200


def document(view: RunView, sections: Sequence[Section], *, explored: bool = False) -> str:
    """Return the HTML page of a run; `templates/report.html` puts facts of the run before the sections.

    explored: True if the folder contains explore.html.
    """
    failures = view.get("failures") or []
    return rendered_page(
        "report.html",
        view=view,
        tiles=headline_numbers(view),
        shown=failures[:MOST_FAILURES],
        failures=failures,
        sections=sections,
        plotly=get_plotlyjs(),
        link=Markup(_LINK if explored else _HIDDEN_LINK),  # constants  # nosec B704
    )


_LINK = '<a class="walk" href="explore.html">Step through this run in virtual time</a>'
_HIDDEN_LINK = _LINK.replace("<a ", "<a hidden ")


def show_explore_link(report: str) -> str:
    """Return the page of a report with its link to explore.html made visible, if the page has such a link."""
    return report.replace(_HIDDEN_LINK, _LINK, 1)


SCRIPT = "plotly.min.js"
_PACKAGES = ("sim.results.report", "sim.results.explore", "sim.studies")  # each with a folder of templates
_SHARED = f"""<script src="../{SCRIPT}" onerror="document.documentElement.className = 'lone'"></script>"""


def share_script(report: Path) -> None:
    """Make a report load plotly's script from the parent of its folder, and write the script there.

    The page becomes 4.8 MB smaller. Raises OSError.
    """
    own, script = f"<script>{get_plotlyjs()}</script>", report.parent.parent / SCRIPT
    if not script.is_file():
        new = script.with_name(f".{SCRIPT}.{os.getpid()}.new")
        new.write_text(get_plotlyjs(), encoding="utf-8")
        new.replace(script)
    new = report.with_name(f".{report.name}.new")
    new.write_text(report.read_text(encoding="utf-8").replace(own, _SHARED, 1), encoding="utf-8")
    new.replace(report)


def rendered_page(template: str, **values: Any) -> str:
    """Return the page of a template with these values, in the report's colors."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    loader = ChoiceLoader([PackageLoader(each) for each in _PACKAGES])
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    known = {"font": FONT, "light": LIGHT, "dark": DARK, "variables": _variables}
    templates.globals |= known | {"outcome": outcome, "text": text}
    return templates


def _variables(colours: Mapping[str, str]) -> Markup:
    return Markup(" ".join(f"--{name}: {value};" for name, value in colours.items()))  # constants  # nosec B704


# --- tiles at the top of the page ---------------------------------------------------------------------------


def headline_numbers(view: RunView) -> list[tuple[str, str, str]]:
    """Return the headline numbers of this run, at most six: (label, value, note)."""
    tiles, accuracy, settled = [], view.get("accuracy") or {}, view.get("settled") or {}
    judged = view.get("measure") or "accuracy"
    if judged == "accuracy" and accuracy.get("mean") is not None:
        spread = (
            f"\N{PLUS-MINUS SIGN} {text.share(accuracy['std'])} over {outcome.clients_text(view.summary)}"
        )
        worst = f"worst 10%: {text.share(accuracy['worst_decile'])}"
        tiles.append(("Mean accuracy", text.share(accuracy["mean"]), f"{spread}; {worst}"))
    elif view.measure is not None:
        final = view.at_the_end
        mean = None if np.isnan(final).all() else float(np.nanmean(final))
        tiles.append((f"Mean {view.measure[0].label}", view.measure[0].text(mean), "at the end"))
    if settled.get("mean") is not None and settled["clients"] != view.get(judged, "clients"):
        since = f"{settled['clients']:,} clients with at least {settled['iterations']:,} iterations"
        label = f"Mean {measure_called(judged).label} of settled clients"
        tiles.append((label, measure_called(judged).text(settled["mean"]), since))
    if view.get("better_than_alone") is not None:
        tiles.append(("Better than alone", text.share(view.get("better_than_alone")), gain_note(view)))
    if view.get("graph", "edge_recall") is not None:
        pair = " / ".join(
            format_ratio(view.get("graph", key), 2) for key in ("edge_precision", "edge_recall")
        )
        tiles.append(("Precision / recall", pair, "learned vs. true edges"))
    came = ", ".join(
        [
            f"{text.number(view.get('clients', 'initial'))} at the start",
            *outcome.move_counts_text(view.summary),
        ]
    )
    tiles.append(("Clients up", text.number(view.get("clients", "alive")), came))
    count = text.number(view.get("messages", "sent"))
    tiles.append(("Sent", text.size(view.get("messages", "bytes")), f"in {count} messages"))
    return tiles


def gain_note(view: RunView) -> str:
    """Describe how many clients do better than alone, and the mean difference."""
    if view.measure is None or not view.gains:
        return "of the clients"
    differences = [gain.difference for gain in view.gains]
    better, mean = sum(value > 0 for value in differences), float(np.mean(differences))
    measure = view.measure[0]
    average = "on average" if measure.higher_is_better else "mean improvement"
    return f"{better:,} of {len(differences):,} clients; {measure.difference(mean)} {average}"


def format_ratio(value: float | None, digits: int = 3) -> str:
    """Format a number from 0 to 1 with `digits` decimals."""
    return text.NOTHING if value is None else f"{value:.{digits}f}"

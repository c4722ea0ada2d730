"""The frame of report.html: document, style sheet and scripts, all in one file that needs no network."""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from sim.results.style import DARK, FONT, LIGHT


def document(title: str, body: str) -> str:
    """A whole HTML page; `body` is trusted, `title` is escaped."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} \N{MIDDLE DOT} coterie</title>\n"
        f"<style>\n{_style_sheet()}</style>\n<script>{get_plotlyjs()}</script>\n</head>\n"
        "<body>\n<main>\n"
        "<noscript><p>Pictures, sorting and searching need JavaScript, of which this page brings its own.</p>"
        f"</noscript>\n{body}\n</main>\n<script>\n{_resource('report.js')}</script>\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    """A part of the page under its title; both are trusted."""
    return f"<section><h2>{title}</h2>{content}</section>"


def picture(figure: go.Figure | None, name: str, *, least_px: int = 0) -> str:
    """A figure under a fixed name, so that the same run gives the same page; nothing for None.

    least_px: its least width; on a smaller screen it scrolls by itself.
    """
    if figure is None:
        return ""
    style = f"height:{figure.layout.height}px" + (f";min-width:{least_px}px" if least_px else "")
    content = figure.to_json().replace("<", "\\u003c")  # nothing in it can end the script
    return (
        f'<div class="scroll"><div id="{name}" class="plotly-graph-div" style="{style}"></div></div>'
        f'<script type="application/json" id="{name}-figure">{content}</script>'
    )


def key(figure: go.Figure) -> str:
    """The legend of a figure that scrolls, outside of it: on a small screen it takes the place of its own."""
    marks = "".join(
        f'<span><i class="{trace.marker.symbol}" style="background:{trace.marker.color}"></i>'
        f"{escape(trace.name)}</span>"
        for trace in figure.data
        if trace.name
    )
    return f'<div class="key">{marks}</div>'


def side_by_side(parts: Iterable[str]) -> str:
    """Parts beside each other where there is room; empty ones take none."""
    return '<div class="pair">' + "".join(f"<div>{part}</div>" for part in parts if part) + "</div>"


def _style_sheet() -> str:
    light, dark = _variables(LIGHT), _variables(DARK)
    return (
        f":root {{ color-scheme: light dark; --font: {FONT}; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{_resource('report.css')}"
    )


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def _resource(name: str) -> str:
    return files("sim.results").joinpath(name).read_text(encoding="utf-8")

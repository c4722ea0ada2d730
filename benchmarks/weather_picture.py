"""Picture of docs/weather.md: methods by weathers, points of accuracy lost against calm weather."""

from xml.sax.saxutils import escape

import polars as pl

from benchmarks.weather_table import CALM
from sim.results.palette import DARK, FONT, LIGHT

ROW, COLUMN, LABELS, GAP = 22, 100, 236, 14
STRONGEST = 15.0
"""Points lost or gained at which a color is full."""
_COLORS = ("page", "ink", "faint", "orange", "blue")


def picture(means: pl.DataFrame) -> str:
    """Return an SVG of `weather_table.means`: a table for each data set and family, methods by weathers.

    Orange marks losses, blue gains. The picture follows the reader's light or dark color scheme.
    """
    weathers = means["weather"].unique(maintain_order=True).to_list()
    middles = {weather: LABELS + (index + 0.5) * COLUMN for index, weather in enumerate(weathers)}
    parts: list[str] = []
    y = ROW
    for (data, family), rows in means.group_by("data", "family", maintain_order=True):
        parts.append(_text(GAP, y, f"{family}, {data}", "start", "bold"))
        parts += [_text(x, y, weather, "middle", "faint") for weather, x in middles.items()]
        for (method,), cells in rows.group_by("method", maintain_order=True):
            y += ROW
            parts.append(_text(LABELS - 8, y, str(method), "end"))
            for weather, accuracy, points in cells.select("weather", "accuracy", "against_calm").rows():
                parts += _cell(middles[weather], y, accuracy, None if weather == CALM else points)
        y += ROW + GAP
    caption = (
        "Calm: accuracy, %. Other columns: points gained or lost against calm, without excluded clients."
    )
    parts.append(_text(GAP, y, caption, "start", "faint"))
    return "\n".join([_opening(LABELS + len(weathers) * COLUMN + GAP, y + GAP), *parts, "</svg>\n"])


def _cell(x: float, y: float, accuracy: float, points: float | None) -> list[str]:
    """Return one cell centered at x with its text's baseline at y; `points` is None for calm weather."""
    if points is None:
        return [_text(x, y, f"{accuracy:.1f}", "middle", "faint")]
    kind, strength = ("lost" if points < 0 else "won"), min(abs(points) / STRONGEST, 1.0) * 0.6
    return [
        f'<rect x="{x - COLUMN / 2 + 1:g}" y="{y - 15:g}" width="{COLUMN - 2}" height="{ROW - 2}"'
        f' class="{kind}" fill-opacity="{strength:.2f}"/>',
        _text(x, y, f"{points:+.1f}"),
    ]


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _opening(width: float, height: float) -> str:
    """Return the root element with its style and background."""
    light, dark = (";".join(f"--{name}:{scheme[name]}" for name in _COLORS) for scheme in (LIGHT, DARK))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
            ' aria-label="Points of accuracy lost to each weather, by method">',
            f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}",
            f"text{{font:12px {FONT};fill:var(--ink)}}.bold{{font-weight:600}}.faint{{fill:var(--faint)}}",
            ".lost{fill:var(--orange)}.won{fill:var(--blue)}.ground{fill:var(--page)}</style>",
            '<rect width="100%" height="100%" class="ground"/>',
        ]
    )

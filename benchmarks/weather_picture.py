"""The picture of docs/weather.md: methods by weathers, points of accuracy lost against calm weather."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

from benchmarks.weather_table import CALM, Cell, Cells
from sim.results.style import DARK, FONT, LIGHT

ROW, COLUMN, LABELS, GAP, HEAD, FOOT = 22, 62, 176, 18, 58, 30
STRONGEST = 0.15
"""Accuracy lost or won at which a colour is full."""
_COLOURS = ("page", "ink", "faint", "grid", "orange", "blue")


def picture(tables: Mapping[tuple[str, str], Cells]) -> str:
    """An SVG: for each data set a block of columns, for each family a block of rows.

    Orange is lost, blue won. It follows the reader's light or dark scheme.
    """
    data, titles = (list(dict.fromkeys(names)) for names in zip(*tables, strict=True))
    weathers = list(dict.fromkeys(weather for cells in tables.values() for _, weather in cells))
    parts, y = [], HEAD
    for title in titles:
        methods = list(dict.fromkeys(method for name in data for method, _ in tables[name, title]))
        for method in methods:
            parts.append(_text(LABELS - 8, y + 15, method, "end"))
            for block, name in enumerate(data):
                x = LABELS + block * (len(weathers) * COLUMN + GAP)
                for place, weather in enumerate(weathers):
                    cell = tables[name, title].get((method, weather))
                    parts += [] if cell is None else _cell(x + place * COLUMN, y, cell, weather)
            y += ROW
        y += GAP
    width = LABELS + len(data) * (len(weathers) * COLUMN + GAP)
    heads = []
    for block, name in enumerate(data):
        x = LABELS + block * (len(weathers) * COLUMN + GAP)
        heads.append(_text(x, 18, name, "start", "bold"))
        heads += [_text(x + (i + 0.5) * COLUMN, 44, weather) for i, weather in enumerate(weathers)]
    note = "calm: accuracy in %; elsewhere: points lost against calm by the clients that were not struck"
    foot = _text(LABELS, y + 8, note, "start", "faint")
    return "\n".join([_opening(width, y + FOOT), *heads, *parts, foot, "</svg>\n"])


def _cell(x: float, y: float, cell: Cell, weather: str) -> list[str]:
    if weather == CALM:
        return [_text(x + COLUMN / 2, y + 15, f"{100 * cell.accuracy:.1f}", "middle", "faint")]
    kind, strength = ("lost" if cell.gained < 0 else "won"), min(abs(cell.gained) / STRONGEST, 1.0) * 0.85
    return [
        f'<rect x="{x + 1:g}" y="{y + 1:g}" width="{COLUMN - 2}" height="{ROW - 2}" rx="2"'
        f' class="{kind}" fill-opacity="{strength:.2f}"/>',
        _text(x + COLUMN / 2, y + 15, f"{100 * cell.gained:+.1f}"),
    ]


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _opening(width: float, height: float) -> str:
    """The root, its style and its ground."""
    light, dark = (";".join(f"--{name}:{scheme[name]}" for name in _COLOURS) for scheme in (LIGHT, DARK))
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

"""Preview of a run in a notebook: headline numbers, a curve and the graph, as self-contained HTML."""

import html

import numpy as np

from sim.results import text
from sim.results.report.html import headline_numbers
from sim.results.view import RunView

_WIDTH, _HEIGHT, _EDGE = 340, 120, 6  # pixels of the curve with its axes, and of the margin
_LEFT, _RIGHT, _BOTTOM = 56, _WIDTH - _EDGE, _HEIGHT - 18  # positions of its axes
_GRAPH_MAX = 60  # clients; the cells of a larger graph would be too small to see


def headline(view: RunView) -> str:
    """Return the headline numbers of a run in a line."""
    return ", ".join(f"{label.lower()} {value}" for label, value, _ in headline_numbers(view))


def page(view: RunView) -> str:
    """Return the headline of a run, its curve and its graph, as HTML."""
    rows = "".join(
        f'<tr title="{html.escape(note)}"><td>{html.escape(label)}</td>'
        f'<td style="white-space:nowrap">{html.escape(value)}</td></tr>'
        for label, value, note in headline_numbers(view)
    )
    title = html.escape(f"{view.get('scenario')}: {view.get('protocol')}, seed {view.get('seed')}")
    return (
        '<div style="display:flex;gap:1em;align-items:flex-start;flex-wrap:wrap">'
        f'<table style="width:14em;margin:0"><caption>{title}</caption>{rows}</table>'
        f"{_curve(view)}{_graph(view)}</div>"
    )


def _curve(view: RunView) -> str:
    """Return the curve of the main metric over virtual time, averaged over the clients, as HTML.

    Empty for fewer than two times with a finite mean.
    """
    if view.measure is None:
        return ""
    measure, panel = view.measure
    times, means = panel.mean_of(np.ones(len(view.clients), dtype=bool))
    finite = np.isfinite(means)
    times, means = times[finite], means[finite]
    if times.size < 2:
        return ""
    low, high = float(means.min()), float(means.max())
    x = _LEFT + (times - times[0]) / (times[-1] - times[0]) * (_RIGHT - _LEFT)
    y = _BOTTOM - (means - low) / ((high - low) or 1.0) * (_BOTTOM - _EDGE)
    points = " ".join([f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)])
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    first, last, *ends = [
        text.share(value) if measure.is_share else f"{value:.4g}"
        for value in (float(means[0]), float(means[-1]), low, high)
    ]
    axes = _axes(*ends, *[text.duration(float(time_s)) for time_s in times[[0, -1]]])
    caption = f"Mean {measure.name} over virtual time: {first} at the start, {last} at the end"
    return _figure(_WIDTH, _HEIGHT, axes + line, caption)


def _axes(low: str, high: str, start: str, end: str) -> str:
    """Return the axes of the curve with their end values."""
    frame = f'<path d="M{_LEFT},{_EDGE}V{_BOTTOM}H{_RIGHT}" fill="none" stroke="currentColor"/>'
    marks = [
        (_LEFT - 5, _EDGE + 5, "end", high),
        (_LEFT - 5, _BOTTOM, "end", low),
        (_LEFT, _HEIGHT - 4, "start", start),
        (_RIGHT, _HEIGHT - 4, "end", end),
    ]
    numbers = [
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'
        for x, y, anchor, words in marks
    ]
    style = 'stroke-opacity="0.4" fill="currentColor" font-size="11"'
    return f"<g {style}>{frame}{''.join(numbers)}</g>"


def _graph(view: RunView) -> str:
    """Return the last learned graph as a matrix: row i, column j is the weight of client i for client j.

    Empty without a learned graph, and for many clients.
    """
    count = len(view.clients)
    if not view.graph_times.size or count > _GRAPH_MAX:
        return ""
    last, side = view.snapshot(float(view.graph_times[-1])), _HEIGHT / count
    largest = float(last.weight.max(initial=0.0)) or 1.0
    cells = "".join(
        [
            f'<rect x="{j * side:.2f}" y="{i * side:.2f}" width="{side:.2f}" height="{side:.2f}" '
            f'fill="currentColor" fill-opacity="{max(0.0, weight / largest):.2f}"/>'
            for i, j, weight in zip(
                last.source.tolist(), last.target.tolist(), last.weight.tolist(), strict=True
            )
        ]
    )
    frame = (
        f'<rect width="{_HEIGHT}" height="{_HEIGHT}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
    )
    return _figure(
        _HEIGHT, _HEIGHT, cells + frame, "Learned graph: weight that each row gives to each column"
    )


def _figure(width: int, height: int, content: str, caption: str) -> str:
    words = html.escape(caption)
    return (
        f'<figure style="margin:0;max-width:{width}px"><svg width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{words}">{content}</svg>'
        f"<figcaption>{words}</figcaption></figure>"
    )

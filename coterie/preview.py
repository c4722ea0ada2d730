"""A run in a notebook: headline numbers, a curve and the graph, as HTML that needs nothing else."""

import html

import numpy as np

from sim.results import text
from sim.results.report.html import tiles
from sim.results.view import RunView

_WIDTH, _HEIGHT, _EDGE = 360, 120, 4  # pixels of the curve, and of the space around it
_GRAPH_MAX = 60  # clients; the cells of more would be too small to see


def headline(view: RunView) -> str:
    """The first numbers of a run in a line."""
    return ", ".join(f"{label.lower()} {value}" for label, value, _ in tiles(view))


def page(view: RunView) -> str:
    """The headline of a run, its curve and its graph, as HTML."""
    rows = "".join(
        f'<tr title="{html.escape(note)}"><td>{html.escape(label)}</td><td>{html.escape(value)}</td></tr>'
        for label, value, note in tiles(view)
    )
    title = html.escape(f"{view.get('scenario')}: {view.get('protocol')}, seed {view.get('seed')}")
    return (
        '<div style="display:flex;gap:1.5em;align-items:flex-start;flex-wrap:wrap">'
        f"<table><caption>{title}</caption>{rows}</table>{_curve(view)}{_graph(view)}</div>"
    )


def _curve(view: RunView) -> str:
    """The mean of what clients are judged by over time, as a line."""
    if view.measure is None:
        return ""
    measure, panel = view.measure
    times, means = panel.mean_of(np.ones(len(view.clients), dtype=bool))
    finite = np.isfinite(means)
    times, means = times[finite], means[finite]
    if times.size < 2:
        return ""
    low, high = float(means.min()), float(means.max())
    x = _EDGE + (times - times[0]) / (times[-1] - times[0]) * (_WIDTH - 2 * _EDGE)
    y = _HEIGHT - _EDGE - (means - low) / ((high - low) or 1.0) * (_HEIGHT - 2 * _EDGE)
    points = " ".join([f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)])
    ends = float(means[0]), float(means[-1])
    shown = [text.share(value) if measure.is_share else f"{value:.4g}" for value in ends]
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    caption = f"Mean {measure.name} over virtual time: {shown[0]} at first, {shown[1]} at the end"
    return _figure(_WIDTH, _HEIGHT, line, caption)


def _graph(view: RunView) -> str:
    """The last learned graph as a matrix: row i, column j is the weight that client i gives to client j."""
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
    return _figure(_HEIGHT, _HEIGHT, cells + frame, "Learned graph: the weight of each column for each row")


def _figure(width: int, height: int, content: str, caption: str) -> str:
    said = html.escape(caption)
    return (
        f'<figure style="margin:0"><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{said}">{content}</svg><figcaption>{said}</figcaption></figure>'
    )

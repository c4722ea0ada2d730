"""The report's pictures as plotly's classes for Python, which know all of its words and values."""

import json

import plotly.graph_objects as go

from sim.results.report.figure import Figure

_to_json = Figure.to_json


def as_plotly(figure: Figure | None) -> go.Figure:
    """A picture as plotly has it; ValueError for words and values that it has not."""
    assert figure is not None
    return go.Figure(data=figure.data, layout=figure.layout)


def checked_json(figure: Figure) -> str:
    """What `Figure.to_json` gives, once plotly has said the same of the picture."""
    found = _to_json(figure)
    assert json.loads(found) == json.loads(as_plotly(figure).to_json())
    return found

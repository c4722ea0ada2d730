"""A picture as plotly's script reads it: its traces and its layout, in the script's own words.

plotly's classes for Python would check each word whenever a page is written, which takes longer than all else
of it. Tests have them check the pictures instead.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

Trace = dict[str, Any]


class Figure:
    """A picture: `data` are the traces, `layout` all else."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self.data: list[Trace] = []
        self.layout = layout

    def add(self, *traces: Trace, axes: str | None = None) -> None:
        """Draw more, on top; what is None of a trace is left out. axes: their number, the first has none."""
        placed = {} if axes is None else {"xaxis": f"x{axes}", "yaxis": f"y{axes}"}
        self.data += [_type_last(_in_order(trace)) | placed for trace in traces]

    def mark(self, kind: str, said: dict[str, Any]) -> None:
        """Add one to the layout's `shapes` or `annotations`."""
        self.layout.setdefault(kind, []).append(_in_order(said))

    def update(self, **layout: Any) -> None:
        """Change the layout where it is said; what else is in its dicts stays."""
        _merge(self.layout, layout)

    def to_json(self) -> str:
        """The picture in strict JSON, in which no text can end a script; numbers that are none are null."""
        said = {"data": self.data, "layout": self.layout}
        found = _dumps(said)
        if "NaN" in found or "Infinity" in found:
            found = _dumps(json.loads(found, parse_constant=lambda _: None))
        return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("/", "\\u002f")


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = _in_order(value)


def _in_order(said: Any) -> Any:
    if isinstance(said, dict):
        return {key: _in_order(value) for key, value in sorted(said.items()) if value is not None}
    if isinstance(said, list) and said and isinstance(said[0], dict):
        return list(map(_in_order, said))
    return said


def _type_last(trace: Trace) -> Trace:
    kind = trace.pop("type")
    return trace | {"type": kind}


def _dumps(said: Any) -> str:
    return json.dumps(said, separators=(",", ":"), default=_typed_array)


def _typed_array(numbers: Any) -> Any:
    """An array of floats as the script reads it, without its digits being parsed."""
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
        raise TypeError(f"{numbers!r} cannot be drawn")
    if not numbers.size:
        return []
    found = {"dtype": f"f{numbers.itemsize}", "bdata": b64encode(numbers.tobytes()).decode("ascii")}
    return found if numbers.ndim == 1 else found | {"shape": ", ".join(map(str, numbers.shape))}

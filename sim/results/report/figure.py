"""A picture in the format of plotly's script: traces and layout.

plotly's Python classes validate each attribute, which would take most of the time to write a page. The tests
validate the pictures with them instead.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

Trace = dict[str, Any]


class Figure:
    """A picture: `data` lists the traces, `layout` holds all other settings."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self.data: list[Trace] = []
        self.layout = layout

    def add(self, *traces: Trace, axes: str | None = None) -> None:
        """Draw traces on top; None values are left out. axes: number of the axes, empty for the first."""
        placed = {} if axes is None else {"xaxis": f"x{axes}", "yaxis": f"y{axes}"}
        self.data += [_type_last(_sort_keys(trace)) | placed for trace in traces]

    def mark(self, kind: str, item: dict[str, Any]) -> None:
        """Add an item to the layout's `shapes` or `annotations`."""
        self.layout.setdefault(kind, []).append(_sort_keys(item))

    def update(self, **layout: Any) -> None:
        """Change the given keys of the layout; other keys of nested dicts are kept."""
        _merge(self.layout, layout)

    def to_json(self) -> str:
        """Return the picture as strict JSON without `<`, `>` and `/`; NaN and infinity become null."""
        found = _dumps({"data": self.data, "layout": self.layout})
        if "NaN" in found or "Infinity" in found:
            found = _dumps(json.loads(found, parse_constant=lambda _: None))
        return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("/", "\\u002f")


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = _sort_keys(value)


def _sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_keys(each) for key, each in sorted(value.items()) if each is not None}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return list(map(_sort_keys, value))
    return value


def _type_last(trace: Trace) -> Trace:
    kind = trace.pop("type")
    return trace | {"type": kind}


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=_typed_array)


def _typed_array(numbers: Any) -> Any:
    """Encode an array of floats in plotly's binary format."""
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
        raise TypeError(f"{numbers!r:.60} cannot be drawn; use numbers, lists, or arrays of floats")
    if not numbers.size:
        return []
    found = {"dtype": f"f{numbers.itemsize}", "bdata": b64encode(numbers.tobytes()).decode("ascii")}
    return found if numbers.ndim == 1 else found | {"shape": ", ".join(map(str, numbers.shape))}

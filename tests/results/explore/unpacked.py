"""The content of a written page, unpacked as the browser does it."""

import json
import re
import zlib
from base64 import b64decode
from typing import Any

import numpy as np


def columns_of(index: dict[str, list[Any]], base64: str) -> dict[str, np.ndarray]:
    content, found, at = zlib.decompress(b64decode(base64)), {}, 0
    for name, (kind, count, rises) in index.items():
        width = int(kind[1])
        planes = np.frombuffer(content, np.uint8, count * width, at).reshape(width, count)
        values = np.ascontiguousarray(planes.T).view(f"<{kind}").reshape(-1)
        found[name] = np.cumsum(values, dtype=values.dtype) if rises else values
        at += count * width
    assert at == len(content)
    return found


def facts_and_columns(page: str, suffix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and columns of a page; with the suffix "-2", those of the second run."""
    texts = dict(re.findall(r'<script type="application/[a-z-]+" id="([\w-]+)">([^<]*)</script>', page))
    parts = json.loads(texts[f"facts{suffix}"])
    return parts["facts"], columns_of(parts["columns"], texts[f"data{suffix}"])


def state_in(facts: dict[str, Any], columns: dict[str, np.ndarray], client: int, time_s: float) -> str:
    """The state that the page shows for a client at a time."""
    ends = np.cumsum(columns["state_count"], dtype=np.int64)
    part = slice(ends[client] - columns["state_count"][client], ends[client])
    place = np.searchsorted(columns["state_start"][part], round(time_s / facts["tick"]), side="right") - 1
    return str(facts["states"][columns["state"][part][max(0, place)]])

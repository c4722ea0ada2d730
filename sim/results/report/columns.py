"""Columns of numbers in a page: differences, byte planes, deflated together, in base64.

`columns.js` unpacks them.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PageColumn:
    """Numbers of one kind: "u1", "u2", "u4" or "f4".

    rises: True if the page contains the differences of successive numbers, for ascending numbers.
    """

    values: NDArray[Any]
    kind: str
    rises: bool = False

    def encoded(self) -> bytes:
        """Return the first bytes of all values, then the second bytes, and so on, little-endian."""
        values = np.ascontiguousarray(self.values.reshape(-1)).astype(f"<{self.kind}")
        if self.rises:
            values = np.diff(values, prepend=values.dtype.type(0))  # modulo 2^32
        return values.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def whole_number_column(values: Any, *, rises: bool = False) -> PageColumn:
    """Return a column of whole numbers from 0, in the smallest kind that holds them.

    Ascending numbers are "u4". Too large numbers become the largest of "u4".
    """
    numbers = np.asarray(values, dtype=np.int64)
    largest = int(numbers.max(initial=0))
    kind = "u1" if largest < 1 << 8 else "u2" if largest < 1 << 16 else "u4"
    return PageColumn(numbers.clip(0, (1 << 32) - 1), "u4" if rises else kind, rises)


def float_column(values: Any) -> PageColumn:
    """Return a column of floats in single precision; too large values become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return PageColumn(np.asarray(values, dtype=np.float64).astype(np.float32), "f4")


def packed(columns: Mapping[str, PageColumn]) -> tuple[dict[str, list[Any]], str]:
    """Return the index of the columns by name, as [kind, count, rises], and their bytes in base64."""
    index = {name: [each.kind, int(each.values.size), each.rises] for name, each in columns.items()}
    content = b"".join([each.encoded() for each in columns.values()])
    return index, b64encode(zlib.compress(content, 9)).decode("ascii")


def json_for_script(value: object) -> str:
    """Return strict JSON that cannot end a script."""
    found = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

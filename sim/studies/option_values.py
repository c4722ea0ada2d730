"""Values of options: texts after ``--set key=``, with one value or several."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any


def as_toml(value: Any) -> str:
    """Format a value as written after ``--set key=``."""
    return value if isinstance(value, str) and _is_plain(value) else _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def _is_plain(text: str) -> bool:
    """Return whether ``--set key=`` reads a text as a string, and not as a number or list."""
    is_one_word = bool(text) and text == text.strip() and text.isprintable() and "," not in text
    return is_one_word and parsed(text) is text


def split_at_commas(text: str) -> list[str]:
    """Split a text at its commas, but not within brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def parsed(text: str) -> Any:
    """Parse a value in TOML; any other text is returned unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def override_key(override: str) -> str:
    """Return the key of ``key=value``."""
    return override.partition("=")[0].strip()


def is_of_sweep(override: str) -> bool:
    """Return whether an override changes the sweep itself, and not its runs."""
    return override_key(override).partition(".")[0] == "sweep"

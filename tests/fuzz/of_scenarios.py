"""Scenarios with spoiled keys and values."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.fuzz import grammar, tables, worlds
from tests.fuzz.case import Commands, Kind


class Scenarios(Kind):
    """A shipped scenario with odd values, missing keys, valid but surprising sections, or parts swapped."""

    name = "scenario"

    def begin(self, folder: Path, rng: Random) -> dict[str, Any]:
        return worlds.short(rng.choice(list(worlds.SHORT)))

    def change(self, state: dict[str, Any], rng: Random) -> str:
        return rng.choice((grammar.change, grammar.change, grammar.change, tables.change))(state, rng)

    def commands(self, state: dict[str, Any]) -> Commands:
        Path("scenario.toml").write_text(tomli_w.dumps(state), encoding="utf-8", errors="replace")
        return [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]

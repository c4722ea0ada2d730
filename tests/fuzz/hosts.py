"""Odd files of machines, and odd options of the commands about live runs."""

from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.fuzz import spoil, worlds
from tests.fuzz.case import Commands
from tests.fuzz.values import TEXTS

_WORDS = ("", "a", "b", "x" * 300, "..", "/", "-", "日本", "0", "-1", "nan", "9" * 400)


def hosts(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A file of machines with odd values, or damaged; certificates that are none; options that do not fit.

    What is right makes certificates, and runs nothing.
    """
    Path("scenario.toml").write_text(tomli_w.dumps(worlds.short("gossip")), encoding="utf-8")
    table: dict[str, Any] = {
        "host": [
            {"name": name, "address": "127.0.0.1", "port": 7600 + 10 * number, "processes": 1}
            for number, name in enumerate("ab")
        ]
    }
    words = [spoil.damaged_table(table, rng) for _ in range(changes)]
    content = tomli_w.dumps(table).encode("utf-8", "replace")
    if words and rng.random() < 0.3:
        content, how = spoil.damaged_bytes(content, rng)
        words.append(how)
    Path("hosts.toml").write_bytes(content)
    if words and rng.random() < 0.1:
        words.append(spoil.replace_file(Path("hosts.toml"), rng))
    Path("nothing").mkdir()
    Path("damaged").mkdir()
    for name in ("token", "ca.pem", "coordinator.pem", "coordinator.key"):
        Path("damaged", name).write_text(rng.choice(TEXTS), encoding="utf-8", errors="replace")
    live = ["live", "scenario.toml", "--quiet", "--hosts", "hosts.toml"]
    made = [*live, "--make-certificates", "certificates"]
    if not words:
        return words, [made]
    folder = rng.choice(("nothing", "damaged", "none", "hosts.toml"))
    odd = [
        ["live", "scenario.toml", "--processes", rng.choice(_WORDS[3:])],
        ["live", "scenario.toml", "--host", rng.choice(_WORDS)],
        ["calibrate", "scenario.toml", "--out", rng.choice(("scenario.toml", "nothing", "none/x.toml"))],
    ]
    refused = [*live, "--host", rng.choice(("a", *_WORDS)), "--certificates", folder]
    return words, [made, refused, rng.choice(odd)]

"""Finished results of a scenario that has been run before."""

from __future__ import annotations

import glob
import re
import tomllib
from contextlib import suppress
from pathlib import Path

from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.run.resume.resuming import Provenance
from sim.run.save.provenance import package_version
from sim.run.setup.builder import with_engine
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario

_HASH = r"[0-9a-f]{8}"


def finished_run(scenario: Scenario, out: Path, device: str) -> Path | None:
    """Return the folder in `out` with intact, finished results of a scenario by this version, or None.

    device: "auto" for results from any device.
    """
    name = f"{scenario.name}-{scenario.run.seed}-"
    for folder in sorted(out.glob(f"{glob.escape(name)}*")) if out.is_dir() else ():
        if match := re.fullmatch(rf"({_HASH})(-\d+)?", folder.name.removeprefix(name)):
            with suppress(UserError):
                if _is_finished(scenario, folder, match[1], device):
                    return folder
    return None


def _is_finished(scenario: Scenario, folder: Path, stated: str, device: str) -> bool:
    """Return True for finished results of a scenario. stated: the digest in the folder's name."""
    directory, made = RunDirectory.load(folder), Provenance.of(folder)
    if made.coterie != package_version("coterie") or "live" in directory.summary():
        return False
    if device not in ("auto", made.machine.device.partition(":")[0]):
        return False
    engine = tomllib.loads(directory.file("scenario.toml").read_text(encoding="utf-8"))["engine"]
    chosen = {}  # settings that a run decides at its start
    if scenario.engine.way in ("auto", "fastest"):
        chosen["way"] = engine["way"]
    if scenario.engine.threads == "fastest":
        chosen["threads"] = engine["threads"]
    if digest(with_engine(scenario, **chosen)) != stated or not directory.summary()["finished"]:
        return False
    load_checked(folder)
    return True

"""explore.html: a self-contained page in which a reader steps through a run in virtual time."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import UserError
from sim.files.input_file import SETTINGS_BYTES, read_regular
from sim.results.explore.data import Content, Sources, run_page_content
from sim.results.report.columns import json_for_script, packed
from sim.results.report.html import rendered_page, show_explore_link
from sim.results.store.output_dir import EXPLORE, REPORT
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView


@dataclass(frozen=True)
class SecondRun:
    """Run that a page shows beside the first one, in step with it.

    cuts: start and end (s) of each network partition. difference: time (s), events of both runs in words, and
    the actor of the first difference; None if all events are equal.
    """

    directory: RunDirectory
    sources: Sources | str
    cuts: Sequence[tuple[float, float]] = ()
    difference: tuple[float, tuple[str, str], str] | None = None


def write_page(
    directory: RunDirectory,
    sources: Sources | str,
    *,
    cuts: Sequence[tuple[float, float]] = (),
    at_s: float = 0.0,
    client: int | None = None,
    second: SecondRun | None = None,
) -> Path:
    """Write explore.html into the results folder of the run, or of the second run if given; return its path.

    A report in that folder then has a link to it. The arguments are as for `run_page_content`. Raises
    OSError.
    """
    folder = directory if second is None else second.directory
    written = page(directory, sources, cuts=cuts, at_s=at_s, client=client, second=second)
    path = folder.write_page(EXPLORE, written)
    _link_from_report(folder)
    return path


def _link_from_report(directory: RunDirectory) -> None:
    """Show the report's link to the page; a missing or damaged report stays as it is."""
    with suppress(OSError, UserError, UnicodeDecodeError):
        report = read_regular(directory.path / REPORT, SETTINGS_BYTES).decode("utf-8")
        if (linked := show_explore_link(report)) != report:
            directory.write_report(linked)


def page(
    directory: RunDirectory,
    sources: Sources | str,
    *,
    cuts: Sequence[tuple[float, float]] = (),
    at_s: float = 0.0,
    client: int | None = None,
    second: SecondRun | None = None,
) -> str:
    """Return the page of a run, or of two runs that share a past."""
    with np.errstate(over="ignore", invalid="ignore"):  # diverged values
        contents = [
            run_page_content(directory, RunView(directory), sources, cuts=cuts, at_s=at_s, client=client)
        ]
        if second is not None:
            other = second.directory
            contents.append(
                run_page_content(other, RunView(other), second.sources, cuts=second.cuts, at_s=at_s)
            )
            runs = [directory.path.name, other.path.name]
            contents[0].facts["pair"] = {"runs": runs, "difference": _difference(second)}
    first = contents[0].facts
    return rendered_page(
        "explore.html",
        scenario=first["scenario"],
        question=first["question"],
        sides=[_template_values(*each) for each in zip(("", "-2"), contents, strict=False)],
        runs=first.get("pair", {}).get("runs"),
    )


def _template_values(suffix: str, content: Content) -> dict[str, Any]:
    """Return the template's values for one run. suffix: ends the ids of its elements."""
    index, data = packed(content.columns)
    facts = content.facts
    return {
        "suffix": suffix,
        "notes": facts["notes"],
        "no_sources": facts.get("no_sources", ""),
        "sources_note": (facts["sources"] or {}).get("note", ""),
        "facts": json_for_script({"facts": facts, "columns": index}),
        "data": data,
    }


def _difference(second: SecondRun) -> dict[str, Any] | None:
    if second.difference is None:
        return None
    time_s, events, actor = second.difference
    return {"time": time_s, "events": events, "actor": actor}

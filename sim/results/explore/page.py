"""explore.html: a self-contained page on which a run is walked through in time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.results.explore.data import Sources, content_of
from sim.results.report.columns import inert, packed
from sim.results.report.html import rendered_page
from sim.results.store.output_dir import EXPLORE
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView


def write_page(
    directory: RunDirectory,
    sources: Sources | str,
    *,
    cuts: Sequence[tuple[float, float]] = (),
    at_s: float = 0.0,
    client: int | None = None,
) -> Path:
    """Write explore.html into a results folder, and return its path. Raises OSError.

    The arguments are those of `content_of`.
    """
    return directory.write_page(EXPLORE, page(directory, sources, cuts=cuts, at_s=at_s, client=client))


def page(
    directory: RunDirectory,
    sources: Sources | str,
    *,
    cuts: Sequence[tuple[float, float]] = (),
    at_s: float = 0.0,
    client: int | None = None,
) -> str:
    """Return the page of a run."""
    with np.errstate(over="ignore", invalid="ignore"):  # diverged values
        content = content_of(directory, RunView(directory), sources, cuts=cuts, at_s=at_s, client=client)
    index, data = packed(content.columns)
    facts = content.facts
    return rendered_page(
        "explore.html",
        scenario=facts["scenario"],
        question=facts["question"],
        notes=facts["notes"],
        no_sources=facts.get("no_sources", ""),
        sources_note=(facts["sources"] or {}).get("note", ""),
        facts=inert({"facts": facts, "columns": index}),
        data=data,
    )

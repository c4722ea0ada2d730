"""explore.html of a run, with the lineage of its models from a replay."""

import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from actors.settings.units import DURATION
from sim.errors import UserError
from sim.results.explore.data import Sources
from sim.results.explore.page import SecondRun, write_page
from sim.results.store.output_dir import READS
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.view import RunView
from sim.run.resume.lineage import lineage_of
from sim.run.resume.pasts import first_difference
from sim.world.participants import client_number

_RECENT = 1 / 8  # of the run: training that began at most this long before an evaluation is recent
_MOST_SHARES = 2_000_000  # shares in a page: bounds the replay's memory and the page's size


def explore_run(
    path: Path,
    *,
    at_s: float | None = None,
    client: int | str | None = None,
    beside: Path | None = None,
    made_of: bool = True,
    data_dir: Path | None = None,
    code: bool = True,
    notice: Callable[[str], None] | None = None,
) -> Path:
    """Write explore.html into the results folder of a run, and return its path.

    at_s: time that the page shows first. client: number or name of the client that the page shows first.
    beside: a second run with the same past, shown beside the run; the page is then in the second run's
    folder. made_of: replay the runs for the lineage of their models. Raises UserError for a folder without
    complete results, an unknown client, or a time after the run's end; OSError if the page cannot be written.
    """
    directory = load_checked(path)
    view = RunView(directory)
    number = None if client is None else client_number(client, view.clients)
    if at_s is not None and at_s > view.end_s:
        raise UserError(f"{path}: the run ended at {view.end_s:g} s, before the requested time, {at_s:g} s")
    sources_of = partial(_sources, made_of=made_of, data_dir=data_dir, code=code, notice=notice)
    second = None
    if beside is not None:
        other = load_checked(beside)
        difference = first_difference(directory, other)
        if difference is not None:
            at_s = difference.time_s if at_s is None else at_s
            if number is None and difference.actor in view.clients:
                number = view.clients.index(difference.actor)
        seen = RunView(other)
        second = SecondRun(
            other, sources_of(other, seen), network_partition_times(seen.scenario_text), difference
        )
    cuts = network_partition_times(view.scenario_text)
    sources = sources_of(directory, view)
    return write_page(directory, sources, cuts=cuts, at_s=at_s or 0.0, client=number, second=second)


def _sources(
    directory: RunDirectory,
    view: RunView,
    *,
    made_of: bool,
    data_dir: Path | None,
    code: bool,
    notice: Callable[[str], None] | None,
) -> Sources | str:
    """Return the lineage of the run, or a sentence that tells why it is missing."""
    evaluations = 0 if view.measure is None else len(view.measure[1].times)
    if not made_of:
        return "The sources of the models are unknown: the page was written with --no-replay."
    if len(view.clients) ** 2 * evaluations > _MOST_SHARES:
        return (
            f"The sources of the models of {len(view.clients):,} clients are too many for this page; "
            "coterie explain --made-of prints the sources of one client's model."
        )
    if not (directory.path / READS).is_file():
        return (
            f"The sources of the models are unknown: this run has no {READS}, so it cannot be replayed. Live "
            "runs and runs of the first versions of coterie have none."
        )
    recent_s = _RECENT * view.end_s
    try:
        lineage = lineage_of(directory.path, recent_s=recent_s, data_dir=data_dir, code=code, notice=notice)
    except UserError as error:
        where = f"{directory.path}"  # a page that is passed on does not name folders of this machine
        return f"The sources of the models are unknown: {str(error).replace(where, 'the run')}"
    counts: Counter[str] = Counter()
    for (reason, _), count in lineage.reads.items():
        counts[reason] += count
    reads = "; ".join([f"{reason}, {count:,} times" for reason, count in counts.items()])
    return Sources(lineage.sources, recent_s, f"Shares leave out: {reads}." if reads else "")


def network_partition_times(scenario: str) -> list[tuple[float, float]]:
    """Return start and end (s) of each network partition in a scenario's text; none if it is damaged."""
    try:
        cuts = tomllib.loads(scenario)["network"]["partition"]
        return [(_seconds(cut["start"]), _seconds(cut["end"])) for cut in cuts]
    except (ValueError, KeyError, TypeError):
        return []


def _seconds(value: Any) -> float:
    return DURATION.parse(value) if isinstance(value, str) else float(value)

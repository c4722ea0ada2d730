"""Output of the command line for a run: a progress line during the run, and a table of results at the end."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sim.results import outcome, text
from sim.results.measures import MEASURES, Measure, measure_called
from sim.run.save.progress import RUNNING, Progress

_PLAIN_EVERY_S = 60.0
_WIDTH_MIN = 20  # characters; rich cannot draw a table in one


class Terminal(Console):
    """Console of the command line, for terminals of any width and for closed pipes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.width < _WIDTH_MIN:
            self.width = _WIDTH_MIN

    def on_broken_pipe(self) -> None:
        """Raise the error for the caller. rich would end the process."""
        raise BrokenPipeError


class StatusLine:
    """Progress display: a bar on a terminal, otherwise a line per minute; empty with `quiet`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._bar: Bar | None = None
        self._printed_s = 0.0
        if console.is_terminal and not quiet:
            column = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # one line on a narrow terminal
            description = TextColumn("{task.description}", table_column=column)
            columns = BarColumn(16), TimeElapsedColumn(), description
            self._bar = Bar(*columns, console=console, transient=True, expand=True)
            self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            with suppress(OSError):  # the pipe is closed
                self._bar.stop()

    def print(self, line: str) -> None:
        """Print a permanent line."""
        with suppress(OSError):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, line: str, share: float | None, elapsed_s: float, *, now: bool = False) -> bool:
        """Show a line, and on a terminal the finished share, if it is known.

        Without a terminal, the line is printed once per minute, or always with `now`. Returns True if the
        line was printed; False on a terminal, and with `quiet`.
        """
        if self._bar is not None:
            self._bar.update(
                self._task, description=line, completed=share or 0, total=None if share is None else 1
            )
        elif not self._quiet and (now or elapsed_s - self._printed_s >= _PLAIN_EVERY_S):
            self._printed_s = elapsed_s
            elapsed = f"{text.duration(round(elapsed_s))} elapsed"
            self._console.print(f"{elapsed}, {line}", highlight=False, soft_wrap=True)
            return True
        return False


class ProgressLine(StatusLine):
    """A callable that shows the progress of a run."""

    _phase = RUNNING

    def __call__(self, progress: Progress) -> None:
        share: float | None = max([share for share in progress.shares if share is not None], default=0.0)
        if progress.phase != RUNNING:  # its progress is unknown
            share = None
        # Print a new phase immediately, but not in a run that ends before its first line is due.
        is_new_phase = progress.phase != self._phase and self._printed_s > 0
        if self.update(", ".join(_parts(progress)), share, progress.elapsed_s, now=is_new_phase):
            self._phase = progress.phase


def _parts(progress: Progress) -> list[str]:
    """Return the parts of the progress line, the most important first."""
    if progress.phase != RUNNING:
        return [progress.phase]
    parts = []
    if progress.remaining_s is not None:
        parts.append(f"about {text.duration(round(progress.remaining_s))} left")
    limit = f" of {text.duration(progress.duration_s)}" if progress.duration_s is not None else ""
    parts.append(f"virtual time {text.duration(progress.virtual_s)}{limit}")
    if progress.iterations is not None:
        parts.append(f"{progress.iterations:,} of {progress.last_iteration:,} iterations")
    if progress.budget_spent is not None:
        parts.append(f"{text.share(progress.budget_spent)} of the budget used")
    if progress.reached is not None:
        parts.append(f"{progress.measure.name} {progress.measure.text(progress.reached)}")
    if progress.diverged:
        parts.append(f"{text.counted(progress.diverged, 'model')} not finite")
    parts.append(f"{text.counted(progress.clients_up, 'client')} up")
    parts.append(text.counted(progress.messages, "message"))
    parts.append(f"{progress.updates_per_s:,.0f} updates/s")
    return parts


def results_table(summary: Mapping[str, Any]) -> Table:
    """Return the table of a run's summary.json, without rows that have no value in this run."""
    table = Table(
        title=escape(f"{summary['scenario']}, seed {summary['seed']}"), show_header=False, min_width=60
    )
    table.add_column(style="bold")
    table.add_column()
    if (after := outcome.interrupted(summary)) is not None:
        table.add_row("interrupted", after, style="red")
    for line in outcome.main_problems(summary):
        table.add_row("problem", escape(line), style="red")
    for name, value in _rows(summary):
        table.add_row(name, escape(value))
    return table


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    accuracy, graph, clients = summary["accuracy"], summary["graph"], summary["clients"]
    messages, wall_s = summary["messages"], summary["wall_seconds"]
    judged_by = measure_called(summary.get("measure", "accuracy"))
    rows = [("protocol", outcome.protocol(summary))]
    if (forked := outcome.fork_origin_text(summary)) is not None:
        rows.append(("fork", forked.removeprefix("fork ")))
    if (converged := outcome.convergence(summary)) is not None:
        rows.append(("end", converged))
    if accuracy["mean"] is not None:
        rows.append(("accuracy", f"{_spread(accuracy, MEASURES[0])} ({outcome.clients_text(summary)})"))
    for measure in MEASURES:
        mean = (summary.get(measure.name) or {}).get("mean")
        if mean is not None and measure.name != "accuracy":
            rows.append((measure.label, measure.text(mean)))
    if (settled := summary["settled"]) is not None:
        since = f"{settled['clients']:,} with at least {settled['iterations']:,} iterations since they joined"
        rows.append(("settled clients", f"{_spread(settled, judged_by)} ({since})"))
    if summary["better_than_alone"] is not None:
        rows.append(("better than alone", f"{text.share(summary['better_than_alone'])} of the clients"))
    if summary.get("help") is not None:
        rows.append(("gain over training alone", _gain_text(summary["help"], is_share=judged_by.is_share)))
    if graph["l1"] is not None:
        edges = f"precision {text.share(graph['edge_precision'])}, recall {text.share(graph['edge_recall'])}"
        rows.append(("learned graph", f"edges: {edges}; L1 distance {text.number(graph['l1'])}"))
    first, last = f"{clients['initial']:,} at the start", f"{clients['alive']:,} at the end"
    rows.append(("clients", ", ".join([first, *outcome.move_counts_text(summary), last])))
    rows += _population_rows(summary["population"], judged_by)
    fates = [f"{messages[fate]:,} {fate}" for fate in ("lost", "dropped", "duplicated") if messages[fate]]
    rows.append(("messages", ", ".join([f"{messages['sent']:,} ({text.size(messages['bytes'])})", *fates])))
    membership = summary["membership"]
    if membership["sent"]:
        share = text.share(membership["bytes"] / messages["bytes"])
        counted = f"{membership['sent']:,} ({text.size(membership['bytes'])}, {share} of all bytes)"
        rows.append(("membership messages", counted))
    lasted, took = text.duration(summary["virtual_seconds"]), text.duration(wall_s)
    wall_clock = f"{lasted} of wall-clock time, {took} with setup and results"
    rows.append(("time", wall_clock if "live" in summary else f"{lasted} virtual, simulated in {took}"))
    if (used := outcome.energy(summary)) is not None:
        rows.append(("energy", used))
    if (work := summary.get("work")) is not None:
        spans = [(name, work[name]) for name in ("steps", "gradients", "samples") if work[name]["max"]]
        parts = [f"{range_text(*(f'{of[end]:,}' for end in ('min', 'max')))} {name}" for name, of in spans]
        rows.append(("training per client", ", ".join(parts) or "none"))
    engine = summary["engine"]
    if wall_s > 0:
        rows.append(("updates", f"{engine['updates']:,} ({engine['updates'] / wall_s:,.0f}/s)"))
    memory = f"{text.size(engine['memory'])} of vectors, {text.size(engine['memory_per_client'])} per client"
    rows.append(("engine", f"{', '.join(engine['ways'])} on {engine['device']}; {memory}"))
    rows.append(("trace hash", str(summary["trace_hash"])))
    return rows


def range_text(least: str, most: str) -> str:
    """Return the two ends of a range in words, or one if they are the same."""
    return least if least == most else f"{least} to {most}"


def _spread(values: Mapping[str, Any], measure: Measure) -> str:
    spread = f"± {measure.text(values['std'])}, worst 10%: {measure.text(values['worst_decile'])}"
    return f"{measure.text(values['mean'])} {spread}"


def _gain_text(gained: Mapping[str, Any], *, is_share: bool) -> str:
    """Return the clients' gain over training alone, as text: the mean, the smallest and the largest gain."""

    def formatted(value: float) -> str:
        return text.percentage_points(value) if is_share else f"{value:+,.4g}"

    unit = " points" if is_share else ""
    mean = f"{formatted(gained['mean_gain'])}{unit} on average"
    least, most = gained["least"], gained["most"]
    if least["gain"] == most["gain"]:
        return f"{mean}, the same for all"
    ends = [f"{formatted(end['gain'])} ({end['client']})" for end in (least, most)]
    return f"{mean}, {ends[0]} to {ends[1]}, {gained['worse']:,} worse off"


def _population_rows(population: Mapping[str, Any] | None, measure: Measure) -> list[tuple[str, str]]:
    """Return rows about newcomers and departures, if there were newcomers or losses after a departure."""
    rows: list[tuple[str, str]] = []
    if population is None:
        return rows
    if population["newcomers"]:
        rows.append(("newcomers", outcome.catching_up(population, measure)))
    if population["departures"] and (depth := population["deepest_dip"]) > 0:
        times = population["recovery_seconds"]
        took = f", in at most {text.duration(times['max'])}" if times["max"] is not None else ""
        dip = f"{measure.name} {measure.worsened} by {measure.loss(depth)} at most"
        recovered = f"recovered after {population['recovered']} of {population['departures']}"
        rows.append(("departures", f"{dip}; {recovered}{took}"))
    return rows

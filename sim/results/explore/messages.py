"""Messages of a run as columns: all messages, or those in a window of time, and counts by bin of time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results import text
from sim.results.explore.clock import Ticks
from sim.results.report.columns import PageColumn, whole_number_column
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import MESSAGE_EVENTS
from sim.results.view import RunView

MOST_MESSAGES = 500_000
"""Number of messages above which a page has only a window of them, and counts of the others."""
_MOST_BINS = 600
_MOST_NUMBERS = 400_000  # actors times bins
ON_ITS_WAY = "on its way at the end"
_MODEL_SHARE = 0.25  # of the largest mean size of a type: smaller messages hold no model


@dataclass(frozen=True)
class Messages:
    """Messages between actors, sorted by the time of sending.

    names: actors. table: one row per message with `sent` and `end` in seconds, `from` and `to` as numbers of
    actors, `type`, `fate` (delivered, lost, dropped), `why`, and `bytes`.
    """

    names: tuple[str, ...]
    table: pl.DataFrame

    @property
    def types(self) -> list[str]:
        return self.table["type"].unique().sort().to_list()

    def large_types(self) -> list[bool]:
        """Return for each type whether its messages are large, as models are."""
        means = dict(self.table.group_by("type").agg(pl.col("bytes").mean()).iter_rows())
        largest = max(means.values(), default=0.0)
        return [means[kind] >= _MODEL_SHARE * largest for kind in self.types]

    def window(self, at_s: float, end_s: float) -> tuple[pl.DataFrame, float, float]:
        """Return about MOST_MESSAGES messages around a time, and the interval in which none is missing.

        end_s: end of the run.
        """
        table, count = self.table, len(self.table)
        if count <= MOST_MESSAGES:
            return table, 0.0, end_s
        middle = int(table["sent"].search_sorted(at_s))
        first = min(max(0, middle - MOST_MESSAGES // 2), count - MOST_MESSAGES)
        end = first + MOST_MESSAGES
        from_s = float(table["sent"][first]) if first else 0.0
        earlier = table.head(first).filter(pl.col("end") > from_s)  # on their way when the window starts
        rows = pl.concat([earlier, table.slice(first, end - first)])
        return rows, from_s, end_s if end == count else float(table["sent"][end])

    def columns(self, clock: Ticks, rows: pl.DataFrame) -> tuple[dict[str, PageColumn], dict[str, Any]]:
        """Return rows of the table as columns, and the texts to which numbers in these columns refer."""
        sent = clock.ticks(rows["sent"])
        fates = rows.select(pl.concat_str("fate", "why", separator="\n"))["fate"]
        known = fates.unique().sort().to_list()
        columns = {
            "sent": whole_number_column(sent, rises=True),
            "took": whole_number_column(clock.ticks(rows["end"]) - sent),
            "from": whole_number_column(rows["from"]),
            "to": whole_number_column(rows["to"]),
            "type": whole_number_column(_positions_in_known(rows["type"], self.types)),
            "fate": whole_number_column(_positions_in_known(fates, known)),
            "bytes": whole_number_column(rows["bytes"]),
        }
        texts = {
            "types": list(map(text.message_type, self.types)),
            "large": self.large_types(),
            "fates": [each.split("\n", 1) for each in known],
        }
        return columns, texts

    def bins(self, end_s: float) -> tuple[dict[str, PageColumn], int]:
        """Return the counts of messages by bin of time and actor, and the number of bins.

        sent_in: by sender. got_in: delivered, by receiver. failed_in: lost or dropped, by receiver.
        """
        count = max(1, min(_MOST_BINS, _MOST_NUMBERS // max(1, len(self.names))))
        table = self.table
        of = {
            "sent_in": (table["sent"], table["from"]),
            "got_in": _ends_and_receivers(table, pl.col("fate") == "delivered"),
            "failed_in": _ends_and_receivers(table, pl.col("fate").is_in(["lost", "dropped"])),
        }
        return {
            name: whole_number_column(self._counts(*each, end_s, count)) for name, each in of.items()
        }, count

    def _counts(self, times: pl.Series, actors: pl.Series, end_s: float, bins: int) -> NDArray[np.int64]:
        place = np.minimum((times.to_numpy() / (end_s or 1.0) * bins).astype(np.int64), bins - 1)
        cells = place * len(self.names) + actors.to_numpy()
        return np.bincount(cells, minlength=bins * len(self.names))


def read_messages(directory: RunDirectory, view: RunView) -> Messages | None:
    """Return the messages of a run; None if it kept none, or kept them without numbers."""
    events = directory.scan("events").filter(pl.col("event").is_in(MESSAGE_EVENTS))
    times = pl.col("time").is_finite() & pl.col("time").is_between(0.0, view.end_s)
    rows = events.filter(times).drop_nulls(["message", "actor", "peer"])
    rows = rows.with_columns(pl.col("type", "detail").fill_null(""), pl.col("bytes").fill_null(0))
    sent = rows.filter(event="sent").unique("message", keep="first", maintain_order=True)
    ends = rows.filter(pl.col("event") != "sent").select(
        "message", end="time", fate="event", why="detail", **{f"{each}_": each for each in _ADDRESS}
    )
    both = sent.join(ends, on="message", how="full", coalesce=True)
    table = both.select(
        sent=pl.coalesce(pl.min_horizontal("time", "end"), "end"),
        end=pl.max_horizontal("time", "end", pl.when(pl.col("end").is_null()).then(view.end_s)),
        fate=pl.col("fate").fill_null(ON_ITS_WAY),
        why=pl.col("why").fill_null(""),
        message="message",
        **{each: pl.coalesce(each, f"{each}_") for each in _ADDRESS},
    ).sort("sent", "message", "end")
    frame = table.collect()
    if frame.is_empty():
        return None
    others = set(frame["actor"].unique()) | set(frame["peer"].unique())
    names = (*view.clients, *sorted(others - set(view.clients)))
    frame = frame.with_columns(
        pl.col("bytes").clip(0),
        pl.Series("from", _positions_in_known(frame["actor"], names)),
        pl.Series("to", _positions_in_known(frame["peer"], names)),
    )
    return Messages(names, frame.drop("actor", "peer", "message"))


_ADDRESS = ("actor", "peer", "type", "bytes")


def _ends_and_receivers(table: pl.DataFrame, fate: pl.Expr) -> tuple[pl.Series, pl.Series]:
    rows = table.filter(fate)
    return rows["end"], rows["to"]


def _positions_in_known(texts: pl.Series, known: Any) -> pl.Series:
    """Return the position of each text in `known`."""
    return texts.replace_strict(list(known), list(range(len(known))), return_dtype=pl.Int64)

"""Lineage of one model in words and tables, for the terminal."""

from collections.abc import Iterator

import polars as pl

from sim.run.resume.lineage import COMPUTED, GIVEN, START, TRAINING, RunLineage

_OWN, _CLUSTER, _OTHERS = "itself", "its cluster", "other clients"
_SOURCES_MAX = 8  # clients in a line
_OF_OTHER_KINDS = {
    START: "the initial models",
    GIVEN: "values that the method gave",
    COMPUTED: "results of {source}",
}


def model_source_lines(lineage: RunLineage, client: int) -> Iterator[str]:
    """Yield lines about the sources of the last known model of a client."""
    name, rows = lineage.names[client], lineage.sources.filter(pl.col("client") == client)
    if rows.is_empty():
        yield f"{name} is down at this time, so it has no model"
        return
    time_s = float(rows["time"].max())  # type: ignore[arg-type]
    rows = rows.filter(pl.col("time") == time_s)
    training = rows.filter(pl.col("kind") == TRAINING)
    if training.is_empty():
        yield f"The model of {name} at {time_s:g} s contains no training."
    else:
        yield f"Training in the model of {name} at {time_s:g} s, by the time at which it began:"
        yield ""
        yield from _by_window(lineage, client, training)
        yield ""
        yield f"Latest training: {_largest_recent_sources(training)}"
    for kind, source, weight in rows.filter(pl.col("kind") != TRAINING)["kind", "source", "weight"].rows():
        what = _OF_OTHER_KINDS[kind].format(source=source)
        yield f"Also part of the model: {what}, coefficient {weight:.3g}"
    for (reason, of), count in lineage.reads.items():
        yield f"Not in these shares: {reason}, {count:,} times{f' by {of}' if of else ''}"
    yield (
        "A share is a sum of |coefficient| x training steps. It describes the sum that makes up the model, "
        "not what a client's absence would change; `coterie fork --without` answers that."
    )


def _by_window(lineage: RunLineage, client: int, training: pl.DataFrame) -> Iterator[str]:
    """Yield a table: the shares of the client itself, its cluster, and others, by window."""
    groups = [_OWN, _OTHERS] if lineage.clusters is None else [_OWN, _CLUSTER, _OTHERS]
    of = {source: _group(lineage, client, source) for source in range(len(lineage.names))}
    yield f"{'from':>10}{'to':>10}" + "".join(f"{group:>15}" for group in groups)
    for (first, last), rows in training.sort("from").group_by("from", "to", maintain_order=True):
        shares = dict.fromkeys(groups, 0.0)
        for source, share in rows["source_client", "share"].rows():
            shares[of[source]] += share
        yield f"{_seconds(first):>10}{_seconds(last):>10}" + "".join(
            f"{shares[group]:>15.1%}" for group in groups
        )


def _group(lineage: RunLineage, client: int, source: int) -> str:
    if source == client:
        return _OWN
    clusters = lineage.clusters
    return _CLUSTER if clusters is not None and clusters[source] == clusters[client] else _OTHERS


def _largest_recent_sources(training: pl.DataFrame) -> str:
    """Return the clients with the largest shares in the last window."""
    last = training.filter(pl.col("from") == pl.col("from").max())
    last = last.sort("share", "source", descending=[True, False])
    parts = [f"{source} {share:.1%}" for source, share in last["source", "share"].rows()]
    more = len(parts) - _SOURCES_MAX
    return ", ".join(parts[:_SOURCES_MAX]) + (f", and {more} more" if more > 0 else "")


def _seconds(value: object) -> str:
    return f"{value:g} s"

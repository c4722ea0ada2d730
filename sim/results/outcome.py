"""What a run's summary says, in words: what went wrong, whose numbers these are, how newcomers fared."""

from collections.abc import Mapping
from typing import Any

from sim.results import text
from sim.results.measures import MEASURES, Measure, measure_called

_ERROR_LENGTH = 200
_MOVES = ("joined", "rejoined", "restarted", "left", "crashed", "failed")


def headlines(summary: Mapping[str, Any]) -> list[str]:
    """What went wrong, which must be known before the numbers are read; empty if nothing did."""
    parts = (_ended, _failed, _restarted, _diverged, _fruitless, _uncounted)
    return [line for part in parts if (line := part(summary)) is not None]


def answer(summary: Mapping[str, Any]) -> str:
    """What the run found, in a sentence, as far as it was measured; empty if nothing was."""
    parts, gains = [], summary.get("help") or {}
    if (found := judged(summary)) is not None:
        measure, mean = found
        reached = f"the {measure.label} is {measure.text(mean)} on average"
        if measure.name == "accuracy":
            reached = f"the clients reach {measure.text(mean)} on average"
        parts.append(reached)
        if gains.get("mean_gain") is not None:
            better, difference = summary["better_than_alone"], measure.difference(gains["mean_gain"])
            some = f"{text.share(better)} of the clients do"
            who = {0.0: "no client does", 1.0: "all clients do"}.get(better, some)
            parts.append(f"{who} better than alone, with a mean difference of {difference}")
    graph = summary.get("graph") or {}
    if graph.get("edge_recall") is not None:
        true = "no edge was learned"
        if graph["edge_precision"] is not None:
            true = f"{text.share(graph['edge_precision'])} of the learned edges are true"
        parts.append(f"{true}, {text.share(graph['edge_recall'])} of the true ones were learned")
    population = summary.get("population") or {}
    if population.get("newcomers"):
        who = _of_all(population["caught_up"], population["newcomers"], "newcomer")
        parts.append(f"{who} caught up with the others")
    if population.get("departures"):
        back = _of_all(population["recovered"], population["departures"], "departure")
        parts.append(f"after {back} the others were back where they had been")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _of_all(count: int, total: int, what: str) -> str:
    if count == total:
        return f"the {what}" if total == 1 else f"all {total:,} {what}s"
    return f"{count:,} of {total:,} {what}s"


def judged(summary: Mapping[str, Any]) -> tuple[Measure, float] | None:
    """What clients are judged by, and its mean at the end; None if nothing was measured."""
    name = summary.get("measure", "accuracy")
    mean = (summary.get(name) or {}).get("mean")
    return None if mean is None else (measure_called(name), mean)


def why_failed(summary: Mapping[str, Any], length: int | None = _ERROR_LENGTH) -> str | None:
    """Why a run that has results counts as failed; None if it does not.

    It does if code failed for good, which no restart mended, and if no model that is left is finite. length:
    how much is shown of an error; None for all of it.
    """
    if (failed := _failed(summary, length)) is not None:
        return failed
    not_finite = summary.get("non_finite") or {}
    all_of_them = not_finite.get("at_end") and len(not_finite["at_end"]) == summary["clients"]["alive"]
    return _diverged(summary) if all_of_them else None


def protocol(summary: Mapping[str, Any]) -> str:
    """The protocol, and whether it was run without any help of peers, as a control."""
    return str(summary.get("protocol")) + (", alone" if summary.get("alone") else "")


def whom(summary: Mapping[str, Any]) -> str:
    """Whose numbers count at the end: those of the clients that are up with a finite model."""
    counted, known = summary[summary.get("measure", "accuracy")]["clients"], len(summary["client_names"])
    return f"{known:,} clients" if counted == known else f"{counted:,} of {known:,} clients"


def interrupted(summary: Mapping[str, Any]) -> str | None:
    """After how much virtual time a signal ended the run; None if none did."""
    if not summary.get("interrupted"):
        return None
    planned_s = summary.get("planned_seconds")  # None if the run was to end by iterations
    planned = "" if planned_s is None else f" of {text.duration(planned_s)}"
    return f"after {text.duration(summary.get('virtual_seconds'))}{planned}"


def moves(summary: Mapping[str, Any]) -> list[str]:
    """How many clients joined, rejoined, left, crashed, ...; what nobody did is left out."""
    counts = summary.get("clients") or {}
    return [f"{text.number(counts[move])} {move}" for move in _MOVES if counts.get(move)]


def catching_up(population: Mapping[str, Any], measure: Measure = MEASURES[0]) -> str:
    """How many newcomers caught up, what became of the others, and the median time that it takes."""
    median_s = population["catch_up_seconds"]["median"]
    went, behind = population["went_before"], population["still_behind"]
    count, back = population["newcomers"], population["came_back"]
    who = f"{count:,} ({count - back:,} joined, {back:,} came back fresh)" if back else f"{count:,}"
    caught_up = f"{population['caught_up']:,} of {who} reached {measure.caught_up} of the others'"
    others = [f"{went:,} went before"] * bool(went) + [f"{behind:,} still behind"] * bool(behind)
    took = "not reached by half" if median_s is None else f"median {text.duration(median_s)}"
    return f"{', '.join([f'{caught_up} {measure.name}', *others])}; {took} (Kaplan-Meier)"


def _ended(summary: Mapping[str, Any]) -> str | None:
    why, converged_s = summary.get("ended_by"), summary.get("converged_seconds")
    if why is None and converged_s is not None:
        return f"ended at {text.duration(converged_s)}: training had converged"
    return None if why is None else f"ended before its time: {_shortened(why)}"


def _failed(summary: Mapping[str, Any], length: int | None = _ERROR_LENGTH) -> str | None:
    failed = summary.get("failed") or {}
    if not failed.get("stopped"):
        return None
    actors, first = failed["stopped"], failed["first"]
    clients = set(actors) & set(summary["client_names"])
    others = [actor for actor in actors if actor not in clients]
    who = [f"{len(clients)} of {len(summary['client_names'])} clients"] if clients else []
    more = ", and other errors" if failed["errors"] > 1 else ""
    when = f"first: {first['actor']} at {text.duration(first['seconds'])}"
    when += f", {place}" if (place := first.get("place")) else ""
    error = first["error"] if length is None else _shortened(first["error"], length)
    return f"{' and '.join(who + others)} failed: {error}{more} ({when})"


def _restarted(summary: Mapping[str, Any]) -> str | None:
    restarts = (summary.get("failed") or {}).get("restarts")
    if not restarts:
        return None
    return f"{restarts} {'failure was' if restarts == 1 else 'failures were'} followed by a restart"


def _diverged(summary: Mapping[str, Any]) -> str | None:
    not_finite = summary.get("non_finite")
    if not not_finite:
        return None
    count, up = len(not_finite["at_end"]), summary["clients"]["alive"]
    first = (
        f"first: {not_finite['found']} of {not_finite['client']} at {text.duration(not_finite['seconds'])}"
    )
    return f"diverged: {count} of {up} models are not finite at the end ({first})"


def _fruitless(summary: Mapping[str, Any]) -> str | None:
    rounds = summary.get("rounds") or {"waits": 0, "in_vain": 0}
    if not rounds["in_vain"] or 2 * rounds["in_vain"] < rounds["waits"]:
        return None
    return (
        f"{rounds['in_vain']:,} of {rounds['waits']:,} waits for a round's messages were in vain: nobody's "
        "came within protocol.patience"
    )


def _uncounted(summary: Mapping[str, Any]) -> str | None:
    names = summary.get("uncounted")
    if not names:
        return None
    return f"no formula counts the operations of {', '.join(names)}: FLOPs, and times by them, are estimates"


def _shortened(error: str, length: int = _ERROR_LENGTH) -> str:
    line, _, rest = error.partition("\n")
    return line[:length] + "\N{HORIZONTAL ELLIPSIS}" if rest or len(line) > length else line

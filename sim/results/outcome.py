"""Texts about a run's summary: problems, clients that count, and newcomers."""

from collections.abc import Mapping
from typing import Any

from sim.errors import one_line
from sim.results import text
from sim.results.measures import MEASURES, Measure, measure_called

_ERROR_LENGTH = 200
_MOVES = ("joined", "rejoined", "restarted", "left", "crashed", "failed")


def main_problems(summary: Mapping[str, Any]) -> list[str]:
    """Return the problems of a run to read before its results; empty without problems."""
    parts = (_ended_early, _failed, _restarted, _diverged, _vain_waits_text, _missing_formulas_text)
    return [line for part in parts if (line := part(summary)) is not None]


def cautions(summary: Mapping[str, Any]) -> list[str]:
    """Return all warnings of a run: its problems and the lines under `warnings` in its summary."""
    lines = [*main_problems(summary), *map(str, summary.get("warnings") or ())]
    return list(dict.fromkeys(line.replace("\N{NO-BREAK SPACE}", " ") for line in lines))


def result_sentence(summary: Mapping[str, Any]) -> str:
    """Return the main results of a run in one sentence; empty without evaluations."""
    parts, gains = [], summary.get("help") or {}
    if (found := final_measure_and_mean(summary)) is not None:
        measure, mean = found
        reached = f"the {measure.label} is {measure.text(mean)} on average"
        if measure.name == "accuracy":
            reached = f"the clients that are up reach a mean accuracy of {measure.text(mean)}"
        parts.append(reached)
        if gains.get("mean_gain") is not None:
            better, difference = summary["better_than_alone"], measure.difference(gains["mean_gain"])
            change = "difference" if measure.higher_is_better else "improvement"
            some = f"{text.share(better)} of the clients do"
            all_do = "the client does" if gains.get("better") == 1 else f"all {gains['better']:,} do"
            who = {0.0: "no client does", 1.0: all_do}.get(better, some)
            parts.append(f"{who} better than alone, with a mean {change} of {difference}")
    if (converged := convergence(summary)) is not None:
        parts.append(converged)
    graph = summary.get("graph") or {}
    if graph.get("edge_recall") is not None:
        edges = "no edge was learned"
        if graph["edge_precision"] is not None:
            edges = f"{text.share(graph['edge_precision'])} of the learned edges are true"
        parts.append(f"{edges}, and {text.share(graph['edge_recall'])} of the true edges were learned")
    population = summary.get("population") or {}
    if population.get("newcomers"):
        who = _count_of_total_text(population["caught_up"], population["newcomers"], "newcomer", "newcomers")
        parts.append(f"{who} caught up with the other clients")
    if population.get("departures"):
        counts = summary.get("clients") or {}
        only_crashes = counts.get("crashed") and not (counts.get("left") or counts.get("failed"))
        what = ("crash", "crashes") if only_crashes else ("departure", "departures")
        back = _count_of_total_text(population["recovered"], population["departures"], *what)
        parts.append(f"after {back}, the other clients recovered fully")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _count_of_total_text(count: int, total: int, one: str, many: str) -> str:
    if count == total:
        return f"the {one}" if total == 1 else f"all {total:,} {many}"
    return f"{count:,} of {total:,} {many}"


def final_measure_and_mean(summary: Mapping[str, Any]) -> tuple[Measure, float] | None:
    """Return the measure and its mean at the end; None without evaluations."""
    name = summary.get("measure", "accuracy")
    mean = (summary.get(name) or {}).get("mean")
    return None if mean is None else (measure_called(name), mean)


def why_failed(summary: Mapping[str, Any], length: int | None = _ERROR_LENGTH) -> str | None:
    """Return the reason why a run with results counts as failed; None if it does not.

    A run failed if code failed without a restart, or if no model is finite at the end. length: maximum
    number of characters of an error; None for all.
    """
    if (failed := _failed(summary, length)) is not None:
        return failed
    not_finite = summary.get("non_finite") or {}
    all_of_them = not_finite.get("at_end") and len(not_finite["at_end"]) == summary["clients"]["alive"]
    return _diverged(summary) if all_of_them else None


def was_cut_short(summary: Mapping[str, Any]) -> bool:
    """Return True if a signal, an error or failed code ended the run, or a part of it."""
    return bool(summary.get("interrupted") or summary.get("ended_by") or _failed(summary))


def protocol(summary: Mapping[str, Any]) -> str:
    """Return the protocol, with ", alone" for a control run without peers."""
    return str(summary.get("protocol")) + (", alone" if summary.get("alone") else "")


def clients_text(summary: Mapping[str, Any]) -> str:
    """Describe the clients that count at the end: those that are up with a finite model."""
    counted, known = summary[summary.get("measure", "accuracy")]["clients"], len(summary["client_names"])
    return f"{known:,} clients" if counted == known else f"{counted:,} of {known:,} clients"


def interrupted(summary: Mapping[str, Any]) -> str | None:
    """Describe the virtual time after which a signal ended the run; None without a signal."""
    if not summary.get("interrupted"):
        return None
    planned_s = summary.get("planned_seconds")  # None if iterations end the run
    planned = "" if planned_s is None else f" of {text.duration(planned_s)}"
    return f"after {text.duration(summary.get('virtual_seconds'))}{planned}"


def fork_origin_text(known: Mapping[str, Any]) -> str | None:
    """Name the parent and the time of a fork, from a summary or a provenance; None for other runs."""
    found = known.get("fork")
    if not isinstance(found, Mapping) or not isinstance(found.get("at"), int | float):
        return None
    at = text.duration(found["at"]).replace("\N{NO-BREAK SPACE}", " ")  # one_line() shows it as an escape
    return one_line(f"fork of {found.get('of')} at {at}", 300)


def move_counts_text(summary: Mapping[str, Any]) -> list[str]:
    """Return texts such as "3 joined" and "2 crashed"; events that did not happen are left out."""
    counts = summary.get("clients") or {}
    return [f"{text.number(counts[move])} {move}" for move in _MOVES if counts.get(move)]


def catching_up(population: Mapping[str, Any], measure: Measure = MEASURES[0]) -> str:
    """Describe how many newcomers caught up, departed or are still behind, and the median time."""
    median_s = population["catch_up_seconds"]["median"]
    went, behind = population["went_before"], population["still_behind"]
    count, back = population["newcomers"], population["came_back"]
    who = f"{count:,} ({count - back:,} joined, {back:,} rejoined without state)" if back else f"{count:,}"
    caught_up = f"{population['caught_up']:,} of {who} reached {measure.caught_up} of the other clients'"
    others = [f"{went:,} departed earlier"] * bool(went) + [f"{behind:,} still behind"] * bool(behind)
    took = "fewer than half reached it" if median_s is None else f"median {text.duration(median_s)}"
    return f"{', '.join([f'{caught_up} {measure.name}', *others])}; {took} (Kaplan-Meier)"


def convergence(summary: Mapping[str, Any]) -> str | None:
    """Describe the end of a run that ended because training had converged; None for other runs."""
    converged_s = summary.get("converged_seconds")
    if summary.get("ended_by") is not None or converged_s is None:
        return None
    return f"training had converged at {text.duration(converged_s)}"


def _ended_early(summary: Mapping[str, Any]) -> str | None:
    why = summary.get("ended_by")
    return None if why is None else f"ended early: {_shortened(why)}"


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
    when += f", {location}" if (location := first.get("place")) else ""
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


def _vain_waits_text(summary: Mapping[str, Any]) -> str | None:
    rounds = summary.get("rounds") or {"waits": 0, "in_vain": 0}
    if not rounds["in_vain"] or 2 * rounds["in_vain"] < rounds["waits"]:
        return None
    return (
        f"{rounds['in_vain']:,} of {rounds['waits']:,} waits for a round's messages ended without a message "
        "within protocol.patience"
    )


def _missing_formulas_text(summary: Mapping[str, Any]) -> str | None:
    names = summary.get("uncounted")
    if not names:
        return None
    missing = ", ".join(names)
    return f"no formula counts the operations of {missing}: FLOPs and times derived from them are estimates"


def _shortened(error: str, length: int = _ERROR_LENGTH) -> str:
    line, _, more = error.partition("\n")
    return line[:length] + "\N{HORIZONTAL ELLIPSIS}" if more or len(line) > length else line


def energy(summary: Mapping[str, Any]) -> str | None:
    """Return energy, cost and CO2 in words, with the keys that are missing; None without constants."""
    found = summary.get("energy")
    if found is None:
        return None
    money = f"{text.number(found['cost'])} {found['currency']}".strip()
    shown = {"": text.energy(found["joules"]), "cost ": money, "CO2 ": text.mass(found["co2_grams"])}
    known = [found[amount] is not None for amount in ("joules", "cost", "co2_grams")]
    parts = [
        f"{name}{value if is_known else 'unknown'}"
        for (name, value), is_known in zip(shown.items(), known, strict=True)
    ]
    why = f" (not set: {', '.join(found['unknown'])})" if found["unknown"] else ""
    return f"{', '.join(parts)}{why}"

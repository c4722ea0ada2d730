"""What the report opens with: what was run, what went wrong, and the headline numbers."""

from typing import Any

import numpy as np

from sim.results import outcome, text
from sim.results.view import RunView

MOST_FAILURES = 200


def head(view: RunView) -> dict[str, Any]:
    """What `templates/report.html` says before the sections."""
    overrides = map(str, view.get("overrides") or ())
    failures = view.get("failures") or []
    return {
        "scenario": str(view.get("scenario")),
        "question": view.question,
        # What was stated beside the file: what its comment says holds without.
        "overrides": [each if each.startswith("--unset ") else f"--set {each}" for each in overrides],
        "notices": view.get("notices") or (),
        "protocol": outcome.protocol(view.summary),
        "seed": view.get("seed"),
        "virtual": text.duration(view.end_s),
        "wall": text.duration(view.get("wall_seconds")),
        "trace": view.get("trace_hash"),
        "interrupted": outcome.interrupted(view.summary),
        "headlines": [line[0].upper() + line[1:] for line in outcome.headlines(view.summary)],
        "failures": failures[:MOST_FAILURES],
        "failure_count": len(failures),
        "tiles": _tiles(view),
    }


def _tiles(view: RunView) -> list[tuple[str, str, str]]:
    """The headline numbers that this run has: (label, value, note)."""
    tiles = []
    if view.get("accuracy", "mean") is not None:
        spread = (
            f"\N{PLUS-MINUS SIGN} {text.share(view.get('accuracy', 'std'))} over {outcome.whom(view.summary)}"
        )
        tiles.append(("Mean accuracy", text.share(view.get("accuracy", "mean")), spread))
        tiles.append(
            ("Worst 10%", text.share(view.get("accuracy", "worst_decile")), "mean of the worst clients")
        )
        if view.get("settled", "mean") is not None:
            iterations = text.number(view.get("settled", "iterations"))
            since = (
                f"{text.number(view.get('settled', 'clients'))} clients with {iterations} iterations or more"
            )
            tiles.append(("Settled clients", text.share(view.get("settled", "mean")), since))
    elif view.measure is not None:
        final = view.at_the_end
        mean = None if np.isnan(final).all() else float(np.nanmean(final))
        tiles.append((f"Mean {view.measure[0].label}", text.number(mean), "at the end"))
    if view.get("better_than_alone") is not None:
        tiles.append(("Better than alone", text.share(view.get("better_than_alone")), help_note(view)))
    if view.get("graph", "edge_recall") is not None:
        pair = " / ".join(ratio(view.get("graph", key), 2) for key in ("edge_precision", "edge_recall"))
        tiles.append(("Precision / recall", pair, "of the learned edges"))
    tiles.append(("Clients up", text.number(view.get("clients", "alive")), _arrivals_and_departures(view)))
    count = text.number(view.get("messages", "sent"))
    tiles.append(("Sent", text.size(view.get("messages", "bytes")), f"in {count} messages"))
    return tiles


def _arrivals_and_departures(view: RunView) -> str:
    initial = text.number(view.get("clients", "initial"))
    return ", ".join([f"{initial} at the start", *outcome.moves(view.summary)])


def help_note(view: RunView) -> str:
    """How many clients are better off than alone, and by how much on average."""
    if view.measure is None or not view.gains:
        return "of the clients"
    differences = [gain.difference for gain in view.gains]
    better, mean = sum(value > 0 for value in differences), float(np.mean(differences))
    by = f"{text.points(mean)} points" if view.measure[0].is_share else f"{mean:+,.4g}"
    return f"{better:,} of {len(differences):,} clients; {by} on average"


def ratio(value: float | None, digits: int = 3) -> str:
    """A number from 0 to 1 with so many digits."""
    return text.NOTHING if value is None else f"{value:.{digits}f}"

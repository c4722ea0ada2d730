"""Files of a tuning study: tables of its trials, and a study of the methods with their best settings."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w

from sim.errors import UserError
from sim.results import text
from sim.run.save.provenance import package_version
from sim.scenario.reading import find_scenario
from sim.studies.index import axis_values_text
from sim.studies.option_values import as_toml
from sim.studies.tuning.best_of import expected_best_of, numbers_of_trials, smaller_search_spread
from sim.studies.tuning.tuning import TuningResult, TuningTrial, all_trials

TRIALS, BEST, BEST_OF, TUNED = "trials.csv", "best.csv", "best_of.csv", "tuned.toml"
_AXIS = "method"


def write_files(result: TuningResult) -> list[Path]:
    """Write the tables, and the tuned study of the methods with a successful trial. Raises UserError."""
    folder = result.directory
    try:
        _write_csv(folder / TRIALS, (_trial_row(trial) for trial in all_trials(result)))
        _write_csv(folder / BEST, best_rows(result))
        _write_csv(folder / BEST_OF, _best_of_rows(result))
        if has_tuned := any(result.best(name) for name in result.trials):
            (folder / TUNED).write_text(_tuned_scenario_text(result), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    return [folder / name for name in (TRIALS, BEST, BEST_OF, *([TUNED] if has_tuned else []))]


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    found = list(rows)
    columns = list(dict.fromkeys(key for row in found for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: text.without_formula(value) for key, value in row.items()} for row in found)


def _finite_or_empty(value: float) -> float | str:
    return value if math.isfinite(value) else ""


def settings_text(trial: TuningTrial) -> str:
    """Return the settings of a trial as options, or "as in the scenario"."""
    return ", ".join(trial.overrides()) or "as in the scenario"


def _trial_row(trial: TuningTrial) -> dict[str, Any]:
    method = trial.method
    return {
        "method": method.name,
        "trial": trial.number,
        "settings": settings_text(trial),
        "selected_by": method.selected_by.name,
        "selection": _finite_or_empty(trial.selection),
        "tested_by": method.tested_by.name,
        "test": _finite_or_empty(trial.test),
        "failure": trial.reason or "",
    }


def best_rows(result: TuningResult) -> list[dict[str, Any]]:
    """Return a row for each method: the selected trial, and the best trial on the test data ("oracle")."""
    rows = []
    for name, trials in result.trials.items():
        best, first = result.best(name), trials[0]
        scores, tests = [trial.score for trial in trials], [trial.test for trial in trials]
        known = [trial.test for trial in trials if not math.isnan(trial.test)]
        oracle = max if first.method.tested_by.higher_is_better else min
        mean, deviation = smaller_search_spread(scores, tests)
        rows.append(
            {
                "method": name,
                "trials": len(trials),
                "failed": sum(trial.reason is not None for trial in trials),
                "default_selection": _finite_or_empty(first.selection),
                "default_test": _finite_or_empty(first.test),
                "best_trial": "" if best is None else best.number,
                "best_selection": "" if best is None else best.selection,
                "best_test": "" if best is None else _finite_or_empty(best.test),
                "oracle_test": oracle(known) if known else "",
                "quarters_test": _finite_or_empty(mean),
                "quarters_deviation": _finite_or_empty(deviation),
                "settings": "all trials failed" if best is None else settings_text(best),
            }
        )
    return rows


def _best_of_rows(result: TuningResult) -> list[dict[str, Any]]:
    rows = []
    for name, trials in result.trials.items():
        scores = [trial.score for trial in trials]
        for k in numbers_of_trials(len(trials)):
            selections, tests = ([getattr(trial, kind) for trial in trials] for kind in ("selection", "test"))
            row: dict[str, Any] = {"method": name, "trials": k}
            row |= {"selection": _finite_or_empty(expected_best_of(scores, selections, k))}
            row |= {"test": _finite_or_empty(expected_best_of(scores, tests, k))}
            rows.append(row)
    return rows


def _tuned_scenario_text(result: TuningResult) -> str:
    """Return a file with a sweep over the methods with their best settings."""
    tuning, cases = result.tuning, []
    for method in tuning.methods:
        best = result.best(method.name)
        if best is None:
            continue
        stated = method.chosen
        how = {"study": result.directory.name, "trial": best.number, "trials": tuning.trials}
        how |= {
            "seeds": list(tuning.seeds),
            "sampler": str(tuning.sampler),
            "coterie": package_version("coterie"),
        }
        marks = [f"tuned.{key}={as_toml(value)}" for key, value in how.items() if value is not None]
        case = {"axis": _AXIS, "name": method.name, "unset": list(stated.unset)}
        case["set"] = [*stated.overrides, *best.overrides(), *marks]
        cases.append({key: value for key, value in case.items() if value != []})
    scenario = find_scenario(tuning.methods[0].stated.file).resolve()
    relative = os.path.relpath(scenario, result.directory.resolve())
    lines = [
        f"Methods of {scenario.name} with the settings that tuning selected.",
        "",
        f"{tuning.trials} trials per method with the {tuning.sampler} sampler, each with the seeds",
        f"{', '.join(map(str, tuning.seeds))}. The trial with the best mean of the last tenth of the",
        f"evaluations on the clients' held-out samples was selected; {TRIALS} lists all trials.",
        *(f"Trials ran with {axis_values_text(each.values)}." for each in tuning.conditions if each.values),
        "Compare the methods with other seeds:",
        "",
        f"coterie sweep {TUNED} --seeds 5",
    ]
    if failed := [name for name in result.trials if result.best(name) is None]:
        lines[1:1] = ["", f"Without a successful trial, and therefore not listed: {', '.join(failed)}."]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return comment + tomli_w.dumps({"sweep": {"scenario": relative, "case": cases}})

"""Methods to tune: how a scenario selects each of them, and the settings that are searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from protocols.framework.search_space import OneOf, Range, SearchSpace
from sim.errors import UserError
from sim.learning.engine.optimizers import RULES
from sim.learning.metrics import selected_metrics
from sim.results.measures import Measure, measure_called
from sim.scenario.overrides import overlap
from sim.scenario.protocol_lookup import list_protocols
from sim.scenario.reading import find_scenario
from sim.scenario.sections.sweep import Sweep
from sim.studies.axes import AxisChoice, parse_axis_value
from sim.studies.cells import StatedScenario
from sim.studies.option_values import override_key

_RATE = "training.learning_rate"
_MEASURES = {"classification": "validation_accuracy", "quadratic": "distance"}


@dataclass(frozen=True)
class TunedMethod:
    """A method to tune.

    name: the name of a protocol, or of a case of the file's sweep. stated: options that select it, for its
    trials; chosen: these without the options that only trials need. space: searched settings by whole key.
    selected_by, tested_by: measures of the selection and of the test.
    """

    name: str
    chosen: StatedScenario
    stated: StatedScenario
    space: Mapping[str, Range | OneOf]
    selected_by: Measure
    tested_by: Measure
    source: str

    def settings(self, point: Sequence[float]) -> dict[str, object]:
        """Return the searched settings at a point of the unit cube, by whole key."""
        return SearchSpace(self.source, self.space).at(point)


def tuned_methods(
    stated: StatedScenario, names: Sequence[str], validation_share: float, keep: Sequence[str] = ()
) -> list[TunedMethod]:
    """Return the named methods of a scenario file; if `names` is empty, the file's own method.

    validation_share: share of each client's training samples that is held out for the selection, if the
    scenario states none; 0 if the data or the partition contain validation samples. keep: whole keys that
    are not searched. Raises UserError.
    """
    runs, alone = stated.of_runs()
    sweep = alone or _sweep_of(runs) or Sweep()
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserError(f"--methods: {twice[0]} appears twice; name each method once")
    if not names:
        runs = replace(runs, overrides=(*sweep.set, *runs.overrides))
        found = [_method(runs.scenario().protocol.label, runs, validation_share)]
    else:
        found = [_method(name, _selecting_options(runs, name, sweep), validation_share) for name in names]
    searched = dict.fromkeys(key for method in found for key in method.space)
    if unknown := [key for key in keep if key not in searched]:
        raise UserError(f"--keep {unknown[0]}: no method searches this key; searched: {', '.join(searched)}")
    kept = set(keep)
    return [replace(one, space={k: v for k, v in one.space.items() if k not in kept}) for one in found]


def conditions_of(
    stated: StatedScenario, over: Sequence[str], methods: Sequence[TunedMethod]
) -> list[AxisChoice]:
    """Return the conditions in which each trial runs: combinations of cases of the file's sweep.

    over: ``"axis=case"``, the cases to combine; if empty, the only condition is the scenario itself. Raises
    UserError, also if a case sets a key that the search of one of `methods` varies.
    """
    runs, alone = stated.of_runs()
    cases: dict[str, list[AxisChoice]] = {}
    for case in (alone or _sweep_of(runs) or Sweep()).case:
        choice = AxisChoice({case.axis: case.name}, case.set, case.unset)
        cases.setdefault(case.axis, []).append(choice)
    known = {axis: [choice.values[axis] for choice in choices] for axis, choices in cases.items()}
    wanted: dict[str, list[AxisChoice]] = {}
    for option in over:
        axis, value = parse_axis_value(option, known, "--over")
        chosen = next(choice for choice in cases[axis] if str(choice.values[axis]) == value)
        if chosen in wanted.setdefault(axis, []):
            raise UserError(f"--over {option}: appears twice; name each case once")
        _require_unsearched(option, chosen, methods)
        wanted[axis].append(chosen)
    return [_merge_choices(choices) for choices in product(*wanted.values())]


def _require_unsearched(option: str, condition: AxisChoice, methods: Sequence[TunedMethod]) -> None:
    """Reject a condition that would replace searched settings, so that all trials had the same values."""
    for key in map(override_key, condition.overrides):
        for method in methods:
            if searched := [each for each in method.space if overlap(each, key)]:
                raise UserError(
                    f"--over {option}: sets {key}, but the search of {method.name} varies {searched[0]}; "
                    f"exclude it from the search with --keep {searched[0]}, or name another case"
                )


def _merge_choices(choices: Sequence[AxisChoice]) -> AxisChoice:
    """Return the changes of several axes as one."""
    return AxisChoice(
        {axis: value for choice in choices for axis, value in choice.values.items()},
        tuple([override for choice in choices for override in choice.overrides]),
        tuple([key for choice in choices for key in choice.unset]),
    )


def _sweep_of(runs: StatedScenario) -> Sweep | None:
    try:
        return runs.scenario().sweep
    except UserError:  # a required key may be part of each case only
        return None


def _selecting_options(runs: StatedScenario, name: str, sweep: Sweep) -> StatedScenario:
    """Return the options that select a method: a case of the sweep, or a protocol. Raises UserError."""
    for case in sweep.case:
        if str(case.name) == name:
            stated = (*sweep.set, *case.set, *runs.overrides)
            return replace(runs, overrides=stated, unset=(*runs.unset, *case.unset))
    if name not in list_protocols() and ":" not in name:
        cases = ", ".join(str(case.name) for case in sweep.case)
        own = f"my_file.py:Class, or a case of the sweep ({cases})" if cases else "or my_file.py:Class"
        raise UserError(
            f"--methods {name}: unknown method; must be a protocol (coterie list protocols), {own}",
            find_scenario(runs.file),
        )
    return replace(runs, overrides=(*sweep.set, *runs.overrides, f"protocol.name={name}"))


def learning_rates(optimizer: str) -> Range:
    """Return the range of the learning rate with an optimizer, which is the same for all methods."""
    return Range(*RULES[optimizer].tuned_rates, log=True)


def _method(name: str, stated: StatedScenario, validation_share: float) -> TunedMethod:
    scenario = stated.scenario()
    declared = scenario.protocol.method.search_space or SearchSpace("the method states no search space")
    space: dict[str, Range | OneOf] = {_RATE: learning_rates(scenario.training.optimizer)}
    for key, values in declared.keys.items():
        space[key if "." in key else f"protocol.{key}"] = _with_whole_key(values)
    task = scenario.data.task
    selected = _MEASURES.get(task, "validation_loss")
    metrics = scenario.run.metrics or tuple([metric.name for metric in selected_metrics(task)])
    tested = measure_called(metrics[0])
    wanted = list(dict.fromkeys([*metrics, selected]))
    more = ["run.compare_alone=false", f"run.metrics={wanted}".replace("'", '"')]
    states_share = getattr(scenario.data, "validation_share", 0.0) > 0
    if selected.startswith("validation") and not states_share:
        if not validation_share:
            raise UserError(
                f"--validation-share 0: trials are selected by {selected}, which needs samples that clients "
                "hold out; pass a share above 0, or set data.validation_share"
            )
        more.append(f"data.validation_share={validation_share}")
    of_trials = replace(stated, overrides=(*stated.overrides, *more))
    of_trials.scenario()  # refused here, not in each of its runs
    return TunedMethod(name, stated, of_trials, space, measure_called(selected), tested, declared.source)


def _with_whole_key(values: Range | OneOf) -> Range | OneOf:
    if isinstance(values, Range) and values.over is not None and "." not in values.over:
        return replace(values, over=f"protocol.{values.over}")
    return values

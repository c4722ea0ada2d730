"""The answer of a study: sentences with the figures of its tables."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sim.errors import UserError
from sim.studies.answer import MethodRanking, answer
from sim.studies.cells import Plan
from sim.studies.comparison import Comparison
from sim.studies.study import StudiedRun, Study, load_study
from sim.studies.sweep import SweepResult
from sim.studies.words import key_label, stated_labels
from tests.results.synthetic import write_run


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


Small = tuple[Plan, SweepResult]


def stated(
    folder, monkeypatch: pytest.MonkeyPatch, results: Mapping[tuple[str, Any], Sequence[float | None]]
) -> Comparison:
    """Return the comparison of runs with these accuracies by method and speed, one for each seed.

    None: there is no run with this seed.
    """
    runs, numbers = [], {}
    paths = {
        seed: write_run(
            folder / str(seed), clients=3, clusters=1, evaluations=3, steps=5, seed=seed
        ).finalise()
        for seed in range(len(next(iter(results.values()))))
    }
    for (method, speed), ends in results.items():
        for seed, end in enumerate(ends):
            if end is None:
                continue
            run = StudiedRun(paths[seed], {"method": method, "speed": speed})
            numbers[method, speed, seed] = end
            runs.append(run)
    monkeypatch.setattr(
        StudiedRun,
        "number",
        lambda run, metric: numbers[run.values["method"], run.values["speed"], run.seed],
    )
    methods, speeds = [tuple(dict.fromkeys(each[place] for each in results)) for place in (0, 1)]
    study = Study("one", "", {"method": methods, "speed": speeds}, {}, tuple(runs))
    return Comparison(study, metrics=["accuracy"])


def test_the_best_its_lead_and_its_interval_are_those_of_the_runs(tmp_path, monkeypatch) -> None:
    a, b = [0.80, 0.84, 0.82], [0.70, 0.76, 0.71]
    found = answer(stated(tmp_path, monkeypatch, {("a", "1"): a, ("b", "1"): b}))
    gaps = np.subtract(a, b)
    low, high = stats.t.interval(0.95, 2, loc=gaps.mean(), scale=stats.sem(gaps))
    assert found[0] == (
        f"a has the best test accuracy at the end: 82.0%, {100 * gaps.mean():.1f} points more than b "
        f"(95% interval {100 * low:.1f} to {100 * high:.1f}, 3 seeds)."
    )


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ({("a", "1"): [0.8, 0.5], ("b", "1"): [0.6, 0.69]}, "2 seeds; chance may explain the difference"),
        ({("a", "1"): [0.8], ("b", "1"): [0.6]}, "one seed: chance may explain the difference"),
        ({("a", "1"): [0.8, 0.8], ("b", "1"): [0.8, 0.8]}, "80.0%, and so has b."),
    ],
)
def test_a_lead_that_may_be_chance_is_called_so(tmp_path, monkeypatch, results, said: str) -> None:
    assert said in answer(stated(tmp_path, monkeypatch, results))[0]


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ({("a", "1"): [0.9, 0.5, None], ("b", "1"): [None, 0.6, 0.6]}, "70.0%, 10.0 points more than b"),
        (
            {("a", "1"): [0.9, math.nan], ("b", "1"): [0.8, 0.99]},
            "90.0%, 0.5 points more than b (one seed: chance",
        ),
        ({("a", "1"): [0.9, 0.8], ("b", "1"): [0.7, None]}, "one seed: chance may explain the difference"),
        (
            {
                ("a", "1"): [0.9, 0.5, 0.9],
                ("b", "1"): [0.5, 0.6, 0.5],
                ("a", "2"): [None, 0.5, None],
                ("b", "2"): [0.4, 0.6, 0.4],
            },
            "63.3%; too few seeds have results in all settings for a lead.",
        ),
    ],
)
def test_a_lead_never_contradicts_the_ranking_if_seeds_are_missing(
    tmp_path, monkeypatch, results, said: str
) -> None:
    assert said in answer(stated(tmp_path, monkeypatch, results))[0]


def test_where_another_value_is_best_is_said(tmp_path, monkeypatch) -> None:
    results = {
        ("a", "1"): [0.9, 0.91],
        ("b", "1"): [0.5, 0.51],
        ("a", "5"): [0.8, 0.81],
        ("b", "5"): [0.82, 0.83],
    }
    comparison = stated(tmp_path, monkeypatch, results)
    first, second, *_ = answer(comparison)
    assert first.startswith(
        'a has the best test accuracy at the end on average over the 2 values of "speed": 85.5%, 19.0 points'
    )
    assert second == (
        "It is the best in 1 of 2 settings; elsewhere the best is b with speed = 5 (ahead by 2.0 points, 95% "
        "interval 2.0 to 2.0)."
    )
    results["b", "5"] = [0.82, 0.88]
    ahead = np.subtract([0.82, 0.88], [0.8, 0.81])
    low, high = stats.t.interval(0.95, 1, loc=ahead.mean(), scale=stats.sem(ahead))
    [turns] = [each for each in answer(stated(tmp_path / "y", monkeypatch, results)) if "elsewhere" in each]
    assert f"(ahead by 4.5 points, 95% interval {100 * low:.1f} to {100 * high:.1f}; may be chance)" in turns
    results["b", "5"] = [0.5, 0.5]
    assert answer(stated(tmp_path / "x", monkeypatch, results))[1] == "It is the best in both settings."


@pytest.mark.parametrize(
    ("better", "said"),
    [
        ((5, 10), "b from speed = 5 on ("),
        ((1, 2), "b up to speed = 2 ("),
        ((1, 5), "b with speed = 1 or 5 ("),
        ((10,), "b with speed = 10 ("),
    ],
)
def test_the_values_from_which_another_is_ahead_are_named(
    tmp_path, monkeypatch, better: tuple[int, ...], said: str
) -> None:
    results = {}
    for speed in (1, 2, 5, 10):
        results["a", speed] = [0.8, 0.82]
        results["b", speed] = [0.81, 0.84] if speed in better else [0.1, 0.1]
    assert said in answer(stated(tmp_path, monkeypatch, results))[1]


def test_the_best_method_is_the_answer_whatever_the_baseline(tmp_path, monkeypatch) -> None:
    results = {(method, speed): [ord(method) / 200] for method in "abcdef" for speed in ("slow", "fast")}
    comparison = stated(tmp_path, monkeypatch, results)
    other = Comparison(comparison.study, metrics=["accuracy", "accuracy.worst_decile"], baseline="speed=fast")
    first, second, *_ = answer(other)
    assert first.startswith(
        'f has the best test accuracy at the end on average over the 2 values of "speed":'
    )
    assert second == "It is the best in both settings."
    many = dict.fromkeys("fedcba", 0.1) | {"f": 0.3, "c": 0.05}
    listed = MethodRanking(other)._listed(many, "accuracy", most_hurt=min)
    assert listed == "30.0% with f, 10.0% with e and 10.0% with d; they are hurt most with c, 5.0%"


def test_settings_that_some_values_lack_do_not_rank(tmp_path, monkeypatch) -> None:
    results = {("a", "1"): [0.9], ("b", "1"): [0.5], ("b", "5"): [1.0]}
    assert MethodRanking(stated(tmp_path, monkeypatch, results)).ranking == [("a", 0.9), ("b", 0.5)]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {("b", "5"): [1.0]},
            "the only setting in which it has results; it has no results with speed = 5.",
        ),
        (
            {("a", "2"): [0.8], ("b", "5"): [1.0]},
            "both settings in which it has results; it has no results with speed = 5.",
        ),
        (
            {("a", "2"): [0.8], ("b", "2"): [0.85], ("b", "5"): [1.0]},
            "1 of 2 settings in which it has results; elsewhere the best is b with speed = 2 (ahead by 5.0 "
            "points, one seed); it has no results with speed = 5.",
        ),
    ],
)
def test_settings_without_results_are_not_lost(tmp_path, monkeypatch, more, said: str) -> None:
    results = {("a", "1"): [0.9], ("b", "1"): [0.5]}
    assert answer(stated(tmp_path, monkeypatch, results | more))[1] == f"It is the best in {said}"


def test_lower_is_better_for_a_distance(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]))
    standing = MethodRanking(comparison)
    means = {
        method: float(
            np.mean(
                [
                    line.estimate.mean
                    for line in comparison.lines
                    if line.metric == "distance" and line.group.values["method"] == method
                ]
            )
        )
        for method in ("alone", "gossip")
    }
    best, other = sorted(means, key=lambda method: means[method])
    assert standing.ranking == [(best, pytest.approx(means[best])), (other, pytest.approx(means[other]))]
    first = answer(comparison)[0]
    assert first.startswith(f"{best} has the best distance") and f"less than {other}" in first


def test_the_lead_starts_where_the_curves_cross_for_the_last_time(tmp_path, monkeypatch) -> None:
    comparison = stated(tmp_path, monkeypatch, {("a", "1"): [0.8, 0.8], ("b", "1"): [0.6, 0.6]})
    times, mean = np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.1, 0.5, 0.4, 0.8])
    other = np.array([0.1, 0.2, 0.45, 0.6])
    first, second = comparison.groups
    half = np.zeros(4)
    comparison.curves = lambda metric: (times, [(first, mean, half), (second, other, half)])  # type: ignore[method-assign]
    monkeypatch.setattr(StudiedRun, "end_s", 30.0)
    assert plain(MethodRanking(comparison).lead) == "Its mean curve leads only at the end, at 30 s."
    other[2] = 0.3
    assert plain(MethodRanking(comparison).lead) == "Its mean curve leads from 10 s on."
    other[3] = math.nan
    measured = "(all curves are measured until 20 s)"
    assert plain(MethodRanking(comparison).lead) == f"Its mean curve leads from 10 s on {measured}."
    other[:] = 0.0
    assert plain(MethodRanking(comparison).lead) == "Its mean curve leads from the start."
    other[3] = 0.9
    assert plain(MethodRanking(comparison).lead) == ""


def test_runs_that_end_at_different_times_are_said_to(tmp_path, monkeypatch) -> None:
    results = {
        ("a", "1"): [0.8, 0.9],
        ("a", "2"): [0.8, 0.9],
        ("b", "1"): [0.7, 0.75],
        ("b", "2"): [0.6, 0.7],
    }
    comparison = stated(tmp_path, monkeypatch, results)
    ranking = MethodRanking(comparison)
    assert ranking.ends == ""
    end_s = {("a", "1"): 30.0, ("a", "2"): 50.0, ("b", "1"): 60.0, ("b", "2"): 100.0}
    monkeypatch.setattr(
        StudiedRun, "end_s", property(lambda run: end_s[run.values["method"], run.values["speed"]])
    )
    expected = "Runs end at different times: on average at 40 s with a, and at 1 min 20 s with b."
    assert plain(ranking.ends) == expected
    assert expected in map(plain, answer(comparison))
    end_s.update({("b", "1"): 31.0, ("b", "2"): 52.0})
    assert ranking.ends == ""


def test_harm_is_the_share_worse_than_alone_or_the_worst_tenth(tmp_path, monkeypatch) -> None:
    comparison = stated(tmp_path, monkeypatch, {("a", "1"): [0.8, 0.8], ("b", "1"): [0.6, 0.6]})
    shares = [comparison.line(group, "accuracy").robust.hurt.mean for group in comparison.groups]
    expected = f"Worse than alone are {100 * shares[0]:.1f}% of the clients with a and {100 * shares[1]:.1f}%"
    assert MethodRanking(comparison).harm == f"{expected} with b."


def test_clients_that_are_hurt_in_all_runs_are_named(tmp_path, monkeypatch) -> None:
    rest = {3: 0.1}
    gains = {  # of the three runs of each group
        ("a", "1"): [{0: 0.1, 1: -0.02}, {0: 0.1, 1: -0.03}, {0: 0.1, 1: -0.04}],
        ("b", "1"): [{0: -0.1, 1: -0.2, 2: -0.4} | rest] * 3,
        ("a", "2"): [
            {0: 0.1, 1: -0.01},
            {0: 0.1, 1: -0.01},
            {0: 0.1, 1: -0.5},
        ],  # an interval that contains 0
        ("b", "2"): [{0: -0.1, 1: -0.2}] * 3,  # all: a matter of the shares
    }
    comparison = stated(tmp_path, monkeypatch, {each: [0.8, 0.8, 0.8] for each in gains})
    of_run = {
        id(run): gains[group.values["method"], group.values["speed"]][number]
        for group in comparison.groups
        for number, run in enumerate(group.runs)
    }
    monkeypatch.setattr(StudiedRun, "gains_over_alone", lambda run, metric: of_run[id(run)])
    said = MethodRanking(comparison).always_hurt
    assert plain(said) == (
        "In all 3 runs with b, 1, client-2, client-1 and client-0 are worse than alone, by 40.0, 20.0 and "
        "10.0 points on average; in all 3 runs with a, 1, client-1 is worse than alone, by 3.0 points on "
        "average."
    )
    assert said in answer(comparison)
    monkeypatch.setattr("sim.studies.answer._NAMED_MAX", 2)
    monkeypatch.setattr("sim.studies.answer._SHOWN_MAX", 1)
    assert plain(MethodRanking(comparison).always_hurt) == (
        "In all 3 runs with b, 1, 3 clients are worse than alone, most of all client-2 and client-1, by 40.0 "
        "and 20.0 points on average; and some clients in all runs of 1 other group."
    )
    one_seed = stated(tmp_path / "one", monkeypatch, {("a", "1"): [0.8], ("b", "1"): [0.6]})
    monkeypatch.setattr(StudiedRun, "gains_over_alone", lambda run, metric: {0: -0.1, 1: 0.1})
    assert MethodRanking(one_seed).always_hurt == ""


def test_without_training_alone_the_worst_tenth_is_named(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]))
    assert MethodRanking(comparison).harm.startswith(
        "No run states which clients are worse than alone (run.compare_alone); the worst 10% reach "
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("devices.override.0.slowdown", "slowdown (devices override 1)"),
        ("training.learning_rate", "learning rate (training)"),
        ("protocol.name", "protocol"),
        ("method", "method"),
        ("clients.count", "number of clients"),
    ],
)
def test_keys_have_labels_in_words(key: str, words: str) -> None:
    assert key_label(key) == words


def test_labels_are_stated_for_axes() -> None:
    assert stated_labels(["a.b= two words "], ["a.b"]) == {"a.b": "two words"}
    assert stated_labels(["b (a)=new"], ["a.b"]) == {"a.b": "new"}
    assert stated_labels(["old=new"], ["a.b"], {"a.b": "old"}) == {"a.b": "new"}
    for wrong in ("a.c=x", "a.b", "a.b="):
        with pytest.raises(UserError, match=r'must be KEY="words", with one of the axes a\.b'):
            stated_labels([wrong], ["a.b"])
    with pytest.raises(UserError, match="--label a=b: there are no axes to label"):
        stated_labels(["a=b"], [])


def test_labels_of_two_axes_are_different() -> None:
    assert stated_labels(["a=c", "c=a"], ["a", "c"]) == {"a": "c", "c": "a"}
    for options, other in ((["a=x", "c=x"], "c"), (["a=c"], "c"), (["a=y"], "c")):
        with pytest.raises(UserError, match=f"{other} has the same label; state another"):
            stated_labels(options, ["a", "c"], {"c": "y"} if options == ["a=y"] else None)


@pytest.mark.parametrize(
    ("axes", "baseline", "compared"),
    [
        (("speed", "method"), None, "method"),
        (("speed", "method"), "speed=1", "method"),
        (("speed", "churn"), "speed=1", "speed"),
        (("speed", "churn"), None, "churn"),
        (("speed", "size"), None, "speed"),
    ],
)
def test_methods_are_compared_if_there_are_several(
    tmp_path, axes: tuple[str, ...], baseline: str | None, compared: str
) -> None:
    values = {"speed": (1, 2), "size": (3, 4), "method": ("a", "b"), "churn": ("none", "some")}
    path = write_run(tmp_path, clients=3, clusters=1, evaluations=3, steps=5).finalise()
    pairs = itertools.product(*[values[axis] for axis in axes])
    runs = tuple([StudiedRun(path, dict(zip(axes, pair, strict=True))) for pair in pairs])
    study = Study("one", "", {axis: values[axis] for axis in axes}, {}, runs)
    assert Comparison(study, metrics=["accuracy"], baseline=baseline).compared_axis == compared


def test_a_baseline_without_runs_is_told(tmp_path, monkeypatch) -> None:
    found = stated(tmp_path, monkeypatch, {("a", "1"): [0.8], ("b", "1"): [0.7], ("c", "1"): [None]})
    told = "no run has the baseline method = c, so there are no differences"
    assert told in Comparison(found.study, metrics=["accuracy"], baseline="method=c").warnings
    assert told not in found.warnings

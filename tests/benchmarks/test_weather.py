"""The tables of bad weather: every cell is a scenario that can be run, and says what its runs came to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from benchmarks import weather, weather_record
from benchmarks.fidelity import run
from benchmarks.weather import Choice, Weather, cells, overrides, weathers
from benchmarks.weather_methods import FAMILIES, Family, Method
from benchmarks.weather_picture import picture
from benchmarks.weather_table import Cell, Outcome, page
from sim.errors import UserError
from sim.results.view import RunView
from sim.scenario.protocol_loader import list_protocols
from sim.scenario.scenario import load_scenario

BASE = Outcome(
    accuracy=0.5,
    calm=0.8,
    struck=None,
    worst=0.25,
    graph=(1.0, 0.5),
    graph_of_others=(None, None),
    seconds=8.0,
    messages=100,
    finished=True,
)


SHORT = Family(
    "Short",
    2.5,
    (5, 5),
    ["data.test_samples=20", "model={name='logistic-regression'}"],
    {
        "local": Method(["protocol.name=local"], control=None),
        "gossip": Method(["protocol.name=gossip", 'protocol.period="500 ms"']),
    },
)


def cell(*accuracies: float, calm: float = 0.8) -> Cell:
    return Cell(tuple(replace(BASE, accuracy=a, calm=calm) for a in accuracies))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_every_cell_is_a_scenario_of_the_same_length(family: Family) -> None:
    worlds = weathers(family.seconds)
    every = [(method, worlds["all at once"]) for method in family.methods.values()]
    every += [(family.methods["local"], what) for what in worlds.values()]
    for method, what in every:
        scenario = load_scenario(weather.SCENARIO, overrides(family, method, what, "digits"), 11)
        assert scenario.run.duration == family.seconds
        assert scenario.run.iterations is None
        assert not scenario.notices  # nothing was left out that a method does not know


def test_the_struck_are_those_to_whom_something_happens_and_halves_split_both_clusters() -> None:
    worlds = weathers(100.0)
    assert {name: tuple(what.struck) for name, what in worlds.items() if what.struck} == {
        "one slow": (3,),
        "three slow": (3, 6, 9),
        "churn": (1, 2, 8, 10, 11, 12),
        "all at once": (3, 6, 9, 1, 2, 8, 10, 11, 12),
        "slow absent": (3, 6, 9),
        "struck absent": (3, 6, 9, 1, 2, 8),
    }
    for count, name in ((10, "partition"), (13, "all at once")):
        halves = worlds[name].halves
        assert sorted([*halves[0], *halves[1]]) == list(range(count))
        assert all(set(half) & set(cluster) for half in halves for cluster in (range(5), range(5, count)))


def test_table_marks_what_lost_two_points_and_what_fell_below_its_control() -> None:
    table = {
        ("local", "calm"): cell(0.7, 0.7, calm=0.7),
        ("local", "5 % lost"): cell(0.7, 0.7, calm=0.7),
        ("cobo", "calm"): cell(0.8, 0.8),
        ("cobo", "5 % lost"): cell(0.79, 0.775),
        ("gossip", "calm"): cell(0.8, 0.8),
        ("gossip", "5 % lost"): cell(0.6, 0.7),
    }
    text = page({("digits", "Whole models"): table}, {"local": None, "cobo": "local", "gossip": "local"})
    assert text.startswith("## Whole models, digits\n\n| method | calm | 5 % lost |\n")
    assert "| local | 70.0 ± 0.0 | 70.0 ± 0.0 (+0.0) |\n" in text
    assert "| cobo | 80.0 ± 0.0 | 78.2 ± 1.1 (-1.8) |\n" in text
    assert "| gossip | 80.0 ± 0.0 | 65.0 ± 7.1 **(-15.0)**† |\n" in text
    assert "| cobo | 78.2 ± 1.1 | -1.8 | - | 25.0 | 1.00 | 0.50 | - | - | 8 s | 100 |\n" in text


def test_time_is_told_only_where_every_seed_came_there() -> None:
    never = replace(BASE, seconds=None)
    assert [Cell((BASE, BASE)).time, Cell((BASE, never)).time] == ["8 s", "-"]


def short(out: Path, methods: list[str]) -> Choice:
    return Choice(["digits"], [11], methods, ["5 % lost", "one slow"], out)


def test_two_methods_in_one_weather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weather, "FAMILIES", (SHORT,))
    choice = short(tmp_path, ["local", "gossip"])
    missing = weather.plan(choice, {})
    record = dict(weather.outcomes(missing, choice))
    found = cells(SHORT, "digits", choice, record)
    assert list(found) == [(m, w) for m in ("local", "gossip") for w in ("calm", "5 % lost", "one slow")]
    assert found["local", "5 % lost"] == found["local", "calm"]
    assert found["gossip", "5 % lost"] != found["gossip", "calm"]
    assert len(list(tmp_path.iterdir())) == 5  # messages that local does not send cannot be lost

    # The same again by hand, from the runs that are there; none is repeated.
    monkeypatch.setattr("benchmarks.fidelity.run_scenario", None)
    assert dict(weather.outcomes(missing, choice)) == record
    what = Weather([weather._slow([3])], [3])
    calm, slow = (
        RunView(
            run(weather.SCENARIO, overrides(SHORT, SHORT.methods["gossip"], w, "digits"), 11, tmp_path, None)
        )
        for w in (Weather(), what)
    )
    others = [client for client in range(10) if client != 3]
    (result,) = found["gossip", "one slow"].outcomes
    assert result.accuracy == pytest.approx(slow.at_the_end[others].mean(), abs=1e-12)
    assert result.calm == pytest.approx(calm.at_the_end[others].mean(), abs=1e-12)
    assert result.struck == slow.at_the_end[3]
    assert result.worst == slow.at_the_end.min()
    assert result.messages == slow.summary["messages"]["sent"] > 0
    assert found["local", "one slow"].gained == 0.0
    assert found["local", "one slow"].outcomes[0].messages == 0


def test_run_that_a_signal_ends_ends_the_table_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ["run.duration=1 s", "run.evaluate_every=1 s", "data.test_samples=20"]
    first = run(weather.SCENARIO, changes, 11, tmp_path, None)
    summary = first.path / "summary.json"
    summary.write_text(summary.read_text().replace('"interrupted": false', '"interrupted": true'))
    ended = SimpleNamespace(interrupted=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("benchmarks.fidelity.run_scenario", lambda *args, **options: ended)
        run(weather.SCENARIO, changes, 11, tmp_path, None)
    again = run(weather.SCENARIO, changes, 11, tmp_path, None)
    assert not again.summary()["interrupted"]
    assert again.summary()["trace_hash"] == first.summary()["trace_hash"]


def test_what_people_wrote_stays_and_the_tables_below_it_do_not(tmp_path: Path) -> None:
    file = tmp_path / "weather.md"
    file.write_text(f"# Bad weather\n\nTake cobo.\n\n{weather.MARK}\n\nMeasured long ago.\n")
    assert weather.head_of(file) == f"# Bad weather\n\nTake cobo.\n\n{weather.MARK}"
    file.write_text("# Bad weather\n")
    with pytest.raises(UserError, match=r"weather\.md has no line '<!-- measured"):
        weather.head_of(file)
    assert weather.head_of(weather.PAGE).startswith("# Bad weather\n")


def test_picture_shows_every_cell_once() -> None:
    table = {("cobo", "calm"): cell(0.8), ("cobo", "5 % lost"): cell(0.71), ("cobo", "slow"): cell(0.83)}
    root = ElementTree.fromstring(picture({("digits", "Whole models"): table}))
    space = "{http://www.w3.org/2000/svg}"
    rects = [(r.get("class"), r.get("fill-opacity")) for r in root.iter(f"{space}rect")]
    assert rects == [("ground", None), ("lost", "0.36"), ("won", "0.12")]
    texts = [text.text for text in root.iter(f"{space}text")]
    assert texts[:-1] == ["Whole models, digits", "calm", "5 % lost", "slow", "cobo", "80.0", "-9.0", "+3.0"]


def test_every_method_there_is_stands_in_a_table() -> None:
    measured = {
        change.removeprefix("protocol.name=")
        for family in FAMILIES
        for method in family.methods.values()
        for change in method.overrides
    }
    assert set(list_protocols()) <= measured
    assert any(name.endswith("docs/examples/divshare.py:DivShare") for name in measured)


def test_what_was_measured_elsewhere_is_kept_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weather, "FAMILIES", (SHORT,))
    monkeypatch.setattr(weather, "METHODS", list(SHORT.methods))
    monkeypatch.setattr(weather, "DATA", {"digits": []})
    monkeypatch.setattr(weather, "SEEDS", (11,))
    for name in ("PAGE", "PICTURE", "RECORD"):
        monkeypatch.setattr(weather, name, tmp_path / getattr(weather, name).name)
    weather.PAGE.write_text(f"Take gossip.\n\n{weather.MARK}\n\nMeasured long ago.\n")

    def measured(*methods: str) -> None:
        out = str(tmp_path / f"runs of {methods}")
        words = [
            "weather",
            "--data",
            "digits",
            "--seeds",
            "11",
            "--out",
            out,
            "--write",
            "--methods",
            *methods,
        ]
        monkeypatch.setattr("sys.argv", words)
        weather.main()

    measured("local")
    first = weather_record.load(weather.RECORD)
    assert {(place.method, place.seed) for place in first} == {("local", 11)}
    assert len(first) == len(weathers(1.0))
    assert "Measured long ago." in weather.PAGE.read_text()  # half a table would replace a whole one
    assert not weather.PICTURE.exists()
    # The rest: local's runs are nowhere but in the record.
    measured("local", "gossip")
    assert weather_record.load(weather.RECORD).items() >= first.items()
    assert len(list((tmp_path / "runs of ('local', 'gossip')").iterdir())) == len(weathers(1.0))
    text = weather.PAGE.read_text()
    assert text.startswith(f"Take gossip.\n\n{weather.MARK}\n\nMeasured with the seeds 11.\n")
    assert "| local |" in text
    assert "| gossip |" in text
    assert "Measured long ago." not in text
    assert weather.PICTURE.exists()


def test_record_of_a_line_that_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weather.jsonl"
    place = weather_record.Place("digits", "Short", "local", "calm", 11)
    weather_record.save(file, {place: weather_record.Entry(BASE, "abc")})
    assert weather_record.load(file) == {place: (BASE, "abc")}
    file.write_text(file.read_text() + '{"run": {"data": "digits"}}\n')
    with pytest.raises(UserError, match=r"weather\.jsonl: line 2: is no run of the weather table: "):
        weather_record.load(file)


@pytest.mark.slow
def test_runs_are_made_once_in_processes_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weather, "FAMILIES", (SHORT,))
    choice = short(tmp_path, ["local"])
    missing = weather.plan(choice, {})
    weather.measure(missing, choice, 2)
    assert len(list(tmp_path.iterdir())) == 2  # of three weathers: no message of local's can be lost
    assert "2/2 digits, Short, local, " in capsys.readouterr().out
    monkeypatch.setattr("benchmarks.fidelity.run_scenario", None)
    record = dict(weather.outcomes(missing, choice))
    assert ("local", "one slow") in cells(SHORT, "digits", choice, record)

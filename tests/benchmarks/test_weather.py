"""The tables of bad weather: what the sweeps say happens, and what is made of their runs."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import weather, weather_record
from benchmarks.weather_picture import picture
from benchmarks.weather_table import Cell, Outcome, page
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.scenario.protocol_loader import list_protocols
from sim.studies.cells import plan
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult, run_sweep
from tests.studies.conftest import here

STUDIES = weather.STUDIES
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


def cell(*accuracies: float, calm: float = 0.8) -> Cell:
    return Cell(tuple(replace(BASE, accuracy=a, calm=calm) for a in accuracies))


def cases(name: str, axis: str) -> dict[str, dict]:
    """The cases of an axis of one of the sweeps, by name."""
    contents = tomllib.loads((weather.STUDIES / f"{name}.toml").read_text(encoding="utf-8"))
    return {case["name"]: case for case in contents["sweep"]["case"] if case["axis"] == axis}


@pytest.mark.parametrize("name", weather.TITLES)
def test_the_struck_are_those_to_whom_something_happens_and_halves_split_both_clusters(name: str) -> None:
    struck = {
        case: set(what["excluded"]) for case, what in cases(name, "weather").items() if "excluded" in what
    }
    assert struck == {
        "one slow": {3},
        "three slow": {3, 6, 9},
        "churn": {1, 2, 8, 10, 11, 12},
        "all at once": {3, 6, 9, 1, 2, 8, 10, 11, 12},
        "slow absent": {3, 6, 9},
        "struck absent": {3, 6, 9, 1, 2, 8},
    }
    for count, case in ((10, "partition"), (13, "all at once")):
        planned = plan(weather.STUDIES / f"{name}.toml", only=["method=local", f"weather={case}"])
        [cut] = [text for text in planned.cells[0].overrides if text.startswith("network.partition=")]
        [stated] = tomllib.loads(f"cut = {cut.partition('=')[2]}")["cut"]
        halves = [set(group) - {"servers"} for group in stated["groups"]]
        assert set.union(*halves) == set(range(count)) and not set.intersection(*halves)
        assert all(half & set(cluster) for half in halves for cluster in (range(5), range(5, count)))


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


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sweeps like ours, but of short runs."""
    folder = tmp_path_factory.mktemp("studies")
    for name in ("weather", "weather_one_model"):
        text = (weather.STUDIES / f"{name}.toml").read_text(encoding="utf-8")
        for old, new in (
            ("100 s", "2500 ms"),
            ('"5 s"', '"500 ms"'),
            ("test_samples = 500", "test_samples = 20"),
        ):
            text = text.replace(old, new)
        text = text.replace('name = "mlp"\nhidden = [50]', 'name = "logistic-regression"')
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def swept(short: Path) -> SweepResult:
    """Two methods in two weathers, for a short time."""
    only = ["method=local", "method=gossip, average", "weather=calm", "weather=one slow"]
    return run_sweep(plan(short / "weather_one_model.toml", only=only), out=short / "runs", execute=here)


@pytest.fixture(autouse=True)
def is_shipped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What uses the short sweeps takes them for ours."""
    if "swept" in request.fixturenames:
        short = request.getfixturevalue("short")
        wanted = weather.places()
        monkeypatch.setattr(weather, "STUDIES", short)
        monkeypatch.setattr(weather, "places", lambda: wanted)


def test_an_entry_is_of_the_clients_that_were_not_struck(swept: SweepResult) -> None:
    study = load_study([swept.directory])
    found = dict(weather.entries(study))
    assert len(found) == 4
    views = {(str(run.values["method"]), str(run.values["weather"])): run.view for run in study.runs}
    others = [client for client in range(10) if client != 3]
    for method in ("local", "gossip, average"):
        place = weather_record.Place("digits", "One model for all", method, "one slow", 11)
        result = found[place].outcome
        slow, calm = views[method, "one slow"], views[method, "calm"]
        assert result.accuracy == pytest.approx(slow.at_the_end[others].mean(), abs=1e-12)
        assert result.calm == pytest.approx(calm.at_the_end[others].mean(), abs=1e-12)
        assert result.struck == slow.at_the_end[3]
        assert result.worst == slow.at_the_end.min()
        assert result.messages == slow.summary["messages"]["sent"]
        assert (result.messages > 0) == (method != "local")
        run = next(run for run in study.runs if run.view is slow)
        assert found[place].commit == RunDirectory.load(run.directory).provenance()["commit"]


def test_another_sweep_is_refused(swept: SweepResult, monkeypatch: pytest.MonkeyPatch) -> None:
    study = load_study([swept.directory])
    with pytest.raises(UserError, match=r"^loss, by method, weather, data: is no sweep of the weather"):
        list(weather.entries(replace(study, name="loss")))
    monkeypatch.setattr(weather, "STUDIES", STUDIES)  # whose runs last for longer
    with pytest.raises(UserError, match=r"is another run than weather_one_model\.toml has by now"):
        list(weather.entries(study))


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
    stated = [
        change.removeprefix("protocol.name=")
        for name in weather.TITLES
        for case in cases(name, "method").values()
        for change in case["set"]
    ]
    assert set(list_protocols()) <= set(stated)
    assert any(name.endswith("docs/examples/divshare.py:DivShare") for name in stated)


def test_every_method_is_held_against_one_of_its_table() -> None:
    for name in weather.TITLES:
        methods = cases(name, "method")
        controls = {method: weather.control_of(method) for method in methods}
        assert {control for control in controls.values() if control is not None} <= methods.keys()
        for method, control in controls.items():
            is_trained_on_less = "data.validation_share=0.2" in methods[method]["set"]
            assert control is None or is_trained_on_less == (control == "local, of 80 %")


def test_the_record_is_whole_and_the_page_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    record, wanted = weather_record.load(weather.RECORD), weather.places()
    assert set(record) == set(wanted)
    tables = weather.tables_of(record, wanted)
    written = weather.PAGE.read_text(encoding="utf-8")
    assert written == f"{weather.head_of(weather.PAGE)}\n\n{weather.page_of(tables, [11, 12, 13])}"
    assert weather.PICTURE.read_text(encoding="utf-8") == picture(tables)


def test_half_a_record_leaves_the_page_as_it_is(
    swept: SweepResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PAGE", "PICTURE", "RECORD"):
        monkeypatch.setattr(weather, name, tmp_path / getattr(weather, name).name)
    text = f"Take gossip.\n\n{weather.MARK}\n\nMeasured long ago.\n"
    weather.PAGE.write_text(text)
    monkeypatch.setattr("sys.argv", ["weather", str(swept.directory), "--write"])
    weather.main()
    assert weather.PAGE.read_text() == text and not weather.PICTURE.exists()
    assert "weather.md stays as it is: 3176 runs are not in weather.jsonl yet" in capsys.readouterr().out
    first = weather_record.load(weather.RECORD)
    assert len(first) == 4

    # The rest; what is in the record already is not measured again.
    monkeypatch.setattr(weather, "places", lambda: list(first))
    monkeypatch.setattr("sys.argv", ["weather", "--write"])
    weather.main()
    assert weather_record.load(weather.RECORD) == first
    assert weather.PAGE.read_text().startswith(
        f"Take gossip.\n\n{weather.MARK}\n\nMeasured with the seeds 11.\n"
    )
    assert (
        "| gossip, average |" in weather.PAGE.read_text() and "Measured long" not in weather.PAGE.read_text()
    )
    assert weather.PICTURE.exists()


def test_record_of_a_line_that_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weather.jsonl"
    place = weather_record.Place("digits", "Short", "local", "calm", 11)
    weather_record.save(file, {place: weather_record.Entry(BASE, "abc")})
    assert weather_record.load(file) == {place: (BASE, "abc")}
    file.write_text(file.read_text() + '{"run": {"data": "digits"}}\n')
    with pytest.raises(UserError, match=r"weather\.jsonl: line 2: is no run of the weather table: "):
        weather_record.load(file)

"""Sessions drawn and measured: they agree with theory and with the files, and make possible schedules."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.settings.tables import tagged
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.kernel.random import RandomStream
from sim.world.churn.processes import (
    AssignedSessions,
    ChurnProcess,
    ChurnProcessKind,
    DiurnalChurn,
    PoissonChurn,
    SessionsOfAnybody,
    SessionsOfEach,
)
from sim.world.churn.schedule import ChurnEvent, absent_at_start, validate_schedule
from sim.world.churn.sessions import (
    ExponentialLength,
    LogNormalLength,
    Session,
    WeibullLength,
    read_spot_instance_sessions,
    sessions_from_sizes,
)
from sim.world.distributions import Distribution
from sim.world.participants import Participants
from tests.lists import require_listed

FOLDER = os.environ.get("COTERIE_DATA")
HOUR_S = 3600.0


def exponential(mean_s: float) -> Distribution:
    return ExponentialLength(kind="exponential", mean=f"{mean_s!r} s")  # type: ignore[arg-type]


def weibull(scale_s: float, shape: float) -> Distribution:
    return WeibullLength(kind="weibull", scale=f"{scale_s!r} s", shape=shape)  # type: ignore[arg-type]


def lognormal(median_s: float, sigma: float) -> Distribution:
    return LogNormalLength(kind="lognormal", median=f"{median_s!r} s", sigma=sigma)  # type: ignore[arg-type]


def sessions(length: Distribution, until_s: float, seed: int = 1, every_s: float = 2.0) -> list[Session]:
    process = PoissonChurn(kind="poisson", every=f"{every_s} s", session=length)  # type: ignore[arg-type]
    return list(process.sessions(0, 0, until_s, Participants(seed, ())))


@pytest.mark.parametrize(
    ("length", "mean_s"),
    [
        (exponential(60.0), 60.0),
        (weibull(40.0, 0.6), 40.0 * math.gamma(1 + 1 / 0.6)),
        (lognormal(40.0, 1.0), 40.0 * math.exp(0.5)),
    ],
)
def test_the_mean_population_is_rate_times_mean_session(length: Distribution, mean_s: float) -> None:
    """M/G/infinity: whatever the distribution of the sessions (a queue with a server for everybody)."""
    drawn = sessions(length, 60_000.0)
    begin_s, end_s = 5_000.0, 60_000.0
    inside_s = sum(max(0.0, min(end, end_s) - max(start, begin_s)) for start, end in drawn)
    assert inside_s / (end_s - begin_s) == pytest.approx(mean_s / 2.0, rel=0.03)


@pytest.mark.long
def test_the_population_is_poisson() -> None:
    drawn = sessions(exponential(60.0), 60_000.0)
    counts = [sum(start <= time < end for start, end in drawn) for time in range(1_000, 60_000, 240)]
    variance = mean([(count - mean(counts)) ** 2 for count in counts])
    assert variance == pytest.approx(mean(counts), rel=0.2)


@pytest.mark.parametrize(("shape", "mean_s", "deviation_s"), [(1.0, 10.0, 10.0), (2.0, 8.862, 4.633)])
def test_weibull_has_the_moments_of_its_formula(shape: float, mean_s: float, deviation_s: float) -> None:
    draws, length = RandomStream(1, "weibull"), weibull(10.0, shape)
    drawn = [length.sample(draws) for _ in range(20_000)]
    assert mean(drawn) == pytest.approx(mean_s, rel=0.02)
    assert math.sqrt(mean([(x - mean_s) ** 2 for x in drawn])) == pytest.approx(deviation_s, rel=0.03)


@pytest.mark.long
def test_a_day_has_the_arrivals_that_its_rate_adds_up_to() -> None:
    period_s, amplitude, days = 1_000.0, 0.8, 400
    process = DiurnalChurn.model_validate(
        {
            "kind": "diurnal",
            "every": "1 s",
            "session": {"kind": "exponential", "mean": "1 s"},
            "period": f"{period_s} s",
            "amplitude": amplitude,
        }
    )
    drawn = list(process.sessions(0, 0, days * period_s, Participants(1, ())))
    for quarter in range(4):
        low, high = quarter * math.pi / 2, (quarter + 1) * math.pi / 2
        share = 0.25 + amplitude / (2 * math.pi) * (math.cos(low) - math.cos(high))
        counted = sum(int(start % period_s // (period_s / 4)) == quarter for start, _ in drawn)
        assert counted == pytest.approx(share * days * period_s, rel=0.01)


class Given(SessionsOfAnybody):
    """The sessions that it is given, as (start, end)."""

    given: tuple[Session, ...]
    interval: ClassVar = None

    def sessions(
        self, number: int, count: int, until_s: float, participants: Participants
    ) -> Iterator[Session]:
        return iter(self.given)


def deal(sessions: Iterable[Session], pool: Sequence[int], until_s: float) -> AssignedSessions:
    return Given(given=tuple(sessions)).play(0, pool, until_s, Participants(0, ()))


def test_whoever_has_been_away_the_longest_comes_next() -> None:
    found = deal([(0.0, 3.0), (1.0, 2.0), (4.0, 9.0), (5.0, 6.0)], (7, 8), 8.0)
    assert [(event.time_s, event.kind, event.clients) for event in found.events] == [
        (3.0, "crash", (7,)),
        (1.0, "join", (8,)),
        (2.0, "crash", (8,)),
        (4.0, "rejoin", (8,)),
        (5.0, "rejoin", (7,)),
        (6.0, "crash", (7,)),
    ]  # the session that ends at 9 s outlives the process
    assert (found.unused, found.turned_away) == ([], 0)


def test_who_finds_nobody_is_turned_away_and_who_is_not_needed_stays_away() -> None:
    assert deal([(1.0, 5.0), (2.0, 3.0)], (4,), 10.0).turned_away == 1
    assert deal([(1.0, 5.0)], (4, 5, 6), 10.0).unused == [5, 6]


class EndlessOfAnybody(SessionsOfAnybody):
    """Sessions so short that a run has too many."""

    interval: ClassVar = None

    def sessions(
        self, number: int, count: int, until_s: float, participants: Participants
    ) -> Iterator[Session]:
        return ((index * 1e-6, (index + 0.5) * 1e-6) for index in itertools.count())


class EndlessOfEach(SessionsOfEach):
    """The same for each client."""

    interval: ClassVar = None

    def sessions_of_each(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> Iterator[tuple[int, Iterable[Session]]]:
        sessions = EndlessOfAnybody().sessions(number, len(pool), until_s, participants)
        return ((client, sessions) for client in pool)


@pytest.mark.parametrize("kind", [EndlessOfAnybody, EndlessOfEach])
def test_endless_sessions_of_a_kind_are_an_error(
    kind: type[ChurnProcessKind], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.world.churn.processes._GENERATED_MAX", 1_000)
    with pytest.raises(UserError, match=r"^churn_process\.3 generates more than 1,000 sessions; must be"):
        kind().play(3, (0, 1), 60.0, Participants(0, ()))


class OfOneClient(SessionsOfEach):
    """The sessions of one client, as (start, end)."""

    given: tuple[Session, ...]
    interval: ClassVar = None

    def sessions_of_each(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> Iterator[tuple[int, Iterable[Session]]]:
        yield pool[0], self.given


@pytest.mark.parametrize(
    "sessions",
    [
        ((-4.0, -1.0), (1.0, 2.0)),
        ((-4.0, 1.0),),
        ((3.0, 4.0), (1.0, 2.0)),
        ((1.0, 3.0), (2.0, 4.0)),
        ((1.0, 2.0), (2.0, 3.0)),
        ((1.0, 1.0),),
    ],
)
def test_a_kind_must_generate_possible_sessions_of_each_client(sessions: tuple[Session, ...]) -> None:
    """Otherwise events are scheduled before 0, and too many clients count as up at the start."""
    with pytest.raises(ValueError, match=r"^OfOneClient generated the session from .* s: must be within"):
        OfOneClient(given=sessions).play(0, (4,), 60.0, Participants(0, ()))


@pytest.mark.parametrize("sessions", [((-1.0, 2.0),), ((3.0, 4.0), (1.0, 2.0))])
def test_a_kind_must_generate_sessions_of_anybody_in_order(sessions: tuple[Session, ...]) -> None:
    with pytest.raises(ValueError, match=r"^Given generated the session from .* s: must start at"):
        deal(sessions, (4, 5), 60.0)


def test_a_kind_must_state_the_interval_of_its_sessions() -> None:
    class Forgetful(SessionsOfAnybody):
        def sessions(
            self, number: int, count: int, until_s: float, participants: Participants
        ) -> Iterator[Session]:
            yield 0.0, 1.0

    with pytest.raises(TypeError, match="interval"):
        Forgetful()  # type: ignore[abstract]


@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 10)).map(lambda t: (t[0] / 2, (t[0] + t[1]) / 2))
    ),
    pool=st.integers(1, 5),
    until=st.integers(1, 24),
)
def test_any_sessions_make_a_possible_schedule(drawn: list[Session], pool: int, until: int) -> None:
    found = deal(sorted(drawn), range(pool), until / 2)
    validate_schedule(found.events, pool)
    assert all(event.time_s < until / 2 for event in found.events)
    for client in found.unused:
        assert not any(client in event.clients for event in found.events)
    started = sum(event.kind in ("join", "rejoin") for event in found.events)
    there = pool - len(found.unused) - len(absent_at_start(found.events))
    meant = sum(start < until / 2 and end > start for start, end in drawn)
    assert started + there == meant - found.turned_away


KINDS: dict[str, dict[str, Any]] = {
    "poisson": {"every": "2 s", "session": {"kind": "exponential", "mean": "5 s"}},
    "diurnal": {"every": "2 s", "period": "20 s", "session": {"kind": "exponential", "mean": "5 s"}},
    "trace": {"source": "aws_2020-03-15", "speedup": 10},
    "table": {"file": "sessions.csv"},
}
"""Keys of each kind, with which some of four clients join within 30 s."""


def test_every_kind_of_churn_is_played() -> None:
    require_listed(tagged(ChurnProcess), KINDS, f"KINDS in {__file__}, with its keys")


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_churn_makes_a_possible_schedule_which_only_the_seed_changes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sessions.csv").write_text("client,start_s,end_s\n0,0,8\n2,4,9\n2,12,40\n")
    (tmp_path / "spot-churn").mkdir()
    (tmp_path / "spot-churn/spot_sessions_2020.csv").write_text(
        "run,instance,start_s,end_s,censored\naws_2020-03-15,a,0,50,0\naws_2020-03-15,b,100,600,1\n"
    )
    monkeypatch.chdir(tmp_path)
    process = tagged(ChurnProcess)[name].model_validate({"kind": name, **KINDS[name]})

    def played(seed: int) -> list[ChurnEvent]:
        folder = DataFolder(tmp_path)
        return process.play(0, range(4), 30.0, Participants(seed, "abcd", data_folder=folder)).events

    events = sorted(played(1), key=lambda event: event.time_s)
    validate_schedule(events, 4)
    assert events and all(0 <= event.time_s < 30 for event in events)
    assert sorted(played(1), key=lambda event: event.time_s) == events
    is_random = process.interval is not None
    assert (sorted(played(2), key=lambda event: event.time_s) != events) == is_random, (
        f"{name}: with another seed, the sessions differ if and only if the kind states an interval"
    )


def test_a_step_curve_becomes_sessions() -> None:
    assert sessions_from_sizes([(0, 2), (10, 2), (10, 3), (20, 3), (20, 1), (40, 1), (40, 2)]) == [
        (0.0, 20.0),
        (0.0, 20.0),
        (10.0, math.inf),
        (40.0, math.inf),
    ]


@pytest.mark.skipif(FOLDER is None, reason="COTERIE_DATA names no folder with the real traces")
def test_measured_sessions_are_those_of_the_file() -> None:
    assert FOLDER is not None
    runs = ("aws_2020-03-15", "gcp_2020-03-01", "gcp_2020-03-04")
    found = {run: read_spot_instance_sessions(run, "churn", DataFolder(Path(FOLDER))) for run in runs}
    assert [len(of_run) for of_run in found.values()] == [39, 423, 28]
    ended = [[end - start for start, end in of_run if end < math.inf] for of_run in found.values()]
    assert [len(lengths) for lengths in ended] == [32, 417, 28]
    medians = [sorted(lengths)[len(lengths) // 2] / HOUR_S for lengths in ended]
    assert medians == pytest.approx([0.68, 0.20, 8.15], rel=0.05)


@pytest.mark.skipif(FOLDER is None, reason="COTERIE_DATA names no folder with the real traces")
def test_a_measured_group_is_as_large_as_in_the_file() -> None:
    assert FOLDER is not None
    found = read_spot_instance_sessions("p2_2020-11-20", "churn", DataFolder(Path(FOLDER)))
    up = [sum(start <= time < end for start, end in found) for time in range(0, int(88 * HOUR_S), 60)]
    assert max(up) == 16


@pytest.mark.long
@pytest.mark.skipif(FOLDER is None, reason="COTERIE_DATA names no folder with the real traces")
@pytest.mark.parametrize(
    "group", ["p2_2020-11-20", "g4dn_us-east-1c_2020-11-20", "g4dn_us-east-1d_2020-11-23"]
)
def test_a_part_of_a_measured_group_is_refused_wherever_it_was_cut_off(tmp_path: Path, group: str) -> None:
    assert FOLDER is not None
    name = f"spot-churn/spot_cluster_size_{group}.csv"
    whole, part = (Path(FOLDER) / name).read_bytes(), tmp_path / name
    part.parent.mkdir()
    part.write_bytes(whole)
    assert read_spot_instance_sessions(group, "churn", DataFolder(tmp_path))
    for size in range(1, len(whole.rstrip()), 7):
        part.write_bytes(whole[:size])
        with pytest.raises(UserError):
            read_spot_instance_sessions(group, "churn", DataFolder(tmp_path))

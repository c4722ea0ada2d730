"""Churn as a scenario states it: shares, clusters, spreads, processes, backups."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.simulation.worlds import QUADRATIC, simulation, write

TEN = QUADRATIC.replace("count = 6", "count = 10")


def entry(**settings: object) -> str:
    def value(of: object) -> str:
        return f'"{of}"' if isinstance(of, str) else repr(of)

    return "\n[[churn]]\n" + "\n".join(f"{key} = {value(of)}" for key, of in settings.items()) + "\n"


def process(**settings: str) -> str:
    return "\n[[churn_process]]\n" + "\n".join(f"{key} = {value}" for key, value in settings.items()) + "\n"


def moves(folder: Path, text: str, *overrides: str) -> list[tuple[float, str, tuple[int, ...]]]:
    with simulation(folder, text, *overrides) as built:
        return [(event.time_s, event.kind, event.clients) for event in built.events]


def test_a_share_is_of_those_that_are_up(tmp_path: Path) -> None:
    text = TEN + entry(at="2 s", event="crash", share=0.5) + entry(at="4 s", event="crash", share=0.6)
    (_, _, first), (_, _, second) = moves(tmp_path, text)
    assert (len(first), len(second)) == (5, 3) and not set(first) & set(second)
    assert list(first) == sorted(first)


def test_a_share_may_join_and_a_cluster_may_go(tmp_path: Path) -> None:
    text = TEN + entry(at="2 s", event="join", share=0.2) + entry(at="4 s", event="leave", cluster=1)
    (_, kind, late), (_, _, gone) = moves(tmp_path, text)
    assert kind == "join" and len(late) == 2
    with simulation(tmp_path, text) as built:
        assert built.clusters is not None
        assert gone == tuple(client for client in range(10) if built.clusters[client] == 1)
        assert [client.index for client in built.clients if not client.up_at_start] == list(late)


def test_a_share_that_joins_is_of_those_that_nothing_else_happens_to(tmp_path: Path) -> None:
    text = TEN + entry(at="2 s", event="join", share=0.5) + entry(at="4 s", event="crash", clients=[0, 1])
    text += process(**POISSON, clients="[2, 3]")
    ours = [found for found in moves(tmp_path, text) if not {2, 3} & set(found[2])]
    (_, kind, late), (_, _, gone) = ours
    assert kind == "join" and len(late) == 3, "of the six that are left"
    assert gone == (0, 1)


def test_a_flash_crowd_comes_within_its_spread(tmp_path: Path) -> None:
    found = moves(tmp_path, TEN + entry(at="3 s", event="join", clients=[4, 5, 6, 7], spread="2 s"))
    assert sorted(client for _, _, clients in found for client in clients) == [4, 5, 6, 7]
    assert all(3 <= time_s < 5 for time_s, _, _ in found) and len({time_s for time_s, _, _ in found}) == 4


def test_poisson_churn_runs(tmp_path: Path) -> None:
    text = TEN + process(
        kind='"poisson"',
        every='"500 ms"',
        session='{ kind = "exponential", mean = "2 s" }',
        clients="[3, 4, 5, 6, 7, 8, 9]",
        up_at_start="0.5",
    )
    with simulation(tmp_path, text) as built:
        built.run()
        counts = built.churn
        assert counts.joined > 0 and counts.crashed > 5 and counts.rejoined > 0 and counts.failed == 0
        assert {client.index for client in built.clients_up} >= {0, 1, 2}


def test_adding_a_client_outside_the_pool_changes_nothing(tmp_path: Path) -> None:
    text = TEN + process(
        kind='"diurnal"',
        every='"500 ms"',
        period='"10 s"',
        session='{ kind = "weibull", scale = "2 s", shape = 0.6 }',
        clients="[3, 4, 5]",
    )
    assert moves(tmp_path, text) == moves(tmp_path, text, "clients.count=11")


def test_a_stale_client_comes_back_with_its_last_backup(tmp_path: Path) -> None:
    text = QUADRATIC + entry(at="4.3 s", event="crash", clients=[0])
    text += entry(at="6 s", event="rejoin", clients=[0], state="stale", backup_every="2 s")
    text = text.replace('step_time = "125 ms"', 'step_time = "1 s"')
    with simulation(tmp_path, text) as built:
        seen = {}
        for time_s in (4.0, 6.5, 7.5):
            built.loop.call_at_observer(
                time_s, lambda time_s=time_s: seen.update({time_s: built.clients[0].actor.params.numpy()})
            )
        built.run()
        assert np.array_equal(seen[4.0], seen[6.5]), "what it had at 4 s, the last multiple of 2 s"
        assert not np.array_equal(seen[7.5], seen[6.5])


def test_the_trace_tells_what_a_client_came_back_with(tmp_path: Path) -> None:
    """Who crashes before its first backup has none, and is a newcomer."""
    text = QUADRATIC
    for client, state in enumerate(["keep", "stale", "stale", "fresh"]):
        every = ["1 min", "1 s", "5 s", "1 min"][client]
        text += entry(at="3 s", event="crash", clients=[client])
        text += entry(at="4 s", event="rejoin", clients=[client], state=state, backup_every=every)
    with simulation(tmp_path, text) as built:
        built.run()
        back = [(name, detail) for _, name, event, detail in built.trace.lifecycles if event == "rejoin"]
        assert back == [(f"client-{k}", s) for k, s in enumerate(["keep", "stale", "fresh", "fresh"])]
        assert [client.actor.newcomer for client in built.clients[:4]] == [False] * 4


POISSON = {"kind": '"poisson"', "every": '"1 s"', "session": '{ kind = "exponential", mean = "2 s" }'}

CRASH_3 = entry(at="2 s", event="crash", clients=[3])


@pytest.mark.parametrize(
    ("text", "overrides", "problem"),
    [
        (entry(at="2 s", event="crash", cluster=7), (), "churn.0.cluster = 7: must be a number from 0 to 1"),
        (entry(at="2 s", event="rejoin", share=0.5), (), "no client can rejoin at 2 s"),
        (
            entry(at="3 s", event="join", clients=[1]) + entry(at="2 s", event="leave", clients=[1]),
            (),
            "churn: client 1 cannot leave at 2 s: it has not joined yet; allowed: join",
        ),
        (entry(at="2 s", event="join", clients=[*range(10)]), (), "churn: no client is up at the start"),
        (entry(at="12 s", event="crash", clients=[0]), (), "must be before run.duration"),
        (entry(at="2 s", event="crash", clients=[0], share=0.5), (), "set exactly one of"),
        (CRASH_3 + process(**POISSON, clients="[2, 3]"), (), "client 3 is also in churn.0"),
        (process(**POISSON, clients="[2, 3]") * 2, (), "client 2 is also in churn_process.0"),
        (process(**POISSON), (), "no client is up at the start"),
        (process(**POISSON, clients="[2, 30]"), (), "there is no client 30"),
        (process(**POISSON | {"session": '{ kind = "gamma" }'}), (), "exponential"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError) as refusal, simulation(tmp_path, TEN + text, *overrides):
        pass
    assert problem in str(refusal.value)


# --- from a table -------------------------------------------------------------------------------------------

SIX = """\
client,start_s,end_s,phone
1,0,2.5,a
0,1.25,3,b
1,4.125,8,a
2,0,99,c
0,6,12,b
"""


def of_table(folder: Path, text: str = SIX, name: str = "up.csv", **settings: str) -> str:
    write(folder, text, name)
    return QUADRATIC + process(kind='"table"', file=f'"{name}"', **settings)


def lives_in(built: Simulation) -> list[tuple[float, str, str]]:
    return [(time_s, actor, event) for time_s, actor, event, _ in built.trace.lifecycles]


@pytest.mark.parametrize("end", ["crash", "leave"])
def test_a_table_says_when_clients_are_up(tmp_path: Path, end: str) -> None:
    text = of_table(tmp_path, clients="[0, 1, 2, 3]", end=f'"{end}"', state='"keep"')
    with simulation(tmp_path, text) as built:
        built.run()
        starts = [(0.0, f"client-{client}", "start") for client in (1, 2, 4, 5)]  # and 3 never comes
        assert lives_in(built) == [
            *starts,
            (1.25, "client-0", "join"),
            (2.5, "client-1", end),
            (3.0, "client-0", end),
            (4.125, "client-1", "rejoin"),
            (6.0, "client-0", "rejoin"),
            (8.0, "client-1", end),
        ]


def test_a_table_may_be_parquet_with_more_columns_and_its_times_pass_faster(tmp_path: Path) -> None:
    faster = of_table(tmp_path, speedup="1000", clients="[0, 1, 2]")
    frame = pl.read_csv(SIX.encode()).with_columns(pl.col("start_s", "end_s") * 1000.0)
    frame.with_columns(seen=pl.datetime(2026, 1, 1)).write_parquet(tmp_path / "up.parquet")
    as_parquet = moves(tmp_path, faster.replace("up.csv", "up.parquet"))
    plain = moves(tmp_path, of_table(tmp_path, clients="[0, 1, 2]"))
    assert as_parquet == plain and len(plain) == 6


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            "client,from,to\n0,1,2\n",
            "line 1: has no column start_s, but client, from, to; must have client, ",
        ),
        ("client,start_s,end_s\n", "has no rows; must have at least one"),
        ("", "is empty"),
        ("client,start_s,end_s\n0,0,1\n0,5,5\n", "line 3: end_s = 5: must be larger than start_s, 5"),
        (
            "client,start_s,end_s\n0,4,5\n1,0,1\n0,1,2\n",
            "line 4: start_s = 1: must be larger than 5, the end_s",
        ),
        ("client,start_s,end_s\n0,0,5\n0,5,8\n", "line 3: start_s = 5: must be larger than 5, the end_s"),
        ("client,start_s,end_s\n0,nan,5\n", "line 2: start_s = 'nan': must be a number from 0 to"),
        ("client,start_s,end_s\n0,-1,5\n", "line 2: start_s = '-1': must be a number from 0 to"),
        ("client,start_s,end_s\n6,0,5\n", "line 2: client = '6': must be a whole number from 0 to 5"),
        ("client,start_s,end_s\n0.5,0,5\n", "line 2: client = '0.5': must be a whole number from 0 to 5"),
        ("client,start_s,end_s\nbob,0,5\n", "line 2: client = 'bob': must be a number"),
        ("client,start_s,end_s\n0,0\n", "line 2: has 2 values; must have 3"),
        ("client,start_ms,end_ms\n0,0,60000\n", "line 1: has no column start_s"),
        (
            "client,start_s,end_s\n0,15000,60000\n",
            "starts before 10, the end of the process; the first one starts at 15000. ",
        ),
    ],
)
def test_a_table_that_says_no_such_thing_is_refused(tmp_path: Path, table: str, problem: str) -> None:
    text = of_table(tmp_path, table)
    with pytest.raises(UserError, match=re.escape(problem)) as refusal, simulation(tmp_path, text):
        pass
    assert f"churn_process.0.file: {tmp_path / 'up.csv'}" in str(refusal.value)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"client": [0], "start_s": [0.0]}, "has no column end_s, but client, start_s; must have"),
        ({"client": [0, 0], "start_s": [0.0, None], "end_s": [1.0, 2.0]}, "row 2: start_s = ''"),
        ({"client": [0], "start_s": [float("nan")], "end_s": [1.0]}, "row 1: start_s = 'NaN'"),
    ],
)
def test_a_parquet_table_is_refused_with_its_row(
    tmp_path: Path, columns: dict[str, Any], problem: str
) -> None:
    text = of_table(tmp_path).replace("up.csv", "up.parquet")
    pl.DataFrame(columns).write_parquet(tmp_path / "up.parquet")
    with pytest.raises(UserError, match=re.escape(problem)), simulation(tmp_path, text):
        pass


def test_a_table_names_clients_of_its_pool(tmp_path: Path) -> None:
    text = of_table(tmp_path, clients="[0, 2]")
    problem = "line 2: client = '1': must be a client of the process"
    with pytest.raises(UserError, match=re.escape(problem)), simulation(tmp_path, text):
        pass

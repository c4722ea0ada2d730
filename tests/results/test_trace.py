import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from actors.message import Envelope
from sim.results.trace import (
    EVENTS,
    EVENTS_COLUMNS,
    EVENTS_SCHEMA,
    LIFECYCLE_EVENTS,
    MESSAGE_EVENTS,
    Trace,
    first_difference,
)


def small_trace(**options) -> Trace:
    trace = Trace(**options)
    trace.lifecycle(0.0, "client-0", "start")
    trace.message("sent", 1.0, Envelope("client-0", "client-1", None), "Model", 500, number=1)
    trace.message("sent", 1.25, Envelope("client-1", "client-0", None), "Pull", 20, number=2)
    trace.message("delivered", 1.5, Envelope("client-0", "client-1", None), "Model", 500, number=1)
    trace.message("lost", 1.75, Envelope("client-1", "client-0", None), "Pull", 20, "partition", 2)
    trace.checksum(2.0, "client-0", 0xBEEF)
    return trace


def test_table_holds_every_entry_in_order():
    table = small_trace().to_table()
    assert table.schema == EVENTS_SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0.0, "start", "client-0", None, None, None, None, None),
        (1.0, "sent", "client-0", "client-1", "Model", 500, None, 1),
        (1.25, "sent", "client-1", "client-0", "Pull", 20, None, 2),
        (1.5, "delivered", "client-0", "client-1", "Model", 500, None, 1),
        (1.75, "lost", "client-1", "client-0", "Pull", 20, "partition", 2),
        (2.0, "checksum", "client-0", None, None, None, "000000000000beef", None),
    ]


def test_rows_recorded_again_make_the_same_table_and_hash():
    """As live runs do with what their processes told: no column may be left null."""
    first, again = small_trace(), Trace()
    table = first.to_table()
    for row in table.to_pylist():
        again.add_row(**row)
    assert again.to_table() == table and again.hash() == first.hash()
    assert again.lifecycles == first.lifecycles
    unseen = [name for name in table.column_names if len(table[name].drop_null().unique()) < 2]
    assert not unseen, (
        f"small_trace in {__file__} must record events with different values of {unseen}, other than null"
    )


def test_numbers_of_messages_are_not_hashed():
    numbered, plain = Trace(), Trace()
    numbered.message("sent", 1.0, Envelope("a", "b", None), "Model", 1, number=7)
    plain.message("sent", 1.0, Envelope("a", "b", None), "Model", 1)
    assert numbered.hash() == plain.hash()
    assert (numbered.to_table()["message"].to_pylist(), plain.to_table()["message"].to_pylist()) == (
        [7],
        [None],
    )


def test_without_messages_the_hash_stays_and_lifecycle_is_kept():
    full, lean = small_trace(), small_trace(keep_messages=False)
    assert lean.hash() == full.hash()
    assert lean.to_table()["event"].to_pylist() == ["start", "checksum"]
    assert len(lean) == len(full) == 6


def test_empty_trace_has_a_hash_and_an_empty_table():
    trace = Trace()
    assert len(trace.hash()) == 32
    assert trace.to_table().schema == EVENTS_SCHEMA
    assert len(trace.to_table()) == 0


def test_hash_covers_more_than_one_chunk():
    def long_trace(odd_one: int) -> str:
        trace = Trace(keep_messages=False)
        for step in range(10_000):
            trace.message("sent", step / 8, Envelope("a", "b", None), "Model", 2 if step == odd_one else 1)
        return trace.hash()

    assert long_trace(-1) == long_trace(-1)
    assert len({long_trace(-1), long_trace(0), long_trace(9_999)}) == 3


def test_rows_go_on_as_they_come(monkeypatch):
    """However long a trace is, it holds fewer rows than are handed on together."""
    monkeypatch.setattr("sim.results.trace.ROWS", 100)
    whole, streamed = Trace(), Trace()

    class Sizes:
        def __init__(self):
            self.tables = []

        def write(self, rows):
            assert streamed._filled <= 100
            self.tables.append(rows)

    streamed.kept = Sizes()  # type: ignore[assignment]
    for step in range(10_000):
        for trace in (whole, streamed):
            to = Envelope("a", f"b{step % 7}", None)
            trace.message("sent", step / 8, to, "Model", step, number=step + 1)
            if step % 1000 == 0:
                trace.checksum(step / 8, "a", step)
                trace.lifecycle(step / 8, "a", "crash", "keep")
    handed_on = len(streamed.kept.tables)
    assert streamed.hash() == whole.hash()
    assert handed_on >= 78
    streamed.flush()
    assert [len(rows) for rows in streamed.kept.tables] == [100] * 100 + [20]
    assert pa.concat_tables(streamed.kept.tables).equals(whole.to_table())


names = st.sampled_from(["client-0", "client-1", "server", ""])
times = st.floats(0, 1e6)
calls = st.one_of(
    st.tuples(
        st.just("message"),
        st.sampled_from(MESSAGE_EVENTS),
        times,
        st.builds(Envelope, names, names, st.none()),
        st.sampled_from(["Model", "Pull"]),
        st.integers(0, 2**40),
        st.sampled_from(["", "down"]),
    ),
    st.tuples(st.just("lifecycle"), times, names, st.sampled_from(LIFECYCLE_EVENTS)),
    st.tuples(st.just("checksum"), times, names, st.integers(0, 2**64 - 1)),
)


def replay(entries) -> Trace:
    trace = Trace()
    for method, *arguments in entries:
        getattr(trace, method)(*arguments)
    return trace


@given(st.lists(calls, max_size=8), st.lists(calls, max_size=8))
def test_equal_hash_exactly_for_equal_entries(first, second):
    assert (replay(first).hash() == replay(second).hash()) == (first == second)


@given(st.lists(calls, max_size=12), st.lists(calls, max_size=12))
def test_first_difference_is_the_first(first, second):
    text = first_difference(replay(first).to_table(), replay(second).to_table())
    pairs = zip(first, second, strict=False)
    expected = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    if first == second:
        assert text is None
    else:
        assert text is not None
        assert text.startswith(f"entry {expected + 1} differs:")


def test_first_difference_names_time_and_both_entries():
    other = small_trace()
    other.lifecycle(3.0, "client-1", "crash")
    assert first_difference(small_trace().to_table(), other.to_table()) == (
        "entry 7 differs:\n  first run:  has no such entry\n  second run: t = 3.0 s: client-1 crash"
    )
    changed = Trace()
    changed.lifecycle(0.0, "client-0", "start")
    changed.message("sent", 1.0, Envelope("client-0", "client-2", None), "Model", 500)
    assert first_difference(small_trace().to_table(), changed.to_table()) == (
        "entry 2 differs:\n"
        "  first run:  t = 1.0 s: client-0 sent Model to client-1, 500 B\n"
        "  second run: t = 1.0 s: client-0 sent Model to client-2, 500 B"
    )


def test_the_column_of_events_names_all_events_of_messages_and_no_others():
    meaning = next(meaning for name, _, meaning in EVENTS_COLUMNS if name == "event")
    named = re.findall(r"`(\w+)`", meaning)
    assert set(MESSAGE_EVENTS) <= set(named) <= set(EVENTS)

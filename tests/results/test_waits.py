"""For whom clients waited, by hand."""

import html

import pytest

from actors.message import Envelope
from sim.results.report.one_client import client_measure_curves, waits_by_peer_figure
from sim.results.report.tables import clients_table
from sim.results.trace import Trace
from sim.results.view import RunView
from sim.results.waits import find_waits, kept_waiting_s
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import write_run
from tests.simulation.worlds import QUADRATIC, run

END_S = 600.0
# Client 0 works until 10 s, from 14, from 30, and after a crash from 110. It got models at 12, at 14 from
# clients 2 and then 1, at 29 and, while it worked, at 35. Client 1 waits for a clock
# until 5 s, and works to the end.
BUSY = [
    ("client-0", 0.0, 10.0),
    ("client-0", 14.0, 20.0),
    ("client-0", 30.0, 40.0),
    ("client-0", 110.0, 120.0),
    ("client-1", 5.0, END_S),
]
DELIVERED = [
    (12.0, "client-1", "client-0", "Model"),
    (14.0, "client-2", "client-0", "Model"),
    (14.0, "client-1", "client-0", "Pull"),
    (29.0, "client-1", "client-0", "Model"),
    (35.0, "client-2", "client-0", "Model"),
    (110.0, "client-2", "client-0", "Model"),
]
MOVES = [(50.0, "client-0", "crash"), (100.0, "client-0", "rejoin")]


@pytest.fixture
def view(tmp_path) -> RunView:
    run = write_run(tmp_path, clients=3, clusters=1, evaluations=3, steps=2)
    trace = Trace()
    for name in ("client-0", "client-1", "client-2"):
        trace.lifecycle(0.0, name, "start")
    entries = [(time_s, "delivered", (sender, to), kind) for time_s, sender, to, kind in DELIVERED]
    entries += [(time_s, event, (name,), "") for time_s, name, event in MOVES]
    for time_s, event, names, kind in sorted(entries, key=lambda entry: entry[0]):
        if event == "delivered":
            trace.message(event, time_s, Envelope(*names, None), kind, 10)
        else:
            trace.lifecycle(time_s, names[0], event)
    run.write_events(trace)
    run.write_intervals([(*span, "busy") for span in BUSY])
    return RunView(run)


def test_a_wait_is_for_the_last_message_of_the_instant_in_which_it_ends(view):
    first, second, third = find_waits(view, range(3))
    assert first.by_sender == {"client-1": 4.0, "client-2": 10.0}, "the last wait began when it came back"
    assert {who: list(kinds) for who, kinds in first.kinds.items()} == {
        "client-1": ["Pull"],
        "client-2": ["Model"],
    }
    assert first.by_clock_s == 10.0, "from 20 to 30 s: what came at 29 did not end it"
    assert (second.by_sender, second.by_clock_s) == ({}, 5.0)
    assert (third.by_sender, third.by_clock_s) == ({}, 0.0), "what never ended is no wait that anything ended"
    assert kept_waiting_s(view) == {"client-1": 4.0, "client-2": 10.0}


def test_the_picture_and_the_table_say_so(view):
    bars = {trace.meta: trace for trace in as_plotly(waits_by_peer_figure(view)).data if trace.type == "bar"}
    assert list(bars["client-0"].x) == [10.0, 4.0, 10.0]
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in bars["client-0"].text] == [
        "client-2: 10 s",
        "client-1: 4 s",
        "a time limit or pause: 10 s",
    ]
    table = clients_table(view)
    column = table.heads.index("waiting time caused")
    assert {row[0]: row[column].value for row in table.rows} == {
        "client-0": 0.0,
        "client-1": 4.0,
        "client-2": 10.0,
    }


def test_one_client_is_shown_beside_the_mean_and_itself_alone(view):
    figure = as_plotly(client_measure_curves(view))
    worst = view.clients[view.worst_first[0]]
    shown = [trace for trace in figure.data if trace.visible is not False]
    assert [trace.meta for trace in shown] == [None, worst, worst]
    alone = view.last("accuracy_alone")[view.worst_first[0]]
    assert shown[2].y.tolist() == [alone, alone]
    assert shown[1].y[-1] == pytest.approx(view.at_the_end[view.worst_first[0]])


def test_without_messages_nobody_knows(tmp_path):
    view = RunView(write_run(tmp_path, clients=3, clusters=1, evaluations=3, steps=2))
    assert (
        find_waits(view, [0]) is None and kept_waiting_s(view) is None and waits_by_peer_figure(view) is None
    )
    assert "waiting time caused" not in clients_table(view).heads


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["protocol.name=local"], "No device waited for a message or a timer."),
        (["protocol.name=gossip", "run.keep_messages=false"], "this run kept no messages"),
    ],
)
def test_the_report_says_whether_nobody_waited_or_nobody_knows(tmp_path, options, said):
    result = run(tmp_path, QUADRATIC, *options)
    page = html.unescape((result.directory / "report.html").read_text(encoding="utf-8"))
    assert said in page and "or nobody waited" not in page

"""The learned graph as it is drawn: who stands where, in which color, and which lines there are when."""

import numpy as np
import pytest

from sim.results.report import graph as drawing
from sim.results.report.graph import drawn_graph, positions, true_groups
from sim.results.report.style import HUES
from sim.results.view import RunView
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import write_run

SMALL = {"evaluations": 5, "steps": 4}


def node_places(figure):
    """Where each client is drawn."""
    nodes = [trace for trace in figure.data if trace.ids is not None]
    rows = [zip(each.ids, each.x.tolist(), each.y.tolist(), strict=True) for each in nodes]
    return {name: (x, y) for row in rows for name, x, y in row}


def lines_of(figure, traces):
    """The pairs that a step of the slider draws, and how wide."""
    place = node_places(figure)

    def at(x, y):
        return min(place, key=lambda name: abs(place[name][0] - x) + abs(place[name][1] - y))

    found = {}
    for trace in (figure.data[number] for number in traces):
        if trace.mode == "lines":
            ends = np.column_stack([trace.x, trace.y]).reshape(-1, 3, 2)[:, :2]
            found |= {frozenset((at(*one), at(*other))): trace.line.width for one, other in ends}
    return found


def shown_by(figure, step):
    """The traces that a step of the slider shows."""
    visible, traces = figure.layout.sliders[0].steps[step].args
    return [trace for trace, is_shown in zip(traces, visible["visible"], strict=True) if is_shown]


def test_lines_are_as_wide_as_the_weights_that_two_clients_give_each_other(tmp_path):
    run = write_run(tmp_path, **SMALL)
    figure = as_plotly(drawn_graph(RunView(run)))
    rows = run.scan("graph").collect().rows()
    times = sorted({time_s for time_s, *_ in rows})
    # Client 0 crashed at 5 min and came back at 8, client 5 left at 7.5, client 11 joined at 2.
    up = [{*range(11)}, {*range(12)}, {*range(12)}, {*range(1, 12)}, {*range(12)} - {5}]
    means, edges = [], []
    for time_s, there in zip(times, up, strict=True):
        of_pair, counted = {}, set()
        for _, one, other, weight in (row for row in rows if row[0] == time_s):
            if one in there and other in there:
                pair = frozenset((f"client-{one}", f"client-{other}"))
                of_pair[pair] = of_pair.get(pair, 0) + weight / 2
                counted |= {pair} if weight > 0.5 else set()
        means.append(of_pair)
        edges.append(counted)
    assert 0 < len(edges[-1]) < len(means[-1])
    heaviest = max(of_pair[pair] for of_pair, counted in zip(means, edges, strict=True) for pair in counted)
    for step, (of_pair, counted) in enumerate(zip(means, edges, strict=True)):
        drawn = lines_of(figure, shown_by(figure, step))
        shares = {pair: of_pair[pair] / heaviest for pair in counted}
        assert drawn == {pair: drawing._WIDTHS[int(np.ceil(4 * share)) - 1] for pair, share in shares.items()}


def test_no_line_stands_beside_a_precision_of_one_that_is_false(tmp_path):
    """What is drawn at the end are the edges that the summary counts."""
    view = RunView(write_run(tmp_path, **SMALL))
    drawn = lines_of(as_plotly(drawn_graph(view)), shown_by(as_plotly(drawn_graph(view)), 4))
    place = {f"client-{3 * k + i}": k for k in range(4) for i in range(3)}
    false = [pair for pair in drawn if len({place[name] for name in pair}) == 2]
    assert bool(false) == (view.get("graph", "edge_precision") < 1)


def test_those_that_are_not_up_are_hollow(tmp_path):
    figure = as_plotly(drawn_graph(RunView(write_run(tmp_path, **SMALL))))
    place, absent = node_places(figure), []
    for step in range(5):
        shown = [figure.data[trace] for trace in shown_by(figure, step)]
        (ring,) = [trace for trace in shown if trace.name == "not up"]
        absent.append(list(zip(ring.x.tolist(), ring.y.tolist(), strict=True)))
    assert absent == [[place["client-11"]], [], [], [place["client-0"]], [place["client-5"]]]
    now = [trace for trace in figure.data if trace.name == "not up" and trace.visible is not False]
    assert len(now) == 1 and now[0].x.tolist() == [place["client-5"][0]], "the end is shown first"


def test_those_that_are_not_up_keep_their_number(tmp_path):
    figure = as_plotly(drawn_graph(RunView(write_run(tmp_path, **SMALL))))
    rings = [trace for trace in figure.data if trace.name == "not up"]
    assert [list(ring.texttemplate) for ring in rings] == [["11"], [], [], ["0"], ["5"]]
    assert all("text" in ring.mode for ring in rings)


def test_clusters_have_colours_and_stand_together(tmp_path):
    view = RunView(write_run(tmp_path, **SMALL))
    nodes = [trace for trace in as_plotly(drawn_graph(view)).data if trace.ids is not None]
    assert [trace.marker.color for trace in nodes] == list(HUES[:4])
    assert [list(trace.ids) for trace in nodes] == [
        [f"client-{3 * k + i}" for i in range(3)] for k in range(4)
    ]
    place = positions(true_groups(view))
    for client in range(12):
        near = sorted(range(12), key=lambda other: np.linalg.norm(place[client] - place[other]))[:3]
        assert {other // 3 for other in near} == {client // 3}


@pytest.mark.long
@pytest.mark.parametrize(
    "parts", [{"graph": False}, {"clients": 1, "clusters": 1}, {"clients": 201, "steps": 1}]
)
def test_without_a_graph_or_with_too_many_clients_nothing_is_drawn(tmp_path, parts):
    assert drawn_graph(RunView(write_run(tmp_path, **SMALL | parts))) is None


def test_of_too_many_lines_the_heaviest_are_drawn(tmp_path, monkeypatch):
    view = RunView(write_run(tmp_path, **SMALL))
    whole = lines_of(as_plotly(drawn_graph(view)), shown_by(as_plotly(drawn_graph(view)), 4))
    monkeypatch.setattr(drawing, "MOST_LINES", 6)
    few = lines_of(as_plotly(drawn_graph(view)), shown_by(as_plotly(drawn_graph(view)), 4))
    assert len(few) == 6 < len(whole) and set(few.values()) == {max(whole.values())}

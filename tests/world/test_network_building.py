"""From the section of a scenario to the network that it describes."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sim.errors import UserError
from sim.files.data_folder import FOLDER_VARIABLE, DataFolder
from sim.run.setup.builder import build
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario
from sim.world.latency.nodes import NodeLatency
from sim.world.network_model import NetworkModel
from sim.world.participants import Participants, client_name
from tests.scenario.texts import SMALL, changed, write
from tests.world.quantities import bursty, constant, independent, normal, pareto, uniform

REAL_DATA = os.environ.get(FOLDER_VARIABLE)
PHONES = 'uplink = { kind = "trace", source = "phones" }\ndownlink = { kind = "trace", source = "phones" }\n'
LINKS = 'uplink = "10 Mbit/s"\ndownlink = "unlimited"\n'


@pytest.fixture
def real_data() -> Path:
    if REAL_DATA is None:
        pytest.skip(f"{FOLDER_VARIABLE} names no folder with the real traces")
    return Path(REAL_DATA)


def network(
    folder: Path,
    section: str,
    *,
    seed: int = 0,
    clients: int = 4,
    servers: Sequence[str] = (),
    clusters: Sequence[int] | None = None,
    data_dir: Path | None = None,
) -> NetworkModel:
    """The network of a scenario that is written, read, written in full and read again."""
    text = changed(SMALL, f'latency = "20 ms"\n{LINKS}', section)
    scenario = load_scenario(write(folder, text), [f"clients.count={clients}"])
    again = load_scenario(write(folder, to_toml(scenario), "again.toml"))
    assert again == scenario
    names = [client_name(number) for number in range(clients)]
    return again.network.build(Participants(seed, names, servers, clusters, DataFolder(data_dir)))


def latencies(model: NetworkModel) -> NodeLatency:
    assert isinstance(model.default.latency, NodeLatency)
    return model.default.latency


def between(model: NetworkModel, sender: str, receiver: str, time_s: float = 0.0) -> float:
    """The latency of a pair in a network without jitter."""
    return model.model_of((sender, receiver)).latency_s((sender, receiver), time_s, None)


# -- Distributions, losses, queues


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        ('"20 ms"', constant(0.02)),
        ('{ kind = "normal", mean = "50 ms", sigma = "10 ms" }', normal(0.05, 0.01)),
        ('{ kind = "normal", mean = "50 ms", sigma = "10 ms", low = "35 ms" }', normal(0.05, 0.01, 0.035)),
        ('{ kind = "pareto", minimum = "20 ms", shape = 2.5 }', pareto(0.02, 2.5)),
        ('{ kind = "uniform", low = 0, high = "1 s" }', uniform(0.0, 1.0)),
    ],
)
def test_latency_distributions(tmp_path: Path, latency: str, expected: object) -> None:
    assert network(tmp_path, f"latency = {latency}\n{LINKS}").default.latency == expected


def test_everything_about_a_connection(tmp_path: Path) -> None:
    model = network(
        tmp_path,
        f"""latency = "1 s"
{LINKS}
loss = {{ kind = "gilbert-elliott", good = "9 s", bad = "500 ms", loss_good = 0.01, loss_bad = 0.5 }}
link = "datagram"
retransmission_delay = "300 ms"
duplicate = 0.25
reorder = 0.125
reorder_delay = "2 s"
queue_limit = 7
uplink_queue = "2 MB"

[[network.class]]
inside = [[0, 1]]
link = "reliable"

[[network.class]]
inside = [[2, 3]]
link = "reliable"
retransmission_delay = "1 s"
""",
    )
    link = model.default
    assert link.loss == bursty(9.0, 0.5, 0.01, 0.5)
    assert (link.reliable, link.duplicate, link.reorder, link.reorder_s) == (False, 0.25, 0.125, 2.0)
    assert [(kind.model.reliable, kind.model.rto_s) for kind in model.classes] == [(True, 0.3), (True, 1.0)]
    assert network(tmp_path, f'latency = "1 s"\n{LINKS}').default.rto_s == 0.2
    assert (model.backlog, model.uplink_queue_bytes) == (7, 2_000_000)


# -- Classes


def test_classes_take_from_the_section_what_they_do_not_state(tmp_path: Path) -> None:
    model = network(
        tmp_path,
        f"""latency = "1 s"
{LINKS}
loss = 0.25
link = "datagram"
duplicate = 0.5

[[network.class]]
servers = true
latency = "2 s"
link = "reliable"

[[network.class]]
inside = [[0, 1]]
latency = "3 s"
loss = 0

[[network.class]]
across = "clusters"
bandwidth = "1 Mbit/s"
""",
        servers=["server"],
        clusters=[0, 0, 1, 1],
    )
    to_server, inside, across, other = (
        model.model_of((client_name(0), name))
        for name in ("server", client_name(1), client_name(2), "nobody")
    )
    assert (to_server.latency, to_server.reliable, to_server.duplicate) == (constant(2.0), True, 0.0)
    assert to_server.loss == across.loss == other.loss == independent(0.25)
    assert (inside.latency, inside.loss, inside.duplicate) == (constant(3.0), independent(0.0), 0.5)
    assert (across.latency, across.bandwidth_bps, other.bandwidth_bps) == (constant(1.0), 1e6, None)
    assert other is model.default


# -- Bandwidths


def test_bandwidths_are_drawn_for_each_and_nobody_changes_anothers(tmp_path: Path) -> None:
    section = """latency = "1 s"
uplink = { kind = "lognormal", median = "10 Mbit/s", sigma = 1 }
downlink = { kind = "normal", mean = "50 Mbit/s", sigma = "20 Mbit/s", low = "1 Mbit/s" }
"""
    few = network(tmp_path, section, clients=4).bandwidths
    many = network(tmp_path, section, clients=9, servers=["server"]).bandwidths
    assert few.items() <= many.items()
    assert len(set(many.values())) == 10
    assert network(tmp_path, section, clients=4, seed=1).bandwidths != few
    other_uplinks = changed(section, '"10 Mbit/s"', '"20 Mbit/s"')
    changed_bps = network(tmp_path, other_uplinks, clients=4).bandwidths
    assert [down for _, down in changed_bps.values()] == [down for _, down in few.values()]


def test_real_phones(tmp_path: Path, real_data: Path) -> None:
    section = f'latency = "1 s"\n{PHONES}'
    model = network(tmp_path, section, clients=60, data_dir=real_data)
    lines = (real_data / "device-traces" / "phone_bandwidth.csv").read_text().splitlines()[1:]
    rows = [[float(cell) for cell in line.split(",")] for line in lines]
    phones = {(row[3] * 1000, row[1] * 1000) for row in rows}
    taken = set(model.bandwidths.values())
    assert taken <= phones
    assert len(taken) > 12  # of 19, in 60 draws
    assert (
        network(tmp_path, section, clients=5, data_dir=real_data).bandwidths.items()
        <= model.bandwidths.items()
    )
    bytes_meant = section.replace('"phones" }', '"phones", unit = "kB/s" }')
    in_bytes = network(tmp_path, bytes_meant, clients=60, data_dir=real_data).bandwidths
    assert in_bytes == {name: (8 * up, 8 * down) for name, (up, down) in model.bandwidths.items()}


# -- Latencies by nodes


@pytest.mark.parametrize("file", ["matrix.npy", "matrix.csv"])
def test_a_matrix_file_beside_the_scenario(tmp_path: Path, file: str) -> None:
    milliseconds = np.arange(36.0).reshape(6, 6)
    if file.endswith("npy"):
        np.save(tmp_path / file, milliseconds)
    else:
        np.savetxt(tmp_path / file, milliseconds, delimiter=",")
    section = f'latency = {{ kind = "matrix", file = "{file}", unit = "ms" }}\n{LINKS}'
    model = network(tmp_path, section, servers=["server-0", "server-1"])
    assert between(model, client_name(2), client_name(1)) == 13 / 1000
    assert between(model, client_name(0), "server-0") == 5 / 1000  # the servers have the last rows
    assert between(model, "server-1", client_name(3)) == 27 / 1000


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("m.npy", None, "network.latency.file: .*m.npy: no such file"),
        ("m.csv", "a,b\n", "m.csv: is not rows of comma-separated numbers"),
        ("m.txt", "1", "must end in .npy or .csv"),
        ("m.csv", "1,2,3\n4,5,6\n", r"the shape is \(2, 3\); must be a square"),
        ("m.csv", "1,2,3\n4,5,6\n7,8,9\n", "a square of at least 4 rows"),
        ("m.csv", "1,2,3,-4\n" * 4, r"\[0, 3\]: is -4.0; must be a number from 0 to 86400"),
    ],
)
def test_a_matrix_that_does_not_fit(tmp_path: Path, file: str, content: str | None, text: str) -> None:
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=text):
        network(tmp_path, f'latency = {{ kind = "matrix", file = "{file}", unit = "s" }}\n{LINKS}')


def test_stated_places(tmp_path: Path) -> None:
    places = '["London", "New York", [51.51, -0.13], "Tokyo"]'
    kind = f'kind = "positions", floor = "2 ms", stretch = 1.5, places = {places}, server_place = "Frankfurt"'
    model = network(tmp_path, f"latency = {{ {kind} }}\n{LINKS}", servers=["server"])
    assert between(model, client_name(0), client_name(1)) == pytest.approx(0.002 + 1.5 * 0.02787, rel=0.01)
    assert between(model, client_name(0), client_name(2)) == 0.002
    assert between(model, "server", client_name(0)) == pytest.approx(
        0.002 + 1.5 * 637e3 / 199_862e3, rel=0.01
    )


def test_drawn_places_stay_where_they_are(tmp_path: Path) -> None:
    section = f'latency = {{ kind = "positions", floor = "2 ms" }}\n{LINKS}'
    few = network(tmp_path, section, clients=4)
    many = network(tmp_path, section, clients=40, servers=["server"])
    pairs = [(client_name(one), client_name(other)) for one in range(4) for other in range(4) if one != other]
    assert [between(few, *pair) for pair in pairs] == [between(many, *pair) for pair in pairs]
    assert latencies(many).seconds.shape[1] > 8  # different cities
    assert latencies(many).seconds.max() < 0.002 + 20_016e3 / 199_862e3
    other_seed = network(tmp_path, section, clients=4, seed=1)
    assert [between(few, *pair) for pair in pairs] != [between(other_seed, *pair) for pair in pairs]


def test_clients_with_places_need_a_server_with_one(tmp_path: Path) -> None:
    places = '["Paris", "Paris", "Paris", "Paris"]'
    section = f'latency = {{ kind = "positions", floor = "2 ms", places = {places} }}\n{LINKS}'
    assert between(network(tmp_path, section), client_name(0), client_name(1)) == 0.002
    with pytest.raises(UserError, match=r"network\.latency\.server_place: is missing"):
        network(tmp_path, section, servers=["server"])


def test_planetlab_is_half_of_the_measured_round_trips(tmp_path: Path, real_data: Path) -> None:
    section = f'latency = {{ kind = "trace", source = "planetlab" }}\n{LINKS}'
    model = network(tmp_path, section, clients=20, servers=["server"], data_dir=real_data)
    nodes = latencies(model).node_of
    assert len(set(nodes.values())) == 21
    with np.load(real_data / "net-latency" / "planetlab_rtt_ms.npz") as arrays:
        round_trips_ms = arrays["rtt_ms_median"].astype(float)
    for one in nodes:
        for other in nodes:
            if one != other:
                half_s = round_trips_ms[nodes[one], nodes[other]] / 1000 / 2
                assert between(model, one, other) == half_s
    more = network(tmp_path, section, clients=30, servers=["server"], data_dir=real_data)
    assert nodes.items() <= latencies(more).node_of.items()


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"network\.latency needs planetlab_rtt_ms\.npz"):
        network(tmp_path, f'latency = {{ kind = "trace", source = "planetlab" }}\n{LINKS}', data_dir=tmp_path)


# -- Cuts

CUT = f'latency = "1 s"\n{LINKS}\n[[network.partition]]\nstart = "1 s"\nend = "9 s"\n'


def test_a_cut_may_name_the_servers_and_flap(tmp_path: Path) -> None:
    section = CUT + 'groups = [[0, "servers"], [1, 2]]\nflapping = { period = "4 s", share = 0.25 }\n'
    (cut,) = network(tmp_path, section, servers=["server"]).partitions
    assert cut.groups == (("client-0", "server"), ("client-1", "client-2"))
    assert (cut.start_s, cut.end_s, cut.period_s, cut.active_share) == (1.0, 9.0, 4.0, 0.25)


def test_a_one_way_cut_from_the_servers(tmp_path: Path) -> None:
    section = CUT + 'from = ["servers"]\nto = [3]\n'
    (cut,) = network(tmp_path, section, servers=["server"]).partitions
    assert (cut.sources, cut.targets) == ({"server"}, {"client-3"})


def test_true_clusters_are_cut_from_each_other(tmp_path: Path) -> None:
    (cut,) = network(tmp_path, CUT + 'groups = "clusters"\n', clusters=[1, 0, 1, 0]).partitions
    assert cut.groups == (("client-1", "client-3"), ("client-0", "client-2"))
    with pytest.raises(UserError, match=r'network\.partition\.0\.groups = "clusters": this data has no true'):
        network(tmp_path, CUT + 'groups = "clusters"\n')


def test_each_client_has_a_coin_of_its_own(tmp_path: Path) -> None:
    section = CUT + "share = 0.25\n"
    (few,) = network(tmp_path, section, clients=40).partitions
    (many,) = network(tmp_path, section, clients=400, servers=["server"]).partitions
    assert [set(group) <= set(wider) for group, wider in zip(few.groups, many.groups, strict=True)] == [
        True
    ] * 2
    away, rest = many.groups
    assert len(away) / 400 == pytest.approx(0.25, abs=0.09)  # four deviations
    assert (len(away) + len(rest), rest[-1]) == (401, "server")


# -- Whole runs


# -- Refused

ONE_CUT = CUT[CUT.index("[[") :]
ONE_CLASS = "[[network.class]]\nloss = 0.1\n"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("duplicate = 0.1", 'network.duplicate = 0.1: needs link = "datagram"'),
        ('link = "datagram"\nreorder = 0.1', "network.reorder_delay: is missing"),
        ('reorder_delay = "1 s"', 'network.reorder_delay = "1 s": has no effect: reorder is 0 everywhere'),
        ('link = "datagram"\nreorder_delay = "1 s"', "network.reorder_delay = .*: has no effect"),
        ('link = "datagram"\nreorder = 0.1\nreorder_delay = "1 s"\n[[network.class]]\nservers = true\n'
         'reorder = 0.0\nreorder_delay = "2 s"', "network.class.0.reorder_delay = .*: has no effect"),
        ('uplink_queue = "0 B"', "network.uplink_queue = .*: must be more than 0"),
        ('[[network.class]]\nlatency = "1 s"', "network.class.0.inside: set exactly one of"),
        ('[[network.class]]\nacross = [[0, 1]]', "network.class.0.across = .*: must have at least two"),
        (ONE_CLASS + "inside = [[0, 4]]", r"class.0.inside.0 = \[0, 4\]: there is no client 4"),
        ("[[network.class]]\nservers = true\nreorder = 0.5", "network.class.0.reorder = 0.5: needs link"),
        ("loss = { kind = \"gilbert-elliott\", good = \"1 s\" }", "network.loss.bad: is missing"),
        (
            'loss = { kind = "gilbert-elliott", good = "1 s", bad = "1 s", loss_good = 0.5, loss_bad = 0.4 }',
            "network.loss.loss_bad = 0.4: must be more than loss_good",
        ),
        (ONE_CUT + "groups = [[0]]", "network.partition.0.groups = .*: needs at least two groups"),
        (ONE_CUT + "from = [1]\nto = [1]", "partition.0.to = .*: cuts a client off from itself"),
        (ONE_CUT + "from = [1, 1]\nto = [1]", "partition.0.to = .*: cuts a client off from itself"),
        ("[[network.class]]\ninside = [[0, 1]]", "class.0.latency: set 'latency', .* otherwise"),
        ("[[network.class]]\nservers = true", "network.class.0.latency: set .* otherwise, the section has"),
        (ONE_CLASS + "inside = [[0], [1]]", "network.class.0.inside = .*: has no connection"),
        (ONE_CUT + "groups = [[0], [0, 1]]", "that share no member"),
        (ONE_CUT + "share = 0.5\nfrom = [1]\nto = [2]", "partition.0.to = .*: set either"),
        (ONE_CUT + "share = 0.5\ngroups = [[1], [2]]", "partition.0.share = 0.5: set"),
        (ONE_CUT + 'from = ["server"]\nto = [2]', "partition.0.from = .*: must be a list"),
    ],
)  # fmt: skip
def test_refused_sections(tmp_path: Path, section: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        network(tmp_path, f'latency = "1 s"\n{LINKS}{section}\n')


ABOUT_SERVERS = {
    "network.server": 'server = { uplink = "1 Mbit/s", downlink = "2 Mbit/s" }',
    "network.class.0": '[[network.class]]\nservers = true\nlatency = "2 s"',
    'network.class.0.across.1 = ["servers"]': '[[network.class]]\nacross = [[0], ["servers"]]\nloss = 0.5',
    "network.class.0.latency.server_place": (
        "[[network.class]]\ninside = [[0, 1]]\n"
        'latency = { kind = "positions", floor = "1 ms", server_place = "Paris" }'
    ),
    'network.partition.0.from = ["servers"]': ONE_CUT + 'from = ["servers"]\nto = [2]',
    'network.partition.0.to = ["servers"]': ONE_CUT + 'from = [2]\nto = ["servers"]',
    'network.partition.0.groups.1 = ["servers"]': ONE_CUT + 'groups = [[0, 1], ["servers"]]',
    "network.partition.0.share = 1.0": ONE_CUT + "share = 1.0",
}


@pytest.mark.parametrize("stated", ABOUT_SERVERS)
def test_what_is_said_about_servers_needs_a_protocol_that_has_some(tmp_path: Path, stated: str) -> None:
    section = f'latency = "1 s"\n{LINKS}{ABOUT_SERVERS[stated]}\n'
    network(tmp_path, section, servers=["server"])
    text = changed(SMALL, f'latency = "20 ms"\n{LINKS}', section)
    scenario = load_scenario(write(tmp_path, text), ["clients.count=4"])
    with pytest.raises(UserError, match=r', because protocol\.name = "gossip" has no servers') as refusal:
        build(scenario, device="cpu")
    allowed = "must be less than 1" if "share" in stated else "must be removed"
    assert str(refusal.value).startswith(f"{stated}: {allowed}, ")


def test_servers_beside_clients_are_nobody_without_servers(tmp_path: Path) -> None:
    section = CUT + 'groups = [[0, "servers"], [1]]\n'
    (cut,) = network(tmp_path, section).partitions
    assert cut.groups == (("client-0",), ("client-1",))
    scenario = load_scenario(write(tmp_path, changed(SMALL, f'latency = "20 ms"\n{LINKS}', section)))
    build(scenario, device="cpu")


def test_both_bandwidths_of_a_phone_are_in_one_unit(tmp_path: Path) -> None:
    section = (
        'latency = "1 s"\nuplink = { kind = "trace", source = "phones", unit = "kB/s" }\n'
        'downlink = { kind = "trace", source = "phones" }'
    )
    with pytest.raises(UserError, match=r"network\.downlink\.unit = .*: must equal network\.uplink\.unit"):
        network(tmp_path, section)


@pytest.mark.parametrize(
    ("latency", "text"),
    [
        ('{ kind = "positions", floor = "1 ms", places = ["Paris"] }', "one position for each client"),
        ('{ kind = "positions", floor = "1 ms", places = ["Atlantis"] }', "a latitude and a longitude"),
        ('{ kind = "positions", floor = "1 ms", server_place = [91, 0] }', "a latitude and a longitude"),
        ('{ kind = "positions" }', "network.latency.floor: is missing"),
        ('{ kind = "trace", source = "internet" }', "must be one of planetlab, seattle"),
        ('{ kind = "normal", mean = "1 ms", sigma = "1 ms", low = "1 s" }', "latency.low = .*: must be at"),
        ('{ kind = "lognormal", median = "1 ms", sigma = 1000 }', "network.latency.sigma = 1000: must be at"),
        ('{ kind = "trace", source = "seattle", jitter = 100 }', "network.latency.jitter = 100: must be at"),
        ('{ kind = "pareto", minimum = "1 ms", shape = 0 }', "network.latency.shape = 0: must be at least"),
    ],
)  # fmt: skip
def test_refused_latencies(tmp_path: Path, latency: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        network(tmp_path, f"latency = {latency}\n{LINKS}")

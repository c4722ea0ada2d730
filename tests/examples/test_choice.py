"""Choices of clients, of docs/how-to/choose-clients.md: each round's choice against numpy."""

import ast
import copy
import itertools
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.core.simulation import Simulation
from sim.run.setup.builder import build
from tests.examples.test_methods import NAMES, WORLD, protocol
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import churn, learner, loaded

ROUNDS = (
    *WORLD,
    "run.duration=60 s",
    "clients.count=8",
    "data.partition.clusters=1",
    "data.validation_share=0.0",
    'devices.step_time={ kind = "lognormal", median = "60 ms", sigma = 0.8 }',
    "protocol.rounds=12",
    "protocol.patience=8 s",
    "protocol.fraction=0.5",
)


class Choice:
    """A choice of a round: the server's state before it, and the clients."""

    def __init__(self, server: Any) -> None:
        self.number, self.peers, self.now = server.number, list(server.peers), server.now
        self.rng, self.params = copy.deepcopy(server.rng), server.params.numpy().astype(float)
        self.known = copy.deepcopy(getattr(server, "known", getattr(server, "sizes", {})))
        self.clients: list[str] = []


def choices(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, *options: str, at: str = "sample"
) -> tuple[Simulation, list[Choice], Any]:
    """A run, its choices with the state before the call of `at`, and the settings of the server."""
    scenario = loaded(*ROUNDS, protocol(name, kind), *options)
    server = scenario.protocol.method.server  # type: ignore[attr-defined]
    found: list[Choice] = []

    def noting(method: Callable[..., Any], before: bool) -> Callable[..., Any]:
        @wraps(method)
        def noted(self: Any, *given: Any) -> Any:
            if before:
                found.append(Choice(self))
            result = method(self, *given)
            if method.__name__ == "sample":
                found[-1].clients = list(result)
            return result

        return noted

    for each in {at, "sample"}:
        monkeypatch.setattr(server, each, noting(getattr(server, each), each == at))
    with closing(build(scenario, device="cpu")) as simulation:
        simulation.run()
        assert not simulation.supervisor.failures
    assert len(found) == 12
    return simulation, found, scenario.protocol.settings


def losses(simulation: Simulation, client: str, params: np.ndarray) -> np.ndarray:
    """The loss of logistic regression on each sample of a client."""
    x, y = (part.numpy() for part in own_data(simulation, int(client.removeprefix("client-"))))
    scores = x.reshape(len(y), -1) @ params[:640].reshape(10, 64).T + params[640:]
    top = scores.max(1, keepdims=True)
    logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
    return np.asarray(-logs[np.arange(len(y)), y])


def test_power_of_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    options = (
        "protocol.candidates=5",
        "protocol.trained=3",
        'data.partition={ kind = "dirichlet", alpha = 1 }',
        "protocol.local_steps=5",
        "run.duration=200 s",
    )
    simulation, found, _ = choices(monkeypatch, "power_of_choice", "PowerOfChoice", *options, at="round")
    for choice in found:
        sizes = np.array([choice.known.get(client, 1) for client in choice.peers])
        drawn = choice.rng.choice(8, size=5, replace=False, p=sizes / sizes.sum())
        names = [choice.peers[k] for k in drawn]
        means = [losses(simulation, client, choice.params).mean() for client in names]
        assert choice.clients == [names[k] for k in np.argsort(means)[::-1][:3]]
    assert len(set(found[-1].known.values())) > 3
    assert all(size == learner(simulation, int(name[7:])).samples for name, size in found[-1].known.items())


def test_oort(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, found, settings = choices(monkeypatch, "oort", "Oort", "protocol.preferred=1 s")
    for number, choice in enumerate(found):
        peers = choice.peers
        unknown = [client for client in peers if client not in choice.known]
        known = [client for client in peers if client in choice.known]
        utilities, seconds, last = np.array([choice.known[client] for client in known]).reshape(-1, 3).T
        values = utilities + np.sqrt(0.1 * np.log(number + 1) / last)
        values *= np.where(seconds > 1.0, (1.0 / np.maximum(seconds, 1e-9)) ** settings.penalty, 1.0)
        new = min(len(unknown), max(4 - len(known), round(0.3 * 4)))
        expected = [unknown[k] for k in choice.rng.choice(len(unknown), size=new, replace=False)]
        order = np.lexsort((known, -values))
        if 4 - new and known:
            cut = 0.95 * values[order][min(4 - new, len(known)) - 1]
            pool = [k for k in order if values[k] >= cut]
            shares = values[pool] / values[pool].sum()
            count = min(4 - new, len(known))
            drawn = choice.rng.choice(len(pool), size=count, replace=False, p=shares)
            expected += [known[pool[k]] for k in drawn]
        assert choice.clients == expected
    for before, after in itertools.pairwise(found):
        for client in before.clients:
            each = losses(simulation, client, before.params)
            assert after.known[client][0] == pytest.approx(len(each) * np.sqrt((each**2).mean()), rel=1e-5)
            assert after.known[client][2] == before.number + 1


def test_fedcs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 3 as in the paper: the next client is the one that adds least time."""
    options = ("protocol.deadline=4 s", "network.uplink=100 kbit/s", "network.downlink=1 Mbit/s")
    simulation, found, _ = choices(monkeypatch, "fedcs", "FedCS", *options)
    for choice in found:
        times = {client: choice.known.get(client, (0.0, 0.0)) for client in choice.peers}
        left, chosen, ends = sorted(times), [], 0.0
        while left:
            downloads = max([times[client][1] for client in chosen], default=0.0)
            added = {
                client: max(downloads, times[client][1])
                - downloads
                + times[client][1]
                + max(0.0, times[client][0] - ends)
                for client in left
            }
            client = min(left, key=lambda each: (round(added[each], 9), each))
            left.remove(client)
            after = ends + times[client][1] + max(0.0, times[client][0] - ends)
            if max(downloads, times[client][1]) + after < 4.0:
                chosen, ends = [*chosen, client], after
        assert choice.clients == chosen
    assert found[0].clients == sorted(found[0].peers)
    assert 1 <= len(found[-1].clients) < 8
    for client, (seconds, transfer) in found[-1].known.items():
        compute = simulation.clients[int(client[7:])].compute
        assert seconds == pytest.approx(compute.steps_per_epoch * compute.step_s, rel=1e-9)
        assert transfer > 0


TIMES = ((3, "leave", 1), (5, "leave", 4), (6, "rejoin", 4), (7, "rejoin", 1))
AWAY = "".join([churn(event, client, f"{at} s") for at, event, client in TIMES])


def test_least_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.examples.test_choice.ROUNDS", (ROUNDS[0] + AWAY, *ROUNDS[1:]))
    _, found, _ = choices(monkeypatch, "least_available", "LeastAvailable")
    firsts = found[0].peers
    for choice in found:
        up_s = {client: choice.now for client in firsts}
        for client, begin, end in (("client-1", 3.0, 7.0), ("client-4", 5.0, 6.0)):
            if choice.now > begin:
                up_s[client] -= min(choice.now, end) - begin
        shuffled = [choice.peers[k] for k in choice.rng.permutation(len(choice.peers))]
        ordered = sorted(shuffled, key=lambda client: round(up_s[client], 1))
        assert choice.clients == ordered[: max(1, round(len(shuffled) / 2))]
    assert any("client-1" not in choice.peers for choice in found)


@pytest.mark.parametrize("name", ["power_of_choice", "oort", "fedcs", "least_available"])
def test_each_choice_has_at_most_30_lines(name: str) -> None:
    tree = ast.parse(NAMES[name].read_text(encoding="utf-8"))
    [server] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name.endswith("Server")]
    assert server.end_lineno is not None
    assert server.end_lineno - server.lineno + 1 <= 30


NOBODY = """
from coterie import RoundClient, RoundServer


class Seldom(RoundServer):
    def sample(self):
        return self.peers[:2] if self.number % 2 else []


class Rounds(RoundClient):
    server = Seldom
"""


def test_a_round_without_clients_waits(tmp_path: Path) -> None:
    (tmp_path / "seldom.py").write_text(NOBODY)
    scenario = loaded(*ROUNDS, f"protocol.name={tmp_path / 'seldom.py'}:Rounds", "run.duration=120 s")
    with closing(build(scenario, device="cpu")) as simulation:
        simulation.run()
        assert not simulation.supervisor.failures
        server: Any = simulation.servers[0].actor
        assert server.number == 12
        assert simulation.clients[0].iterations == 6
        assert simulation.loop.time() > 6 * 8.0

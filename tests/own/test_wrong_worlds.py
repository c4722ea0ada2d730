"""Functions of the user's own that make no world: refused with what is wrong, file and line."""

from pathlib import Path

import pytest

from sim.errors import UserError
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.own.worlds import scenario_with
from tests.simulation.worlds import DIGITS, write

LATENCY, UP, STEP = "network.latency", "network.uplink", "devices.step_time"
SLOW, CHURN, TOPOLOGY = "devices.slow_times", "churn_process", "clients.topology"
WRONG = {
    "a negative latency": (
        LATENCY,
        "return -0.1",
        "returned -0.1 for sender = 0, receiver = 1, .*be seconds",
    ),
    "a latency that is no number": (LATENCY, "return float('nan')", "returned nan for sender = 0"),
    "a latency as text": (LATENCY, "return '3 ms'", r"returned '3 ms' \(str\) for sender = 0"),
    "an exception": (LATENCY, "return 1 / 0", "failed for sender = 0, .*: ZeroDivisionError"),
    "chance of its own": (LATENCY, "import random; return random.random()", "random numbers from rng only"),
    "no bandwidth at all": (UP, "return 0", "returned 0 for client = 0; must be bits per second"),
    "no step time": (STEP, "return 0.0", "returned 0.0 for client = 0; must be seconds from 1e-09"),
    "a truth value": (STEP, "return True", r"returned True \(bool\) for client = 0"),
    "time that goes back": (
        SLOW,
        "yield 5, 2; yield 3, 1",
        "returned the time 3 s after the time 5 s for client = 0",
    ),
    "a factor of nothing": (SLOW, "yield 5, 0.0", "returned 0.0 for client = 0; must be a factor"),
    "a number for pieces": (SLOW, "return 3.0", "returned type float for client = 0; return a list"),
    "sessions that overlap": (
        CHURN,
        "return [(0, 5), (4, 7)]",
        "returned the session from 4 s to 7 s .* at 5 s",
    ),
    "a begin before the start": (CHURN, "yield -1, 4", "returned -1 for client = 0; must be a start"),
    "a failing generator": (CHURN, "yield 0, 1; [][0]", "failed for client = 0: IndexError"),
    "other sessions": (CHURN, "import random; yield 0, 1 + random.random()", "returned different results in"),
    "an unknown client": (TOPOLOGY, "return [(0, 6)]", r"returned \(0, 6\); clients are .* from 0 to 5"),
    "a link to oneself": (
        TOPOLOGY,
        "return [(0, 1), (2, 2)]",
        r"returned \(2, 2\); a client cannot have a link to its",
    ),
    "no links": (TOPOLOGY, "return []", "returned no link"),
    "a single number": (TOPOLOGY, "return [3]", r"returned 3 .*must be a link \(sender, receiver\)"),
    "a negative weight": (TOPOLOGY, "return [(0, 1, -0.5)]", "returned -0.5 in .*; must be a weight"),
    "weights here and there": (TOPOLOGY, "return [(0, 1, 0.5), (1, 2)]", "weights for some links only"),
    "two weights of a link": (
        TOPOLOGY,
        "return [(0, 1, 0.5), (1, 0, 0.2)]",
        "the same link with another weight",
    ),
    "more than there is": (TOPOLOGY, "return [(0, 1, .7), (1, 2, .7)]", "client 1 that add up to 1.4"),
    "an array of another size": (TOPOLOGY, "return np.ones((5, 6))", r"shape \(5, 6\); .*shape \(6, 6\)"),
    "an array one way": (TOPOLOGY, "return np.eye(6, k=1) / 2", "row 0, column 1, but none in row 1.* true"),
    "an array of too much": (TOPOLOGY, "return np.ones((6, 6))", "row 0 adds up to 6 with its diagonal"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_are_refused_with_file_and_line(tmp_path: Path, name: str) -> None:
    key, body, message = WRONG[name]
    where = f"{key}.0" if key in (SLOW, CHURN) else key
    path = scenario_with(tmp_path, key, f"import numpy as np\ndef mine():\n    {body}\n")
    with pytest.raises(
        UserError, match=rf'^{where}\.kind = ".*own\.py:mine": .*own\.py:[23]: mine .*{message}'
    ):
        build(load_scenario(path), device="cpu").close()


def test_where_in_the_file_it_failed_is_told(tmp_path: Path) -> None:
    text = "def mine(time):\n    return inner(time)\n\n\ndef inner(time):\n    return 1 / time\n"
    with pytest.raises(UserError, match=r"own\.py:6: mine failed .* ZeroDivisionError"):
        build(load_scenario(scenario_with(tmp_path, LATENCY, text)), device="cpu").close()


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "def mine(depth):\n    pass\n": "argument depth needs a type.* rng, sender, receiver, time, clients",
        "def mine(*depth):\n    pass\n": "argument depth cannot be passed by name",
        "def mine(kind: str):\n    pass\n": "argument kind has the name of a common key",
        "def mine(keys: int):\n    pass\n": "argument keys has the name of an attribute of coterie",
        "mine = 3\n": "must be a class or a function, but is of type int",
        "def other():\n    pass\n": "has no 'mine'; must be one of other",
    }.items(),
)
def test_functions_that_no_scenario_can_call(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"network.latency.kind = .*{message}"):
        load_scenario(scenario_with(tmp_path, LATENCY, text))


def test_slow_times_need_a_function(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, SLOW, "x = 1")
    with pytest.raises(UserError, match=r"slow_times.0.kind = .slow.: must name your own function"):
        load_scenario(write(tmp_path, path.read_text().replace("own.py:mine", "slow")))


@pytest.mark.parametrize(
    "option",
    [
        "data.name=own.py:mine",
        'data.partition={kind="own.py:mine"}',
        "model.name=own.py:mine",
        "protocol.name=own.py:mine",
        "network.latency=own.py:mine",
        'clients.topology={kind="own.py:mine"}',
    ],
)
def test_no_code_refuses_every_door_unread(tmp_path: Path, option: str) -> None:
    write(tmp_path, "raise SystemExit(7)", "own.py")
    with pytest.raises(UserError, match="--no-code forbids; allowed: "):
        load_scenario(write(tmp_path, DIGITS), [option], code=False)

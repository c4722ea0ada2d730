"""Protocols that are wrong: what their author is told, and that it points at the author's own line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from tests.simulation.worlds import QUADRATIC, write

BEGIN = """\
from dataclasses import dataclass

from pydantic import BaseModel

from protocols.framework.client import Client
from protocols.framework.requirements import Requirement
from protocols import Duration, RoundModel, Rounds


@dataclass(frozen=True)
class Note:
    number: int


class Own(Client):
"""
STEP = """
    async def step(self):
        await self.sleep(1)
"""


OBJECTIVE = f"""\
    @classmethod
    def objective(cls, settings):
        return Own2()
{STEP}

@dataclass(frozen=True)
class Own2:
    views: int = 1

"""


def command(verb: str, folder: Path, body: str, *options: str) -> Result:
    (folder / "own.py").write_text(BEGIN + body, encoding="utf-8")
    file = write(folder, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
    where = ("--out", str(folder / "runs"), "--device", "cpu", "--quiet") if verb == "run" else ()
    return CliRunner().invoke(app, [verb, str(file), *where, "--set", "run.duration=5 s", *options])


def place(folder: Path, body: str) -> str:
    """The line that ends with a comment saying so."""
    [line] = [n for n, text in enumerate((BEGIN + body).splitlines(), 1) if text.endswith("# here")]
    return f"{folder / 'own.py'}:{line}"


REFUSED = {
    "a setting that no scenario can state": (
        "    class Settings(Client.Settings):  # here\n        f: object = len\n" + STEP,
        "Own.Settings.f = <built-in function len>: must be a number, a text, true or false, or a tuple or a",
    ),
    "settings of another kind": (
        "    class Settings(BaseModel):  # here\n        x: int = 3\n" + STEP,
        "Own.Settings must be a class, written `class Settings(Client.Settings):`, not the class Settings",
    ),
    "a default of another type": (
        "    class Settings(Client.Settings):  # here\n        x: Duration = 3\n" + STEP,
        "the default of Own.Settings.x = 3: 3 has no unit; write a number and one of us, ms, s, min, h, day,",
    ),
    "no super": (
        "    def __init__(self, *given):  # here\n        self.x = 3\n" + STEP,
        "Own.__init__() must call super().__init__(name, context, compute, settings)",
    ),
    "before super": (
        "    def __init__(self, *given):\n        self.x = self.settings  # here\n" + STEP,
        "Own.__init__() failed: AttributeError: 'Own' object has no attribute 'settings'; it takes (self, "
        "name, context, compute, settings) and starts with super().__init__(",
    ),
    "a name of coterie's": (
        "    def setup(self):\n        self.peers = []  # here\n" + STEP,
        "Own.setup() assigns self.peers, an attribute of coterie: choose another "
        "name, such as self.own_peers\n",
    ),
    "an error of its own before it begins": (
        "    def setup(self):\n        self.x = self.y  # here\n" + STEP,
        "Own.setup() failed: AttributeError: 'Own' object has no attribute 'y'\n",
    ),
    "a patience with a unit": (
        "    def setup(self):\n        self.rounds = Rounds(self, '10 s')  # here\n" + STEP,
        "Own.setup() failed: TypeError: the patience of Rounds() must be a number of seconds, such as 2.0 (a "
        "setting of type Duration is one), not '10 s'\n",
    ),
    "other arguments": (
        "    def __init__(self, name):  # here\n        super().__init__(name)\n" + STEP,
        "Own.__init__() failed: TypeError: Own.__init__() takes 2 positional arguments but 5 were "
        "given; it takes",
    ),
    "no objective": (
        "    @classmethod  # here\n    def objective(cls, settings):\n        return lambda *x: 0.0\n" + STEP,
        "Own.objective() returned <function",
    ),
    "no servers": (
        "    @classmethod  # here\n    def servers(cls, settings, clients, clusters):\n        return 3\n"
        + STEP,
        "Own.servers() must return a list of ServerPlan, not 3",
    ),
    "no requirements": (
        "    @classmethod  # here\n    def requirements(cls, settings):\n        return 3\n" + STEP,
        "Own.requirements() must return a list of Requirement, not 3",
    ),
    "a requirement of nothing": (
        "    @classmethod  # here\n    def requirements(cls, settings):\n"
        "        return [Requirement('training.momentun', bool, 'must not be 0')]\n" + STEP,
        "Own.requirements() failed: AttributeError: 'Training' object has no attribute 'momentun' (of",
    ),
    "a loss of each sample": (
        OBJECTIVE + "    def __call__(self, model, parameters, x, y):  # here\n        return x[:, 0]\n",
        "Own2.__call__() must return the mean loss of a batch, a tensor without dimensions, not a tensor [2]",
    ),
    "a loss that fails": (
        OBJECTIVE
        + "    def __call__(self, model, parameters, x, y):\n        return model.forwards(x)  # here\n",
        "Own2.__call__() failed: AttributeError: ",
    ),
    "a step that is no coroutine": (
        "    def step(self):  # here\n        self.sleep(1)\n",
        "Own.step() must be written `async def step(...)`",
    ),
    "weights that are a coroutine": (
        "    async def weights(self):  # here\n        return {}\n" + STEP,
        "Own.weights() must be written `def weights(...)`, without async",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_can_be_no_protocol_is_refused(kind: str, verb: str, tmp_path: Path) -> None:
    body, text = REFUSED[kind]
    result = command(verb, tmp_path, body)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{tmp_path / 'world.toml'}: {place(tmp_path, body)}: {text}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "    def help(self):\n        pass\n",
            "{folder}/own.py:15: Own has no step(): write `async def step(self):`, one iteration",
        ),
        (
            STEP + "\n\nclass Own(Client):\n" + STEP,
            'protocol.name = "{folder}/own.py:Own": {folder}/own.py has several classes of this name, '
            "in lines 15, 21; rename them",
        ),
    ],
)
def test_a_class_without_a_step_or_of_which_there_are_two_is_refused(
    body: str, problem: str, tmp_path: Path
) -> None:
    result = command("check", tmp_path, body)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{tmp_path / 'world.toml'}: {problem.format(folder=tmp_path)}\n",
    )


def test_what_is_collected_must_be_classes(tmp_path: Path) -> None:
    result = command("check", tmp_path, "    collected = Note\n" + STEP)
    assert result.exit_code == 2
    assert "Own.collected must be a tuple of message classes, such as (Model,), not <class" in result.stderr


FAILS = {
    "leaving": (STEP + "        exit(7)  # here\n", "RuntimeError: sys.exit(7) was called"),
    "a learning rate that is none": (
        STEP + "        await self.train(learning_rate=float('nan'))  # here\n",
        "ValueError: learning_rate must be a finite number, 0 or more, not nan",
    ),
    "a name that evaluations use": (
        STEP + "        self.observe('distance_of_shared', 1.0)  # here\n",
        "TypeError: observe('distance_of_shared'): coterie measures that itself; choose another name",
    ),
    "a name that all clients report": (
        STEP + "        self.observe('iterations', 5.0)  # here\n",
        "TypeError: observe('iterations'): coterie records that itself; choose another name, such as my_iter",
    ),
    "observe": (
        STEP + "        self.observe('x', [1])  # here\n",
        "TypeError: observe('x', [1]): the value must be a number, not list",
    ),
    "observe what was not awaited": (
        STEP + "        self.observe('x', self.loss(self.params))  # here\n",
        "TypeError: observe('x', ...): the value must be a number, not coroutine: write `await` before the "
        "call ",
    ),
    "tell nobody": (
        STEP + "        self.tell('client7', Note(1))  # here\n",
        "UnknownPeer: no actor in this run has the name 'client7'; the names are client-0, client-1, "
        "client-2, "
        "client-3, client-4, client-5; did you mean 'client-",
    ),
    "ask for ever": (
        STEP + "        await self.ask('client-1', Note(1), timeout=None)  # here\n",
        "TypeError: the timeout of ask() must be a number of seconds, such as 2.0 (a setting of type "
        "Duration "
        "is one), not None",
    ),
    "collect for a text": (
        "    collected = (Note,)\n"
        + STEP
        + "        await self.collect(Note, ['client-1'], timeout='2 s')  # here\n",
        "TypeError: the timeout of collect() must be a number of seconds, such as 2.0 (a setting of type "
        "Duration is one), not '2 s'",
    ),
    "collect from a text": (
        "    collected = (Note,)\n"
        + STEP
        + "        await self.collect(Note, 'client-1', timeout=1)  # here\n",
        "TypeError: collect() takes several peers, such as ['client-1'], not the text 'client-1'",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", FAILS)
def test_what_fails_in_every_client_is_said_once(kind: str, tmp_path: Path) -> None:
    body, error = FAILS[kind]
    result = command("run", tmp_path, body)
    assert result.exit_code == 1
    [line] = [line for line in result.stdout.splitlines() if line.startswith("failed: ")]
    begin = f"failed: client-0 and 5 more failed first at 1 s in step ({place(tmp_path, body)}): {error}"
    assert line.startswith(begin)
    [directory] = (tmp_path / "runs").iterdir()
    assert RunDirectory.load(directory).summary()["failures"] == [line.removeprefix("failed: ")]


ROUNDS = """\
    collected = (RoundModel,)

    def setup(self):
        self.rounds = Rounds(self, 10.0)

    async def step(self):
        await self.sleep(1)
"""
ANNOUNCED = "        self.rounds.announce()\n"
TAKEN = (
    "TypeError: observe('staleness'): coterie records that itself; choose another name, such as my_staleness"
)
FAILS_IN_ROUNDS = {
    "a name that rounds record": (
        ROUNDS
        + ANNOUNCED
        + "        await self.rounds.gather()\n        self.observe('staleness', 5.0)  # here\n",
        TAKEN,
    ),
    "an announced message that is not collected": (
        ROUNDS.replace("RoundModel,", "").replace("10.0", "10.0, announced=lambda: Note(1)")
        + ANNOUNCED
        + "        await self.rounds.gather()  # here\n",
        "ActorError: Own cannot collect Note: add it to the class attribute `collected`, so that early",
    ),
    "a name that rounds record later": (
        ROUNDS
        + "        self.observe('staleness', 5.0)\n"
        + ANNOUNCED
        + "        await self.rounds.gather()  # here\n",
        TAKEN,
    ),
}


@pytest.mark.parametrize("kind", FAILS_IN_ROUNDS)
def test_what_fails_in_rounds_is_said_with_its_line(kind: str, tmp_path: Path) -> None:
    body, error = FAILS_IN_ROUNDS[kind]
    result = command("run", tmp_path, body)
    assert result.exit_code == 1
    assert f" in step ({place(tmp_path, body)}): {error}" in result.stdout


ALTERABLE = """

@dataclass  # here
class Alterable:
    number: int
"""


@pytest.mark.parametrize("verb", ["tell", "ask", "on_message"])
def test_a_message_that_is_not_frozen_is_named_with_its_place(verb: str, tmp_path: Path) -> None:
    sends = {
        "tell": "        self.tell('client-1', Alterable(1))\n",
        "ask": "        await self.ask('client-1', Alterable(1), timeout=1)\n",
        "on_message": "        await self.ask('client-1', Note(1), timeout=1)\n",
    }
    answer = "    async def on_message(self, message, sender):\n        return Alterable(1)\n"
    body = STEP + sends[verb] + answer + ALTERABLE
    result = command("run", tmp_path, body)
    assert result.exit_code == 1
    what = "the answer of on_message()" if verb == "on_message" else f"{verb}()"
    must = "Alterable must be a frozen dataclass: write @dataclass(frozen=True)"
    assert f"TypeError: {what}: {place(tmp_path, body)}: {must}" in result.stdout
    assert "Envelope" not in result.stdout


WEIGHTS = {
    "a list": (
        "    def weights(self):  # here\n        return [1]\n",
        "TypeError: weights() must return a mapping",
    ),
    "an error": (
        "    def weights(self):\n        return 1 / 0  # here\n",
        "ZeroDivisionError: division by zero",
    ),
    "nobody": (
        "    def weights(self):  # here\n        return {'me': 1.0}\n",
        "ValueError: weights() names 'me', which is not a client; use names from self.peers",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", WEIGHTS)
def test_wrong_weights_cost_the_graph_and_not_the_run(kind: str, tmp_path: Path) -> None:
    body, error = WEIGHTS[kind]
    result = command("run", tmp_path, body + STEP)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("failed: ")]
    assert line.startswith(
        f"failed: client-0 and 5 more failed first at 0 s in weights ({place(tmp_path, body)}): {error}"
    )
    assert line.endswith("(went on)")
    [directory] = (tmp_path / "runs").iterdir()
    summary = RunDirectory.load(directory).summary()
    assert summary["clients"]["alive"] == 6
    assert summary["virtual_seconds"] == 5.0


def test_numpys_choices_among_names_are_names(tmp_path: Path) -> None:
    body = """
    collected = (Note,)

    async def step(self):
        await self.sleep(1)
        peer = self.rng.choice(self.peers)
        self.tell(peer, Note(3))
        await self.ask(self.rng.choice(self.peers), Question(), timeout=1)
        found = await self.collect(Note, self.rng.choice(self.peers, size=2), timeout=0.1)
        assert all(type(name) is str for name in found)
        self.suspect(peer)

    async def on_message(self, message, sender):
        return Note(1)


@dataclass(frozen=True)
class Question:
    pass
"""
    result = command("run", tmp_path, body)
    assert result.exit_code == 0, result.output
    [directory] = (tmp_path / "runs").iterdir()
    summary = RunDirectory.load(directory).summary()
    assert summary["failures"] == []
    assert summary["messages"]["delivered"] > 0


def test_to_one_that_is_gone_or_has_yet_to_come_is_no_error(tmp_path: Path) -> None:
    churn = "churn=[{at='2 s', event='crash', clients=[1]}, {at='4 s', event='join', clients=[2]}]"
    body = STEP + "        self.tell('client-1', Note(1))\n        self.tell('client-2', Note(2))\n"
    body += "    async def on_message(self, message, sender):\n        pass\n"
    result = command("run", tmp_path, body, "--set", churn)
    assert result.exit_code == 0, result.output
    [directory] = (tmp_path / "runs").iterdir()
    summary = RunDirectory.load(directory).summary()
    assert summary["failures"] == []
    assert summary["messages"]["dropped"] > 0


def test_what_is_never_awaited_is_said_once_with_its_line(tmp_path: Path) -> None:
    body = """
    async def step(self):
        sleep, train, ask = self.sleep, self.train, self.ask  # by the verbs' own names `check` refuses it
        sleep(3)
        train()
        ask("client-1", Note(1), timeout=1)
        await self.sleep(1)
        helper()


async def helper():
    pass
"""
    result = command("run", tmp_path, body)
    assert result.exit_code == 0
    first = BEGIN.count("\n") + 3
    expected = [
        f"client-0 called {call}() at {tmp_path / 'own.py'}:{first + line} without await, which has no "
        f"effect: write `await {call}(...)`"
        for line, call in enumerate(["self.sleep", "self.train", "self.ask"], 1)
    ]
    expected.append(expected[0].replace(f":{first + 1} ", f":{first + 5} ").replace("self.sleep", "helper"))
    assert result.stderr.splitlines() == [f"warning: {line}" for line in expected]
    [directory] = (tmp_path / "runs").iterdir()
    assert RunDirectory.load(directory).summary()["warnings"] == expected


@pytest.mark.parametrize(
    ("mode", "asynchronous", "is_refused"),
    [
        ("asynchronous", "", True),
        ("synchronous", "", False),
        ("asynchronous", "    asynchronous = None\n", False),
    ],
    ids=["left out", "in rounds", "stated"],
)
def test_a_change_of_a_method_with_two_forms_is_not_left_out_in_silence(
    tmp_path: Path, mode: str, asynchronous: str, is_refused: bool
) -> None:
    """Without rounds, the class that it inherits as that form would run, without the change."""
    body = "    pass\n\n\nfrom protocols.cobo import CoBo\n\n\n"
    body += f"class Changed(CoBo):  # here\n{asynchronous}{STEP}"
    options = ("--set", "protocol.name=own.py:Changed", "--set", f"protocol.mode={mode}")
    result = command("check", tmp_path, body, *options)
    told = f"would run CoBoAsynchronous, without the changes in Changed ({place(tmp_path, body)})"
    assert (told in " ".join(result.output.split())) == is_refused, result.output
    assert result.exit_code == 2 * is_refused, result.output

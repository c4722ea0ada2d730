"""What is written in a protocol's classes and never called, or cannot be: `check` says so with its line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from tests.simulation.worlds import QUADRATIC, write

BEGIN = """\
from protocols.framework.client import Client
from protocols.framework.server import Server, ServerPlan
from protocols.shared.async_server import AsyncClient, AsyncServer
from protocols.shared.server_rounds import RoundClient, RoundServer


class Coordinator(Server):
    async def run(self):
        pass
"""
PLAN = """\
    @classmethod
    def servers(cls, settings, clients, clusters):
        return [ServerPlan("server", Coordinator, tuple(clients))]
"""
MERGED = "self.params = self.params"
STEP = """\
    async def step(self):
        await self.sleep(1)
"""


def checked(folder: Path, code: str) -> Result:
    (folder / "own.py").write_text(code, encoding="utf-8")
    file = write(folder, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
    return CliRunner().invoke(app, ["check", str(file)])


def with_client(body: str) -> str:
    return f"{BEGIN}\n\nclass Own(Client):\n{body}{STEP}"


def with_server(body: str) -> str:
    return f"{BEGIN}{body}\n\nclass Own(Client):\n{PLAN}{STEP}"


REFUSED = {
    **{
        f"no property: {name}": (
            with_client(f"    def {name}(self):  # here\n        return 3\n"),
            f"Own.{name} must be a property, because it is read without (): write @property above it",
        )
        for name in ("samples", "params", "peers", "mixing_weights")
    },
    "a server of a plain client": (
        with_client("    server = Coordinator\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.server is used neither by coterie nor by this code; a RoundClient names its server class",
    ),
    "a server of a plain client that talks to it": (
        with_client(
            '    server = Coordinator\n    async def begun(self):\n        self.tell("server", 1)\n'
        ).replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.server is used neither by coterie nor by this code",
    ),
    "too few arguments": (
        with_client("    async def on_message(self, message):  # here\n        pass\n"),
        "Own.on_message() must take (self, message, sender)",
    ),
    "too many arguments": (
        with_client("    async def on_message(self, message, sender, time):  # here\n        pass\n"),
        "Own.on_message() must take (self, message, sender)",
    ),
    "a keyword that nobody gives": (
        with_client("    def peer_changed(self, peer, up, *, when):  # here\n        pass\n"),
        "Own.peer_changed() must take (self, peer, up)",
    ),
    "parameters that are read before an await": (
        with_client("").replace("await self.sleep(1)", f"{MERGED} + await self.train()  # here"),
        "Own.step() reads self.params before an await and loses any merge during the await; write `update",
    ),
    "parameters that are read before an await in one arm": (
        with_client("").replace(
            "await self.sleep(1)",
            "self.params = await self.train() if self.now else self.params + await self.train()  # here",
        ),
        "Own.step() reads self.params before an await",
    ),
    "parameters that are read before an await, in short": (
        with_client("").replace("await self.sleep(1)", "self.params += await self.train()  # here"),
        "Own.step() reads self.params before an await",
    ),
    "a verb without await, as an operand": (
        with_client("").replace("await self.sleep(1)", "self.params = self.params + self.train()  # here"),
        "Own.step() does not await train(): write `await self.train(...)`",
    ),
    "a verb without await, by a name": (
        with_client("").replace(
            "await self.sleep(1)",
            "update = self.train()  # here\n        self.params = self.params + update",
        ),
        "Own.step() does not await train(): write `await self.train(...)`",
    ),
    "a verb without await, alone": (
        with_client("").replace("await self.sleep(1)", "self.sleep(1)  # here"),
        "Own.step() does not await sleep(): write `await self.sleep(...)`",
    ),
    "a field of coterie, assigned": (
        with_client("    def setup(self):\n        self.compute = 0.0  # here\n"),
        "Own.setup() assigns self.compute, an attribute of coterie: choose another "
        "name, such as self.own_compute",
    ),
    "a field of coterie, counted on": (
        with_client("").replace(
            "await self.sleep(1)", "self.iterations += 1  # here\n        await self.sleep(1)"
        ),
        "Own.step() assigns self.iterations, an attribute of coterie",
    ),
    "a property of coterie, assigned": (
        with_client("    def setup(self):\n        self.peers = []  # here\n"),
        "Own.setup() assigns self.peers, an attribute of coterie",
    ),
    "a verb of clients": (
        with_client("    async def sleep(self, seconds):  # here\n        pass\n"),
        "Own.sleep replaces a method of coterie: rename it, or mark it with @override",
    ),
    "a verb of clients, without its arguments": (
        with_client("    def train(self):  # here\n        pass\n"),
        "Own.train replaces a method of coterie",
    ),
    "a verb that each client is given": (
        with_client("    def observe(self):  # here\n        pass\n"),
        "Own.observe replaces a method of coterie",
    ),
    "a verb of servers": (
        with_server("    async def ask(self, peer):  # here\n        pass\n"),
        "Coordinator.ask replaces a method of coterie",
    ),
    "a step with an argument": (
        with_client("").replace("step(self):", "step(self, number):  # here"),
        "Own.step() must take (self)",
    ),
    "a misspelt handler": (
        with_client("    async def on_mesage(self, message, sender):  # here\n        pass\n"),
        "Own.on_mesage is used neither by coterie nor by this code; "
        "did you mean on_message(self, message, sender)?",
    ),
    "a handler of another tool": (
        with_client("    async def on_receive(self, message, sender):  # here\n        pass\n"),
        "Own.on_receive is used neither by coterie nor by this code; its hooks are setup, on_start, on_stop,",
    ),
    "a misspelt constant": (
        with_client("    edge_treshold = 0.3\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.edge_treshold is used neither by coterie nor by this code; did you mean 'edge_threshold'?",
    ),
    "a hook of servers by rounds": (
        with_client("    def combine(self, answers, number):  # here\n        pass\n"),
        "Own.combine is used neither by coterie nor by this code; it is a method of RoundServer",
    ),
    "a step of a server": (
        with_server("    async def step(self):  # here\n        pass\n"),
        "Coordinator.step is used neither by coterie nor by this code; it is a method of Client",
    ),
    "a server that hears too little": (
        with_server("    async def on_message(self, message):  # here\n        pass\n"),
        "Coordinator.on_message() must take (self, message, sender)",
    ),
    "a misspelt handler of a server": (
        with_server("    async def on_massage(self, message, sender):  # here\n        pass\n"),
        "Coordinator.on_massage is used neither by coterie nor by this code; did you mean on_message(self,",
    ),
    "a handler of a server that is no coroutine": (
        with_server("    def on_message(self, message, sender):  # here\n        pass\n"),
        "Coordinator.on_message() must be written `async def on_message(...)`",
    ),
    "a server by rounds that is misspelt": (
        f"{BEGIN}\n\nclass Mine(RoundServer):\n    def combin(self, answers, number):  # here\n        pass\n"
        "\n\nclass Own(RoundClient):\n    server = Mine\n",
        "Mine.combin is used neither by coterie nor by this code; did you mean combine(self, answers,",
    ),
    "what is no server": (
        f"{BEGIN}\n\nclass Own(Client):\n{PLAN.replace('def servers', 'def servers')}{STEP}".replace(
            "Coordinator, tuple", "Client, tuple"
        ).replace("    @classmethod", "    @classmethod  # here"),
        "Own.servers(): server: <class 'protocols.framework.client.Client'> is not a subclass of Server",
    ),
}
NEAR = {
    "a weight beside the weight of a layer": (
        with_client(
            "    def weight(self):  # here\n        return {}\n"
            "    def norm(self, layer):\n        return layer.weight\n"
        ),
        "Own.weight is used neither by coterie nor by this code; did you mean weights(self)?",
    ),
    "a handler beside names of settings": (
        with_client(
            "    async def on_mesage(self, message, sender):  # here\n        pass\n"
            "    def look(self, key):\n        return getattr(self.settings, key)\n"
        ),
        "Own.on_mesage is used neither by coterie nor by this code",
    ),
    "a handler that only it calls": (
        with_client(
            "    async def on_mesage(self, message, sender):  # here\n"
            "        await self.on_mesage(message, sender)\n"
        ),
        "Own.on_mesage is used neither by coterie nor by this code",
    ),
    "words joined in another way": (
        with_client("    async def onMessage(self, message, sender):  # here\n        pass\n"),
        "Own.onMessage is used neither by coterie nor by this code; did you mean on_message(",
    ),
    "capitals": (
        with_client("").replace("async def step(self):", "async def Step(self):  # here"),
        "Own.Step is used neither by coterie nor by this code; did you mean step(self)?",
    ),
    "a class method": (
        with_client(PLAN)
        .replace("    @classmethod", "    @classmethod  # here")
        .replace("servers", "server"),
        "Own.server is used neither by coterie nor by this code; did you mean servers(cls, settings, clients",
    ),
    "a method of the class in a server": (
        with_server("    @classmethod  # here\n    def objective(cls, settings):\n        pass\n"),
        "Coordinator.objective is used neither by coterie nor by this code; it is a method of Client",
    ),
    "a misspelt declaration": (
        with_client("    colected = (int,)\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.colected is used neither by coterie nor by this code; did you mean 'collected'?",
    ),
    "settings in the singular": (
        with_client("    class Setting(Client.Settings):\n        of_it: int = 1\n").replace(
            "class Own(Client):", "class Own(Client):  # here"
        ),
        "Own.Setting is used neither by coterie nor by this code; did you mean 'Settings'?",
    ),
}
FORM = {
    "a table in place of a method": (
        with_client("    weights = {}\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.weights must be a method, `def weights(self)`",
    ),
    "a property in place of a method": (
        with_client("    @property\n    def weights(self):\n        return {}\n").replace(
            "class Own(Client):", "class Own(Client):  # here"
        ),
        "Own.weights must be a method, `def weights(self)`",
    ),
    "an object's method in place of its class's": (
        with_client("    def servers(self, settings, clients, clusters):  # here\n        return []\n"),
        "Own.servers() must be a @classmethod",
    ),
    "a hook of servers by rounds that nobody awaits": (
        f"{BEGIN}\n\nclass Mine(RoundServer):\n    async def combine(self, answers, number):  # here\n"
        "        pass\n\n\nclass Own(RoundClient):\n    server = Mine\n",
        "Mine.combine() must be written `def combine(...)`, without async",
    ),
    "a hook of servers without rounds that nobody awaits": (
        f"{BEGIN}\n\nclass Mine(AsyncServer):\n"
        "    async def arrived(self, work, client, staleness):  # here\n"
        "        pass\n\n\nclass Own(AsyncClient):\n    server = Mine\n",
        "Mine.arrived() must be written `def arrived(...)`, without async",
    ),
    "a hook of servers without rounds that takes too little": (
        f"{BEGIN}\n\nclass Mine(AsyncServer):\n    def arrived(self, work, client):  # here\n"
        "        pass\n\n\nclass Own(AsyncClient):\n    server = Mine\n",
        "Mine.arrived() must take (self, work, client, staleness)",
    ),
    "a hook of clients of such servers that is awaited": (
        f"{BEGIN}\n\nclass Own(AsyncClient):\n    def work(self, start):  # here\n        return start\n",
        "Own.work() must be written `async def work(...)`",
    ),
    "no server": (
        f"{BEGIN}\n\nclass Own(AsyncClient):  # here\n    pass\n",
        "Own does not name a server: write `server = ...`, a subclass of AsyncServer with arrived()",
    ),
    "a server that makes use of nothing": (
        f"{BEGIN}\n\nclass Mine(AsyncServer):  # here\n    pass\n\n\nclass Own(AsyncClient):\n"
        "    server = Mine\n",
        "Mine has no arrived(): write `def arrived(self, work, client, staleness):`",
    ),
    "settings without those of such clients": (
        f"{BEGIN}\n\nclass Own(AsyncClient):\n    class Settings(Client.Settings):  # here\n"
        "        x: int = 3\n",
        "Own.Settings must be a class, written `class Settings(AsyncClient.Settings):`, not the class",
    ),
    "settings without those of rounds": (
        f"{BEGIN}\n\nclass Own(RoundClient):\n    class Settings(Client.Settings):  # here\n"
        "        x: int = 3\n",
        "Own.Settings must be a class, written `class Settings(RoundClient.Settings):`, not the class",
    ),
    "what is no server, in our own plan": (
        f"{BEGIN}\n\nclass Own(RoundClient):  # here\n    server = 3\n",
        "Own.servers(): server: 3 is not a subclass of Server",
    ),
}
REFUSED |= NEAR | FORM


@pytest.mark.long
@pytest.mark.parametrize(("code", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_never_called_is_refused(tmp_path: Path, code: str, complaint: str) -> None:
    [line] = [number for number, text in enumerate(code.splitlines(), 1) if text.endswith("# here")]
    result = checked(tmp_path, code)
    assert result.exit_code == 2, result.output
    assert f"{tmp_path / 'own.py'}:{line}: {complaint}" in result.output
    assert result.output.count("\n") == 1


FINE = {
    "parameters that are read after the await": (
        "    async def merge(self, update):\n        self.params = await self.train() + self.params\n"
        "    async def on_start(self):\n        await self.merge(1)\n"
    ),
    "an await of what either arm works on, and parameters that are read to choose one": (
        "    async def on_start(self):\n"
        "        self.params = (await self.half(self.params) if self.now < 1\n"
        "            else await self.half(self.params) if self.params.dot(self.params) > 1\n"
        "            else await self.half(self.params))\n"
        "    async def half(self, params):\n        return params / 2\n"
    ),
    "helpers of its own": (
        "    def combine(self):\n        pass\n    def later(self):\n        self.combine()\n"
    ),
    "handlers found by name": (
        "    async def on_vote(self, message):\n        pass\n"
        "    async def on_message(self, message, sender):\n"
        "        await getattr(self, f'on_{message}')(message)\n"
    ),
    "more arguments with defaults": (
        "    async def on_message(self, message, sender, again=False):\n        pass\n"
    ),
    "any arguments": "    async def on_message(self, *given):\n        pass\n",
    "names like those of coterie, used": (
        "    weight = 0.5\n    def mixed(self):\n        return self.weight\n"
    ),
    "a constant beside the method that is named nearly so": "    steps = 3\n",
    "names of nobody": "    limit = 3\n    def halve(self):\n        pass\n",
    "nearly a hook's name, with other arguments": "    def weigh(self, models, loss):\n        pass\n",
    "the verbs' names": "    loss = 0.0\n    async def gossip(self):\n        pass\n",
    "nearly a hook's name, called": (
        "    def weight(self):\n        return 1\n    def mixed(self, of):\n        return of.weight()\n"
    ),
    "nearly a hook's name, handed on": (
        "    def weight(self):\n        return 1\n    def mixed(self):\n        return map(Own.weight, [])\n"
    ),
    "a hook that is another method": "    def weight(self):\n        return {}\n    weights = weight\n",
    "handlers in a table": "    async def on_vote(self, of):\n        pass\n    table = {int: on_vote}\n",
    "handlers named as text": (
        "    async def on_vote(self, message):\n        pass\n    table = {int: 'on_vote'}\n"
    ),
    "nearly a hook's name, put together": (
        "    async def on_massage(self, message, sender):\n        pass\n"
        "    async def on_message(self, message, sender):\n"
        "        await getattr(self, f'on_{message}')(message, sender)\n"
    ),
    "a verb, on purpose": (
        "    from typing_extensions import override\n"
        "    @override\n    async def train(self, *given, **named):\n"
        "        return await super().train(*given, **named)\n"
    ),
    "a hook of the class that needs none": (
        "    @staticmethod\n    def objective(settings):\n        return None\n"
    ),
    "a hook with what its decorator gives": (
        "    def given(function):\n"
        "        from functools import wraps\n"
        "        @wraps(function)\n"
        "        async def inner(self, message, sender):\n"
        "            return await function(self, message, sender, 3)\n"
        "        return inner\n"
        "    @given\n"
        "    async def on_message(self, message, sender, number):\n        pass\n"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("body", FINE.values(), ids=FINE.keys())
def test_what_is_used_is_not_refused(tmp_path: Path, body: str) -> None:
    result = checked(tmp_path, with_client(body))
    assert result.exit_code == 0, result.output


def test_a_run_refuses_it_as_check_does(tmp_path: Path) -> None:
    code, complaint = REFUSED["a misspelt handler"]
    checked(tmp_path, code)
    file = str(tmp_path / "world.toml")
    result = CliRunner().invoke(app, ["run", file, "--out", str(tmp_path / "runs")])
    assert result.exit_code == 2 and complaint in result.output
    assert not (tmp_path / "runs").exists()


def test_code_beside_an_empty_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls a base class's handler stands in another folder, of which a file is empty."""
    package = tmp_path / "mine_of_this_test"
    (package / "parts").mkdir(parents=True)
    for folder in (package, package / "parts"):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    handlers = "class Handlers:\n    async def on_vote(self, message):\n        pass\n"
    (package / "parts" / "handlers.py").write_text(handlers, encoding="utf-8")
    code = with_client(
        "    async def on_message(self, message, sender):\n        await self.on_vote(message)\n"
    )
    code = code.replace("class Own(", "class Own(Handlers, ")
    imports = f"from {package.name}.parts.handlers import Handlers\n"
    (package / "method.py").write_text(imports + code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = write(tmp_path, QUADRATIC.replace('name = "local"', f'name = "{package.name}.method:Own"'))
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0, result.output


def test_a_server_begins_as_clients_do(tmp_path: Path) -> None:
    body = "    def setup(self):\n        self.mean = self.params\n        self.settings.of_none\n"
    result = checked(tmp_path, with_server(body))
    assert result.exit_code == 2
    line = f"{tmp_path / 'own.py'}:{BEGIN.count(chr(10)) + 3}: Coordinator.setup() failed: AttributeError"
    assert line in result.output and "super().__init__" not in result.output

"""What is written in a protocol's classes and never called, or cannot be: `check` says so with its line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from tests.simulation.worlds import QUADRATIC, write

BEGIN = """\
from protocols.framework.client import Client
from protocols.framework.server import Server, ServerPlan
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
    "a server of a plain client": (
        with_client("    server = Coordinator\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.server is used neither by coterie nor by this code; a RoundClient has a `server`, others name",
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
    "a step with an argument": (
        with_client("").replace("step(self):", "step(self, number):  # here"),
        "Own.step() must take (self)",
    ),
    "a misspelt handler": (
        with_client("    async def on_mesage(self, message, sender):  # here\n        pass\n"),
        "Own.on_mesage is used neither by coterie nor by this code; did you mean 'on_message'?",
    ),
    "a handler of another tool": (
        with_client("    async def on_receive(self, message, sender):  # here\n        pass\n"),
        "Own.on_receive is used neither by coterie nor by this code",
    ),
    "a misspelt constant": (
        with_client("    edge_treshold = 0.3\n").replace("class Own(Client):", "class Own(Client):  # here"),
        "Own.edge_treshold is used neither by coterie nor by this code; did you mean 'edge_threshold'?",
    ),
    "a hook of servers by rounds": (
        with_client("    def combine(self, answers, number):  # here\n        pass\n"),
        "Own.combine is used neither by coterie nor by this code; it belongs to a RoundServer",
    ),
    "a step of a server": (
        with_server("    async def step(self):  # here\n        pass\n"),
        "Coordinator.step is used neither by coterie nor by this code; it belongs to a Client",
    ),
    "a server that hears too little": (
        with_server("    async def on_message(self, message):  # here\n        pass\n"),
        "Coordinator.on_message() must take (self, message, sender)",
    ),
    "a misspelt handler of a server": (
        with_server("    async def on_massage(self, message, sender):  # here\n        pass\n"),
        "Coordinator.on_massage is used neither by coterie nor by this code; did you mean 'on_message'?",
    ),
    "a handler of a server that is no coroutine": (
        with_server("    def on_message(self, message, sender):  # here\n        pass\n"),
        "Coordinator.on_message() must be written `async def on_message(...)`",
    ),
    "a server by rounds that is misspelt": (
        f"{BEGIN}\n\nclass Mine(RoundServer):\n    def combin(self, answers, number):  # here\n        pass\n"
        "\n\nclass Own(RoundClient):\n    server = Mine\n",
        "Mine.combin is used neither by coterie nor by this code; did you mean 'combine'?",
    ),
    "what is no server": (
        f"{BEGIN}\n\nclass Own(Client):\n{PLAN.replace('def servers', 'def servers')}{STEP}".replace(
            "Coordinator, tuple", "Client, tuple"
        ).replace("    @classmethod", "    @classmethod  # here"),
        "Own.servers(): server: <class 'protocols.framework.client.Client'> is no class of Server",
    ),
}


@pytest.mark.parametrize(("code", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_never_called_is_refused(tmp_path: Path, code: str, complaint: str) -> None:
    [line] = [number for number, text in enumerate(code.splitlines(), 1) if text.endswith("# here")]
    result = checked(tmp_path, code)
    assert result.exit_code == 2, result.output
    assert f"{tmp_path / 'own.py'}:{line}: {complaint}" in result.output
    assert result.output.count("\n") == 1


FINE = {
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
}


@pytest.mark.parametrize("body", FINE.values(), ids=FINE.keys())
def test_what_is_used_is_not_refused(tmp_path: Path, body: str) -> None:
    result = checked(tmp_path, with_client(body))
    assert result.exit_code == 0, result.output


def test_a_server_begins_as_clients_do(tmp_path: Path) -> None:
    body = "    def begin(self):\n        self.mean = self.params\n        self.settings.of_none\n"
    result = checked(tmp_path, with_server(body))
    assert result.exit_code == 2
    line = f"{tmp_path / 'own.py'}:{BEGIN.count(chr(10)) + 3}: Coordinator.__init__() failed: AttributeError"
    assert line in result.output and "super().__init__(name, context, settings, init" in result.output

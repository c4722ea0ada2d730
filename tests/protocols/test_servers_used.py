"""Each server that a file of protocols/ defines serves the clients of a method."""

import ast
import importlib
import inspect
import pkgutil

import protocols
from protocols.framework.server import Server


def test_each_server_belongs_to_a_method() -> None:
    """A client whose class does not name the server of its method gets that of its base class."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(protocols.__path__, f"{protocols.__name__}.")
    ]
    servers = {
        name: module.__name__
        for module in modules
        for name, found in vars(module).items()
        if inspect.isclass(found) and issubclass(found, Server) and found.__module__ == module.__name__
    }
    used = {
        node.id
        for module in modules
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    idle = [f"{name} of {module}" for name, module in servers.items() if name not in used]
    assert not idle, f"state `server = ...` in the class of the client: no class uses {', '.join(idle)}"

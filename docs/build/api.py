"""Generator of docs/api.md from docstrings: ``python -m docs.build.api > docs/api.md``."""

import ast
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import protocols
from protocols.framework.compute import Compute
from protocols.framework.objectives import Model
from sim.results.store.tables import COLUMNS

_HEAD = """\
# Client API

This page lists the functions and attributes with which you write a method. `make reference` generates it from
the docstrings. A method is a subclass of `Client`, and needs only imports `from coterie import ...`, unless
it changes a method that is part of coterie. [Write your own method](methods.md) gives the rules, and
[examples](examples) contains whole methods to copy. `->` precedes the type of a result or of an attribute.

*awaited* functions take virtual time, or wait for another function that does; write `await`. All other
functions return immediately and take no virtual time. A *handle* is a vector or scalar that may not have been
computed yet. Reading the values of a handle computes them, and takes no virtual time.

In the examples `client` is one of three clients, and `wait(...)` replaces the `await` of a method.
"""


_CALLED = (
    "An objective is called with `(model, parameters, x, y)` and returns the batch's loss, a scalar. The "
    "next section lists the attributes of a `model`."
)
_MODEL = (
    "The `model` of an objective, and `self.context.model`. The vectors of a client are the parameters of "
    "this model; a server has the model of the first client. A function of `apply` gets the model by "
    "keyword, as in `self.apply(distilled, self.params, logits, model=self.context.model)`, and may take "
    "gradients through it by `torch.func.grad`. There, as in `predict`, the model is in evaluation mode: no "
    "dropout, and batch norms use their running statistics."
)
_SERVERS_VERBS = "A server also has the functions of the network, `observe`, `vector` and `apply`."
_SETTINGS = "For the settings of your method, define a class `Settings(RoundSettings)` in the client class."


def groups() -> list[tuple[str, str, type, str]]:
    """Return the sections of the page in order: title, lead, class, and the names of the class."""
    client, server, vector, scalar = protocols.Client, protocols.Server, protocols.Vector, protocols.Scalar
    return [
        (
            "The method: `Client`",
            "Override the methods that you need; only `step` is required.",
            client,
            "step on_message on_start on_stop on_failure run intercept peer_changed weights "
            "weights_are_shares edge_threshold coalition evaluated setup asynchronous search_space",
        ),
        (
            "Requirements on the scenario",
            "Class attributes and class methods.",
            client,
            "Settings requirements objective servers parts heterogeneous merges_adapters two_way collected",
        ),
        (
            "Training on the device",
            "These functions use this client's data.",
            client,
            "train gradient loss batch class_features predict inputs labels samples",
        ),
        (
            "Computing with models",
            "These functions take handles and return handles.",
            client,
            "params apply vector part with_part trainable dot",
        ),
        (
            "Communication",
            "Messages are frozen dataclasses.",
            client,
            "tell ask collect discard gossip peers pick_peer is_peer senders mixing_weights suspect "
            "give_up_on round_trips",
        ),
        (
            "Time, random numbers, and observations",
            "",
            client,
            "now sleep spawn rng observe finished newcomer late name model_group iterations",
        ),
        (
            "Custom losses: `Objective`",
            f"{_doc(protocols.Objective)}\n\n{_CALLED}",
            Model,
            "",
        ),
        ("Models and the layout of their vectors", _MODEL, Model, "slices input_shape forward embed tensor"),
        (
            "The device and data of a client: `self.compute`",
            "",
            Compute,
            "samples steps_per_epoch classes class_counts learning_rate steps_left initial",
        ),
        ("`Vector`", _doc(vector), vector, "shape numpy tensor norm"),
        ("`Scalar`", _doc(scalar), scalar, "clip"),
        ("`Server`", f"{_doc(server)}\n\n{_SERVERS_VERBS}", server, "params settings rng peers"),
        (
            "Rounds of a server: `RoundServer`",
            _doc(protocols.RoundServer),
            protocols.RoundServer,
            "task combine refine news number round sample answer",
        ),
        (
            "Settings of rounds: `RoundSettings`",
            _SETTINGS,
            protocols.RoundSettings,
            "fraction local_steps local_epochs patience broadcast rounds",
        ),
        (
            "Clients of a server with rounds: `RoundClient`",
            _doc(protocols.RoundClient),
            protocols.RoundClient,
            "server work learn trained step",
        ),
        (
            "A server without rounds: `AsyncServer`",
            _doc(protocols.AsyncServer),
            protocols.AsyncServer,
            "arrived version",
        ),
        (
            "Settings without rounds: `AsyncSettings`",
            _SETTINGS.replace("RoundSettings", "AsyncSettings"),
            protocols.AsyncSettings,
            "local_steps local_epochs patience",
        ),
        (
            "Clients of a server without rounds: `AsyncClient`",
            _doc(protocols.AsyncClient),
            protocols.AsyncClient,
            "server work trained step",
        ),
        (
            "Rounds without a server: `Rounds`",
            _doc(protocols.Rounds),
            protocols.Rounds,
            "announce gather number is_mutual tell replies partners degree",
        ),
        (
            "Differential privacy: `GaussianMechanism`",
            _doc(protocols.GaussianMechanism),
            protocols.GaussianMechanism,
            "release releases epsilon",
        ),
        ("State for each peer: `PerPeer`", _doc(protocols.PerPeer), protocols.PerPeer, "replace"),
    ]


NOT_MADE = ("Batch", "RoundTask", "ClientContext")
"""Classes that methods do not instantiate."""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for title, lead, owner, names in groups():
        parts.append(f"## {title}\n")
        parts += [f"{lead}\n"] if lead else []
        parts += [_entry(owner, name) for name in names.split()]
    described = {"Client", "Server", "Vector", "Scalar", "Objective"}
    described |= {"RoundServer", "RoundSettings", "RoundClient", "Rounds", "PerPeer"}
    described |= {"GaussianMechanism", "AsyncServer", "AsyncSettings", "AsyncClient"}
    parts += _tables()
    parts += ["## Other exports for methods\n", "| name | meaning |\n| --- | --- |"]
    rows = [f"| `{_made(name)}` | {text_of(name)} |" for name in protocols.__all__ if name not in described]
    return "\n".join(parts + rows) + "\n"


def _tables() -> Iterator[str]:
    """Yield the columns of the tables of a run, with their units."""
    yield "## The tables of results\n"
    yield "The tables are Parquet files in the results folder; [results](results.md) lists the other files.\n"
    for table, columns in COLUMNS.items():
        yield f"### `{table}.parquet`\n"
        yield "| column | type | meaning |\n| --- | --- | --- |"
        yield from (f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in columns)
        yield ""


def _made(name: str) -> str:
    """Return an exported name; for a dataclass with its fields, as in a call."""
    found = getattr(protocols, name)
    if not is_dataclass(found) or name in NOT_MADE:
        return name
    signature = inspect.signature(found).parameters.values()
    shown = [each.name if each.default is each.empty else f"{each.name}=" for each in signature]
    return f"{name}({', '.join(shown)})"


def _entry(owner: type, name: str) -> str:
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if inspect.isfunction(found):
        waits = " (awaited)" if inspect.iscoroutinefunction(found) else ""
        return f"### `{name}{_signature(found)}{_result(found)}`{waits}\n\n{_doc(found)}\n"
    if isinstance(found, property):
        return f"### `{name}{_result(found.fget)}`\n\n{_doc(found)}\n"
    default = getattr(owner, "model_fields", {}).get(name)
    value = "" if default is None else f" = {json.dumps(default.default)}".replace("null", "None")
    return f"### `{name}{value}`\n\n{_attribute_doc(owner, name)}\n"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    shown = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def _result(function: Any) -> str:
    """Return the annotated result without modules, such as " -> Vector"; "" for None and Any."""
    returned = inspect.signature(function).return_annotation
    if returned in (None, inspect.Signature.empty, Any, "None", "Any"):
        return ""
    text = returned if isinstance(returned, str) else inspect.formatannotation(returned)
    return f" -> {re.sub(r'[a-zA-Z_]+[.]|~', '', text)}"


def _doc(thing: Any) -> str:
    text = inspect.getdoc(thing)
    assert text, f"{thing} has no docstring"
    return "\n\n".join([_wrapped(paragraph) for paragraph in textwrap.dedent(text).split("\n\n")])


def _wrapped(paragraph: str) -> str:
    """Return a paragraph as Markdown; examples become blocks, and a name with a colon starts a line."""
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    lines = re.split(r"\n(?=\w+(?:, \w+)*: )", paragraph)
    return "  \n".join(" ".join(line.split()) for line in lines)


def _attribute_doc(owner: type, name: str) -> str:
    """Return the text under an attribute in the class `owner` or one of its bases."""
    for cls in owner.__mro__:
        if cls is object:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        body = getattr(tree.body[0], "body", [])
        made = [part.body for part in body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        body = [*body, *[line for lines in made for line in lines]]
        if text := _text_under(body, name):
            return text
    raise AssertionError(f"{owner.__name__}.{name} has no text under it")


def _text_under(body: list[ast.stmt], name: str) -> str | None:
    for statement, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = [getattr(target, "id", None) or getattr(target, "attr", None) for target in targets]
        if name in names and isinstance(after, ast.Expr):
            return " ".join(str(ast.literal_eval(after.value)).split())
    return None


def text_of(name: str) -> str:
    """Return the description of an exported name."""
    found = getattr(protocols, name)
    module = importlib.import_module(protocols.MODULES[name])
    text = _text_under(ast.parse(inspect.getsource(module)).body, name)
    if text is None and (inspect.isclass(found) or inspect.isfunction(found)):
        text = inspect.getdoc(found)
    assert text, f"{name} has no text"
    text = text.partition("\n\n>>>")[0]
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")

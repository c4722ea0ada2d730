"""Generator of the page of the site with all exports of `coterie`, which Sphinx reads from the sources."""

import re
from inspect import isclass, isfunction

import coterie
import protocols
from actors.settings.base import Settings
from docs.build.api import NOT_MADE, groups, text_of
from docs.build.scenarios import keys_of

HEAD = """\
# Python reference

This page lists all exports of `coterie`, with signatures and sources. [From Python](/how-to/python.md) shows
how to use runs, sweeps and comparisons, and [Write your own method](/methods.md) how to use the other names.
[Client API](/api.md) is a short form of this page. Other references describe [the commands](/commands.md),
[scenarios](/scenarios/README.md) and [results](/results.md).

```{eval-rst}
.. highlight:: python
```
"""
FRONT = (
    "run", "Run", "RunFailed", "RunHook", "MessageEvent", "Evaluation", "load", "resume", "fork",
    "sweep", "Sweep", "SweepFailed", "compare", "Compared",
)  # fmt: skip
"""Names for runs, sweeps and comparisons, in the order of their use."""


def reference_page() -> str:
    front = [*FRONT, *[name for name in coterie.__all__ if name not in {*FRONT, *protocols.__all__}]]
    classes: dict[type, list[str]] = {}
    for _, _, owner, names in groups():
        classes.setdefault(owner, []).extend(names.split())
    described = {owner.__name__ for owner in classes}
    rest = [name for name in protocols.__all__ if name not in described]
    parts = [HEAD, "## Runs, sweeps, comparisons\n", *[_documented(name) for name in front]]
    parts += ["## Client API\n"]
    parts += [_class(owner, names) for owner, names in classes.items()]
    parts += ["## Types, messages, functions\n", *[_documented(name) for name in rest]]
    return "\n".join(parts)


def _documented(name: str) -> str:
    found = getattr(coterie, name)
    if isclass(found):
        # Sphinx leads back from a module's source by the name there, where that module has another one.
        anchor = f'<span id="{found.__module__}.{name}"></span>\n\n'
        return anchor + _block(f".. autoclass:: coterie.{name}", "   :members:")
    if isfunction(found):
        return _block(f".. autofunction:: coterie.{name}")
    return _block(f".. py:data:: coterie.{name}", "", f"   {text_of(name)}")


def _class(owner: type, names: list[str]) -> str:
    module = "coterie" if owner.__name__ in protocols.__all__ else owner.__module__
    head = f".. autoclass:: {module}.{owner.__name__}"
    if issubclass(owner, Settings):  # its annotated types are for pydantic, and hard to read
        return f"### {owner.__name__}\n\n{_block(head)}\n{keys_of(owner)}"
    members = f"   :members: {', '.join(names)}"
    return f"### {owner.__name__}\n\n{_block(head, members)}"


def shown_signature(kind: object, signature: str | None) -> str | None:
    """Return the signature to show: "" for classes that methods do not instantiate."""
    if isclass(kind) and (kind.__name__ in NOT_MADE or issubclass(kind, Settings)):
        return ""
    if signature is not None and "<factory>" in signature:  # not Python, so Sphinx would show it unchanged
        return re.sub(r"~[\w.]+\.", "", signature).replace("<factory>", "{}")
    return signature


def _block(*lines: str) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```", ""])

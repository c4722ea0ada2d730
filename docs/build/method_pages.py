"""Generator of a page for each method: docstring, settings, scenarios, and measurements."""

import ast
import csv
import re
import textwrap
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from benchmarks.weather import FAMILIES
from docs.build.citations import cite
from docs.build.scenarios import markdown_table
from sim.scenario.protocol_lookup import list_protocols, method_files

ROOT = Path(__file__).parents[2]
WEATHERS = ("calm", "5 % lost", "30 % lost", "one slow", "three slow", "churn", "partition", "all at once")
"""Weathers of docs/weather, without the controls."""


def method_pages() -> dict[str, str]:
    """Return the pages by name of method. Their links start with "/", the root of the site."""
    settings = _text("docs/scenarios/protocol.md")
    first_table = _text("docs/protocols.md").partition("\n## ")[0]
    facts = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", first_table, re.MULTILINE))
    measured, found = list(_measured()), {}
    for name in list_protocols():
        if name not in facts:
            raise ValueError(
                f"docs/protocols.md: the first table has no row for `{name}`; add one with its method, form "
                "and waiting"
            )
        file = method_files()[name.replace("-", "_")]
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        _, form, waiting = re.split(r" ?\| ?", facts[name])
        parts = [
            f"# {name}",
            _markdown(docstring),
            f"Form: {form or '-'}. Waiting: {waiting}.",
            f"## Settings\n\n{_settings(settings, name)}",
            "## Measurements and runs",
            *_results([row for row in measured if row["protocol"] in (name, "local")], name),
            *_elsewhere(name, docstring.partition(":")[0]),
            cite(name, docstring),
            f"## Source\n\n{_sources(file)}",
        ]
        found[name] = "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    return found


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: update rules as blocks, names of pages and modules as links."""
    parts = []
    for indented, some in groupby(docstring.split("\n\n"), key=lambda part: part.startswith("    ")):
        text = "\n\n".join(some)
        if indented:
            parts.append(f"```text\n{textwrap.dedent(text)}\n```")
            continue
        text = re.sub(r"\bdocs/([\w/-]+\.md)", r"[\1](/\1)", text)
        parts.append(re.sub(r"`protocols\.([\w.]+)`", _module, text))
    return "\n\n".join(parts)


def _module(match: re.Match[str]) -> str:
    path = f"protocols/{match[1].replace('.', '/')}"
    found = next((each for each in (f"{path}.py", path) if (ROOT / each).exists()), None)
    return f"[{match[0]}](/files/{found}.md)" if found else match[0]


def _settings(page: str, name: str) -> str:
    """Return the method's part of docs/scenarios/protocol.md."""
    text = re.split(r"^## ", page.partition(f"\n## `{name}`\n")[2], flags=re.MULTILINE)[0].strip()
    return re.sub(r"\]\((?=#)", "](/scenarios/protocol.md", text)


def _measured() -> Iterator[dict[str, str]]:
    """Yield the rows of docs/weather/means.csv, with the name of the protocol and the study."""
    case_of = {}
    for study, family in FAMILIES.items():
        cases = tomllib.loads(_text(f"scenarios/studies/{study}.toml"))["sweep"]["case"]
        for case in [case for case in cases if case["axis"] == "method"]:
            protocol = dict(each.split("=", 1) for each in case["set"])["protocol.name"]
            case_of[family, case["name"]] = {"protocol": protocol, "study": study}
    for row in csv.DictReader(_text("docs/weather/means.csv").splitlines()):
        yield row | case_of[row["family"], row["method"]]


def _results(rows: list[dict[str, str]], name: str) -> Iterator[str]:
    """Yield the method's accuracy in each weather, compared with local training, and the commands."""
    own = [row for row in rows if row["protocol"] == name]
    if not own:
        yield "[Adverse conditions](/weather.md) does not list this method."
        return
    yield (
        "Mean test accuracy in % over seeds, of the clients that the weather does not affect directly. "
        "[Adverse conditions](/weather.md) describes the measurements."
    )
    studies = dict.fromkeys(row["study"] for row in own)
    for data, study in sorted({(row["data"], row["study"]) for row in own}):
        same = [row for row in rows if (row["data"], row["study"]) == (data, study)]
        cases = {(row["method"], row["weather"]): row["accuracy"] for row in same}
        lines = [
            [method, *[f"{float(cases[method, weather]):.1f}" for weather in WEATHERS]]
            for method in dict.fromkeys(method for method, _ in cases)
        ]
        yield f"**{data}, {FAMILIES[study].lower()}**\n\n{markdown_table(['', *WEATHERS], lines)}"
    commands = [
        f'coterie sweep scenarios/studies/{study}.toml --only "method={method}" --only weather=calm'
        for study in studies
        for method in dict.fromkeys(row["method"] for row in own if row["study"] == study)
    ]
    yield "```\n" + "\n".join(commands) + "\n```"


def _elsewhere(name: str, called: str) -> Iterator[str]:
    """Yield links to scenarios that run the method, and to pages that describe it."""
    lines = []
    for path in sorted((ROOT / "scenarios").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        if tomllib.loads(text)["protocol"]["name"] == name:
            question = text.partition("\n")[0].strip("# ")
            lines.append(f"- [{path.stem}](/files/scenarios/{path.name}.md): {question}")
    heads = re.findall(r"^## (.*)$", _text("docs/protocols.md"), re.MULTILINE)
    for head in (head for head in heads if re.search(rf"{re.escape(called)}\b", head)):
        anchor = re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
        lines.append(f"- [{head}](/protocols.md#{anchor}): explanation of its settings")
    for page in sorted((ROOT / "docs/fidelity").glob("[!R]*.md")):
        text = page.read_text(encoding="utf-8")
        if f"`{name}`" in text or re.search(rf"\b{re.escape(called)}\b", text):
            title = text.partition("\n")[0].strip("# ")
            lines.append(f"- [Fidelity: {title}](/fidelity/{page.name})")
    yield "\n".join(lines)


def _sources(file: Path) -> str:
    files = sorted(file.parent.glob("*.py")) if file.name == "__init__.py" else [file]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return "\n".join(f"- [{name}](/files/{name}.md)" for name in names)

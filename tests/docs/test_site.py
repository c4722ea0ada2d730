"""The site: all pages are reached, all links lead somewhere, and it needs no network."""

import fnmatch
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from typer.testing import CliRunner

import coterie
import protocols
from coterie import ClientContext, Coalition, Rounds, RoundSettings
from docs.build import gallery
from docs.build.reference_page import shown_signature
from docs.build.site import ASSETS, LINK, pages
from sim.cli.live import app
from sim.scenario.protocol_lookup import list_protocols
from tests.benchmarks.test_weather import OF_ADAPTERS
from tests.fuzz.worlds import SHORT

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def entries(page: str, text: str) -> set[str]:
    """The pages, without their endings, that the tables of contents of a page name; with * for any."""
    found = re.findall(r"^:::\{toctree\}\n(?::[^\n]*\n)*\n(.*?)\n:::$", text, re.MULTILINE | re.DOTALL)
    return {str(Path(page).parent / line) for block in found for line in block.splitlines()}


@pytest.mark.long
def test_every_page_is_in_a_table_of_contents(made: dict[str, str]) -> None:
    notebooks = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.ipynb")]
    expected = {str(Path(name).with_suffix("")) for name, text in made.items() if "orphan: true" not in text}
    expected |= {str(path.with_suffix("")) for path in notebooks}
    reached, new = {"index", "README"}, {"index"}  # parts of the README are in the index
    while new:
        named = {entry for page in new for entry in entries(page, made.get(f"{page}.md", ""))}
        new = {page for page in expected for entry in named if fnmatch.fnmatch(page, entry)} - reached
        reached |= new
    assert reached == expected


def test_links_between_pages_lead_somewhere(made: dict[str, str]) -> None:
    assets = {f"/{path.relative_to(ROOT / 'docs')}" for end in ASSETS for path in (ROOT / "docs").rglob(end)}
    there = assets | {f"/{name}" for name in made} | {"/index.md"}
    for name, text in made.items():
        if not name.startswith("files/protocols"):  # sources: what looks like a link there is none
            links = {link for link in LINK.findall(text) if ":" not in link}
            assert links <= there, name


def _to_measure(name: str) -> str:
    return f"measure {name}: make weather METHOD={name} STUDY=..., with its study in scenarios/studies"


def test_every_method_has_a_page_of_what_is_known_of_it(made: dict[str, str]) -> None:
    for name, first in list_protocols().items():
        page = made[f"protocols/{name}.md"]
        assert page.startswith(f"# {name}\n\n{first}")
        assert re.search(r"^## Settings\n\n\S", page, re.MULTILINE)
        measured = re.search(rf"^\| {name}\b.*( \d+\.\d \|)+$", page, re.MULTILINE)
        assert name in OF_ADAPTERS or measured, _to_measure(name)
        assert f"[`{name}`](/protocols/{name}.md)" in made["protocols.md"]
    assert "    x_i, x_j <- (x_i + x_j)/2" not in made["protocols/dpsgd.md"]
    assert "```text\nx_i, x_j <- (x_i + x_j)/2" in made["protocols/dpsgd.md"]
    assert "(/files/scenarios/dpsgd_synchronous.toml.md)" in made["protocols/dpsgd.md"]
    assert "(/protocols.md#cobo)" in made["protocols/cobo.md"]
    assert "(/fidelity/cobo.md)" in made["protocols/cobo.md"]


@pytest.mark.long
def test_the_commands_of_methods_pages_run(made: dict[str, str]) -> None:
    for name in sorted(set(list_protocols()) - OF_ADAPTERS):
        lines = re.findall(r"^coterie .*$", made[f"protocols/{name}.md"], re.MULTILINE)
        commands = [shlex.split(line) for line in lines]
        assert commands, _to_measure(name)
        for program, *words in commands:
            assert (program, words[0]) == ("coterie", "sweep")
            said = CliRunner().invoke(app, [*words, "--dry-run"])
            assert said.exit_code == 0, said.output
            assert "weather = calm" in said.output


def test_files_have_pages_that_show_them_whole(made: dict[str, str]) -> None:
    for path in [*ROOT.glob("scenarios/**/*.toml"), *ROOT.glob("docs/examples/**/*.py")]:
        page = made[f"files/{path.relative_to(ROOT)}.md"]
        assert path.read_text(encoding="utf-8").rstrip() in page
        assert f"{{download}}`Download <{path.name}>`" in page


def test_lists_of_files_say_what_each_is(made: dict[str, str]) -> None:
    listed = made["files/docs/examples.md"]
    assert "median_rounds.py.md): In each round, clients train and take the coordinate-wise" in listed
    assert "minimal.toml.md): The smallest valid scenario" in listed


def test_the_commands_have_a_page_of_their_options(made: dict[str, str]) -> None:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        part = made["commands.md"].partition(f"## coterie {name}\n")[2].partition("\n## ")[0]
        assert part.startswith(f"\n{command.help.partition(chr(10))[0]}")
        assert all(f"{option}" in part for each in command.params for option in each.opts if option[0] == "-")
    assert "| `--device <auto\\|cpu\\|cuda>` | Device that computes." in made["commands.md"]


def test_tables_of_keys_are_marked_for_narrow_screens(made: dict[str, str]) -> None:
    mark = "```{rst-class} keys\n```\n\n| key "
    assert made["scenarios/clients.md"].count(mark) >= 2
    assert mark in made["protocols/dpsgd.md"]
    assert mark not in made["results.md"]


def test_the_reference_begins_with_what_is_used_first(made: dict[str, str]) -> None:
    exports = set(coterie.__all__) - set(protocols.__all__)
    front = re.findall(r":: coterie\.(\w+)$", made["reference.md"], re.MULTILINE)[: len(exports)]
    assert front[:2] == ["run", "Run"] and set(front) == exports


def test_the_reference_has_all_that_is_exported(made: dict[str, str]) -> None:
    for name in coterie.__all__:
        assert re.search(
            rf"^\.\. (py:data|autoclass|autofunction):: coterie.{name}$", made["reference.md"], re.MULTILINE
        )


def test_settings_are_shown_as_scenarios_state_them(made: dict[str, str]) -> None:
    """Their types are pydantic's, and their signatures unreadable."""
    assert '| `patience` | a duration | `"1 min"` | Maximum wait of the server' in made["reference.md"]
    shown = {kind: shown_signature(kind, "(left: ~a.b.C = 1)") for kind in (RoundSettings, ClientContext)}
    assert set(shown.values()) == {""}
    assert shown_signature(Rounds, "(left: ~a.b.C = 1)") == "(left: ~a.b.C = 1)"
    assert shown_signature(Coalition, "(left: ~a.b.C = <factory>)") == "(left: C = {})"


class Page(HTMLParser):
    """What a page of the site leads to, what it loads, and the names of its parts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.names |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a":
            self.links.append(found.get("href", ""))
        elif tag == "link":
            self.loaded.append(found.get("href", ""))
        else:
            self.loaded += [found[key] for key in ("src", "srcset", "data") if key in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("myst_nb") is None:
        pytest.skip("needs the extra docs: `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    gallery.write(folder / "gallery", SHORT)
    python = [sys.executable, "-m"]
    subprocess.run([*python, "docs.build.site", folder / "docs"], cwd=ROOT, check=True)
    extra = ["-D", f"html_extra_path={folder / 'gallery' / 'files'}"]
    strict = ["--fail-on-warning", "--keep-going", "--quiet", "-c", "docs", *extra]
    subprocess.run([*python, "sphinx", *strict, folder / "docs", folder / "site"], cwd=ROOT, check=True)
    return folder / "site"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first of them waits for the site: a minute and a half, alone on a core
def test_links_of_the_site_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in found.items():
        outside = [each for each in page.loaded if re.match(r"(https?:)?//", each)]
        assert not outside, path
        for link in {*page.links, *page.loaded} - {"", "#"}:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, part = link.partition("#")
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            is_there = not part or target not in found or unquote(part) in found[target].names
            if not (target.is_file() and is_there):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first of them waits for the site: a minute and a half, alone on a core
def test_methods_are_found_by_the_search(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    entries = [index["terms"], index["titleterms"]]
    lists = [each if isinstance(each, list) else [each] for some in entries for each in some.values()]
    found = {index["docnames"][number] for numbers in lists for number in numbers}
    assert {f"protocols/{name}" for name in list_protocols()} <= found
    assert not [name for name in found if name.startswith("files/")]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first of them waits for the site: a minute and a half, alone on a core
def test_the_gallery_has_whole_reports(site: Path) -> None:
    assert {path.stem for path in (site / "reports").iterdir()} == set(gallery.SCENARIOS)
    page = (site / "gallery.html").read_text(encoding="utf-8")
    for name in gallery.SCENARIOS:
        assert f'href="reports/{name}.html"' in page
    assert page.count("<figcaption>") >= len(gallery.SCENARIOS)

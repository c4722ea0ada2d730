"""How to cite coterie and the papers of its methods."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from docs.build.citations import ARXIV, Citation, citations, cite
from docs.build.method_pages import method_pages
from sim.scenario.protocol_lookup import list_protocols, method_files

ROOT = Path(__file__).parents[2]
WITHOUT_PAPER = {"local", "oracle"}


def docstring(name: str) -> str:
    tree = ast.parse(method_files()[name.replace("-", "_")].read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


@pytest.mark.parametrize("name", sorted(list_protocols()))
def test_each_method_of_a_paper_has_an_entry(name: str) -> None:
    found = citations(docstring(name))
    without = ", ".join(sorted(WITHOUT_PAPER))
    assert bool(found) == (name not in WITHOUT_PAPER), (
        f"cite the paper of {name} in its docstring, or add {name} to WITHOUT_PAPER ({without})"
    )
    for paper in found:
        assert paper.title in " ".join(docstring(name).split()) or name in ("cobo", "scool")
        assert all(author in docstring(name) or author in ("others", "Anonymous") for author in paper.authors)
        assert re.fullmatch(r"[a-z0-9]+", paper.key)


def test_entries_of_all_forms_of_citations() -> None:
    assert citations('X.\n\nDe Vos, Li and Wang, "A title: Of it" (ICML 2021), algorithm 1.') == [
        Citation(("De Vos", "Li", "Wang"), "A title: Of it", "ICML", "2021")
    ]
    assert citations('X.\n\nTan et al., "t" (2023); "Fine" is no paper.') == [
        Citation(("Tan", "others"), "t", "", "2023")
    ]
    assert citations("X: some title (He and Jaggi, NeurIPS 2024).") == [
        Citation(("He", "Jaggi"), "Some title", "NeurIPS", "2024")
    ]
    assert citations("X.\n\nNothing (2023).") == []


def test_an_entry_is_bibtex() -> None:
    text = cite("pfedhn", docstring("pfedhn"))
    assert "https://arxiv.org/abs/2103.04628" in text
    [entry] = re.findall(r"@inproceedings\{shamsian2021personalized,\n(.*?)\n\}", text, re.DOTALL)
    assert dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE)) == {
        "author": "Shamsian and Navon and Fetaya and Chechik",
        "title": "{Personalized federated learning using hypernetworks}",
        "booktitle": "ICML",
        "year": "2021",
        "eprint": "2103.04628",
        "archiveprefix": "arXiv",
    }
    assert ARXIV.keys() <= set(list_protocols())


@pytest.mark.long
def test_each_page_of_a_method_says_how_to_cite_it() -> None:
    for name, page in method_pages().items():
        assert ("```bibtex" in page) == (name not in WITHOUT_PAPER), name


def test_coterie_itself_can_be_cited() -> None:
    """With the version of the package, and no invented person."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in text and f"\nlicense: {project['license']}\n" in text
    assert re.findall(r"authors:\n((?:  .*\n)+)", text) == ["  - name: The coterie developers\n"]

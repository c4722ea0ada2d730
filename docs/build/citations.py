"""BibTeX entries of the methods' papers, from the citations in the methods' docstrings."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

ARXIV = {
    "fedfomo": "2012.08565",
    "fedper": "1912.00818",
    "ifca": "2006.04088",
    "lg-fedavg": "2001.01523",
    "pfedhn": "2103.04628",
    "q-ffl": "1905.10497",
}
"""Numbers of preprints at arXiv, as the papers of other methods cite them."""
_NAME = r"(?:(?:De|Van|Von) )?[A-Z][\w'-]*"
_AUTHORS = rf"(?P<authors>{_NAME}(?:, {_NAME})*(?: et al\.| and {_NAME})?)"
_IN_BRACKETS = r"\((?:[\w-]+, |(?P<venue>[A-Z]\w+) )?(?P<year>\d{4})\)"  # (2021), (ICML 2021), (SGP, 2021)
_QUOTED = re.compile(rf'{_AUTHORS}, "(?P<title>[^"]+)" {_IN_BRACKETS}')
_IN_HEAD = re.compile(rf": (?P<title>[^(:]+) \({_AUTHORS}, (?P<venue>\w+) (?P<year>\d{{4}})\)")
_ANONYMOUS = re.compile(r'(?P<authors>)"(?P<title>[^"]+)" \(under review in (?P<year>\d{4})\)(?P<venue>)')


class Citation(NamedTuple):
    """A paper as a docstring cites it. authors: surnames; "others" is the last for "et al."."""

    authors: tuple[str, ...]
    title: str
    venue: str
    year: str

    @property
    def key(self) -> str:
        """Name in BibTeX: first author, year, and first long word of the title."""
        word = next((word for word in re.findall(r"\w+", self.title) if len(word) > 3), "")
        parts = unicodedata.normalize("NFKD", f"{self.authors[0]}{self.year}{word}")
        return re.sub(r"[^A-Za-z0-9]", "", parts).lower()

    def bibtex(self, arxiv: str | None = None) -> str:
        """Return the entry; the title keeps its capitals."""
        fields = {
            "author": " and ".join(self.authors),
            "title": f"{{{self.title}}}",
            "booktitle": self.venue,
            "year": self.year,
            "eprint": arxiv or "",
            "archiveprefix": "arXiv" if arxiv else "",
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join([f"@{'inproceedings' if self.venue else 'misc'}{{{self.key},", *lines, "}"])


def citations(docstring: str) -> list[Citation]:
    """Return the papers that a docstring cites by author, title and year."""
    text = " ".join(docstring.split())
    found = {match.start(): match for match in _matches(text)}
    return [_citation(found[start]) for start in sorted(found)]


def _matches(text: str) -> Iterator[re.Match[str]]:
    for pattern in (_QUOTED, _IN_HEAD, _ANONYMOUS):
        yield from pattern.finditer(text)


def _citation(match: re.Match[str]) -> Citation:
    names = re.split(r", | and ", match["authors"].replace(" et al.", " and others"))
    title = match["title"]
    if match.re is _IN_HEAD:  # it continues a sentence there
        title = title[:1].upper() + title[1:]
    return Citation(tuple(filter(None, names)) or ("Anonymous",), title, match["venue"] or "", match["year"])


def cite(name: str, docstring: str) -> str:
    """Return the part of a method's page on how to cite it; empty without a paper."""
    papers = citations(docstring)
    if not papers:
        return ""
    number = ARXIV.get(name)
    entries = [paper.bibtex(number if paper == papers[0] else None) for paper in papers]
    link = f"Preprint: [arXiv:{number}](https://arxiv.org/abs/{number}).\n\n" if number else ""
    cite = "Cite the paper, and coterie by its `CITATION.cff`. Authors are surnames, as in the source."
    return f"## Cite\n\n{link}{cite}\n\n```bibtex\n" + "\n\n".join(entries) + "\n```"

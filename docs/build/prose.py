"""A linter of prose: ``python -m docs.build.prose [FILE ...]``.

It reads pages, docstrings, comments and messages, and prints each sentence that one of `PATTERNS` finds, with
the file, the line, and what to write instead. A line with ``prose: allow`` in a comment is not checked.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "coterie", "protocols", "sim", "docs/build", "benchmarks")
PAGES = ("README.md", "docs/**/*.md", "changes/*.md")
GENERATED = ("docs/api.md", "docs/scenarios/*.md")
"""Pages made of docstrings, which are checked where they are written."""
ALLOWED = "prose: allow"
MESSAGE_WORDS_MIN = 3


class Pattern(NamedTuple):
    """A construction to avoid. advice: what to write instead."""

    expression: re.Pattern[str]
    advice: str


def _pattern(expression: str, advice: str) -> Pattern:
    return Pattern(re.compile(expression, re.IGNORECASE), advice)


def _in_prose(words: str) -> str:
    """An expression for words that are not part of a name, a key or a parameter of a docstring."""
    return rf"(?<![.\w/])(?:{words})\b(?!\s?[:=(/.]\w|:\s|\s=|_)"


_BRITISH = "|".join(
    (
        r"(?:neighbour|colour|behaviour|favour|honour|labour|flavour|rigour)[a-z]*",
        r"(?:de|non|re|un)?(?:anonym|author|central|character|custom|emphas|factor|final|formal|general"
        r"|initial|local|maxim|minim|normal|optim|organ|parallel|penal|personal|prior|quant|random|real"
        r"|recogn|regular|serial|special|stabil|standard|symbol|synchron|token|util|vector|visual)"
        r"is(?:e|ed|er|ers|es|ing|ation|ations)",
        r"(?:discretis|memoris|summaris)(?:e|ed|es|ing|ation)",
        r"analys(?:e|ed|er|ing)",
        r"(?:cancel|channel|label|level|model|signal|total|travel)l(?:ed|ing|er|ers)",
        r"grey[a-z]*|centre[ds]?|centring|(?:kilo|milli)?metres?|fibres?|litres?|theatres?",
        r"licences?|defences?|offences?|judgements?|catalogues?|artefacts?|programmes?|ageing",
        r"whilst|amongst|learnt|spelt|burnt",
    )
)
"""British spellings. Names and keys, such as `neighbour_weights`, keep them (`_in_prose`)."""

PATTERNS = (
    _pattern(
        r"\bone'?s own\b|\bof (?:its|their|your|an?) own(?=\s*(?:[.,;:)|]|$|that\b|and\b|which\b))",
        "'separate', 'custom', or no adjective",
    ),
    _pattern(r"\b(some|no|every|any)body\b(?! else's)", "the noun: a client, a user, no peer, all peers"),
    _pattern(
        r"\b(whoever|whichever|wherever)\b|\bwhatever (?=comes|is|was|goes|they|it)",
        "the noun that it stands for",
    ),
    _pattern(r"\bso many\b|\bso much\b|\bso few\b", "'this many', or the number's name"),
    _pattern(r"(?<!according )(?<!relative )\bdifferen(ce|t)s? to\b", "'different from', 'difference from'"),
    _pattern(r"\bthat which\b|\ball that\b|\bof which nothing\b", "the noun that it stands for"),
    _pattern(r"\b(came?|comes) of it\b|\bto what (it|they) comes?\b", "the result"),
    _pattern(r"\b(the|a|no|whose|its|each) begin\b", "'start'"),
    _pattern(r"\banew\b|\bthereof\b|\bherewith\b|\bthereby\b|\bwherefrom\b", "'again', or nothing"),
    _pattern(r"\bfor nothing\b|\bin vain\b", "'unused', 'without effect'"),
    _pattern(
        r"\bsay goodbye\b|\bsays so\b|\bsaid so\b|\band told\b|\bis told\b|\bare told\b",
        "'reports', 'receives', 'states'",
    ),
    _pattern(r"\ball else\b|\baught\b|\bnought\b|\bnaught\b", "the noun: all other keys"),
    _pattern(
        r"\bfrom then on\b|\bby then\b|\buntil then\b|\bup to then\b", "the time: 'after that evaluation'"
    ),
    _pattern(r"\bbe it\b|\bbe they\b|\bhad (it|they|he|she) not\b", "'whether ... or', 'if'"),
    _pattern(r"\bnor is\b|\bnor are\b|\bnor does\b|\bnor do\b|\bnor can\b", "a second sentence"),
    _pattern(r"\bmust needs\b|\bat a time that nobody\b", "a plain verb"),
    _pattern(r"\bto be had\b|\bis there, too\b|\bare there, too\b", "'is available'"),
    _pattern(r"\bgoes? on (with|exactly|from)\b", "'continues', 'resumes'"),
    _pattern(r"\b(theirs and ours|ours and theirs)\b", "the nouns: the paper's and coterie's"),
    _pattern(r"\bat one go\b|\bbehind each other\b|\bone behind the other\b", "'at once', 'concatenated'"),
    _pattern(
        r"\bwhat (is|was|are|were|has|had)\b(?! (wrong|allowed|new)\b)(?![^.|]*\?)",
        "the noun: 'the sent bytes'",
    ),
    _pattern(
        r"(?:^|[.,:;(]\s|\b(?:of|for|to|from|by|than)\s)who (asks|comes|sends|is|has|was|gets)\b",
        "the noun before 'who'",
    ),
    _pattern(r"\bwhat (it|they) (is|are) worth\b|\bwhat is what\b", "the noun"),
    _pattern(r"\bprolong(s|ed|ing)?\b", "'extend'"),
    _pattern(r"\bknow(s|n)? nothing\b|\bnothing is known\b", "'ignores', 'has no information about'"),
    _pattern(r"\bone (sees|can|may|gets|has|knows)\b", "'you'"),
    _pattern(r"\bis another one\b|\beach once\b|\bwritten in none\b", "the noun: 'a different scenario'"),
    _pattern(r"\bbehind (it|them)\b", "'after' or 'below'"),
    _pattern(r"\bunless you say\b|\bto say so\b", "'unless you pass', 'to report it'"),
    _pattern(r"\bfor ever\b|\ball the same\b|\blet go of\b", "'forever', 'anyway', 'released'"),
    _pattern(r"\bthat one (sees|gets)\b|\bof few at a time\b|\bis there to be\b", "the noun"),
    _pattern(r"\bmistakes?\b", "'error' or 'invalid value'"),
    _pattern(
        r"\b(?:instead of|rather than) (?:with|from|to|in|by|for|of)\b|\bdoes (?:so )?with (?:that|those)\b"
        r"|, and (?:of|to|from|with|for|in|by|on|at) (?:that|those)\b",
        "the verb or the noun again",
    ),
    _pattern(_in_prose(_BRITISH), "the US spelling"),
)
"""Constructions to avoid anywhere."""

STARTS = {"what", "who", "whom", "whose", "which", "whether", "how", "that", "where", "when", "why", "so"}
STARTS |= {
    "its",
    "their",
    "his",
    "her",
    "nothing",
    "nobody",
    "none",
    "one's",
    "own",
    "such",
    "as",
    "by",
    "if",
}
"""Words that no docstring begins with: it begins with a verb or with a noun."""


class Text(NamedTuple):
    """A piece of prose of a file. line: the first one. is_docstring: whether `STARTS` applies."""

    line: int
    words: str
    is_docstring: bool = False


class Finding(NamedTuple):
    """A construction to avoid, in a file."""

    file: str
    line: int
    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.found!r}: write {self.advice}"


def problems(text: str, *, is_docstring: bool = False) -> list[tuple[int, str, str]]:
    """The constructions to avoid in a text: position, words, advice."""
    prose = _without_code(text)
    found = [
        (match.start(), " ".join(match[0].split()), pattern.advice)
        for pattern in PATTERNS
        for match in pattern.expression.finditer(prose)
    ]
    first = re.match(r"\W*([A-Za-z']+)", prose)
    if is_docstring and first is not None and first[1].lower() in STARTS:
        found.append((first.start(1), first[1], "a verb or a noun at the start of a docstring"))
    return sorted(found)


def _without_code(text: str) -> str:
    """The text with spaces in place of code, links and quoted words, so that positions stay."""
    code = re.compile(r"```.*?```|``.+?``|`[^`\n]*`|\]\([^)\s]*\)|<[^>\n]*>|\"[^\"\n]{0,60}\"", re.DOTALL)
    return code.sub(lambda match: re.sub(r"\S", " ", match[0]), text)


def texts_of_page(source: str) -> Iterator[Text]:
    """A Markdown page, as one text."""
    yield Text(1, re.sub(r"^( {4}|\t).*$", "", source, flags=re.MULTILINE))


def texts_of_code(source: str) -> Iterator[Text]:
    """Docstrings, comments and messages of Python code."""
    tree = ast.parse(source)
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_docstring = node in docstrings
            if is_docstring or len(node.value.split()) >= MESSAGE_WORDS_MIN:
                yield Text(node.lineno, node.value, is_docstring)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string.lstrip("# "))


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Strings that document modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.value


def findings(path: Path) -> list[Finding]:
    """The constructions to avoid in one file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    texts = texts_of_code(source) if path.suffix == ".py" else texts_of_page(source)
    found = set()
    for text in texts:
        for position, words, advice in problems(text.words, is_docstring=text.is_docstring):
            line = text.line + text.words[:position].count("\n")
            if ALLOWED not in lines[min(line, len(lines)) - 1]:
                found.add(Finding(_name(path), line, words, advice))
    return sorted(found)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def checked_files() -> list[Path]:
    """All files whose prose is checked, this one excepted."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    pages -= {path for pattern in GENERATED for path in ROOT.glob(pattern)}
    code = {path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")}
    return sorted((pages | code) - {Path(__file__)})


def main(names: Sequence[str] = ()) -> int:
    """Print the findings in the named files, by default in all; returns 1 if there are any."""
    paths: Iterable[Path] = [Path(name).resolve() for name in names] or checked_files()
    found = [finding for path in paths for finding in findings(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

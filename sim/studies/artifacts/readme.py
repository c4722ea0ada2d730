"""The README of an archive: what it contains, and the two commands that reproduce it."""

from collections.abc import Sequence

from sim.results import text
from sim.studies.artifacts.archive import FileList


def readme(
    files: FileList,
    archive: str,
    question: str,
    code: Sequence[str],
    seconds: float,
    left_out: Sequence[str],
    commit: object,
) -> str:
    """Return the README. archive: name of its file. seconds: time of all runs. commit: coterie's commit."""
    parts = [
        f"# {files.name}",
        question,
        "## Reproduce the results",
        f"```\npip install -r requirements.txt\ncoterie reproduce {archive} --all\n```",
        f"The {len(files.runs):,} runs took {text.duration(round(seconds))} in total. Without `--all`, a "
        "sample of the runs is repeated. The command says for each figure whether it is equal, within "
        "chance, or not.",
        f"If your package index lacks coterie {files.coterie}, remove its line from `requirements.txt`, and "
        f"install coterie from its source with `pip install .`{_at(commit)}.",
        _code(code),
        "## Contents",
        "\n".join(_contents(files)),
    ]
    if left_out:
        parts += ["## Not in this archive", "\n".join(f"- {each}" for each in left_out)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _at(commit: object) -> str:
    return f", at the commit `{commit}`" if isinstance(commit, str) else ""


def _code(code: Sequence[str]) -> str:
    if not code:
        return "The archive contains no code; only the code of coterie is executed."
    names = "\n".join(f"- `{name}`" for name in code)
    rule = "The command executes the code of this archive, unless you pass `--no-code`, which rejects it:"
    return f"{rule}\n\n{names}"


def _contents(files: FileList) -> list[str]:
    lines = [f"- `{files.study}/`: the study, its code and its comparison"] if files.study else []
    lines += [
        "- `runs/`: a folder for each run with its scenario, its code, its summary, and its tables",
        *(["- `data/`: the data files that the scenarios name"] if files.data else []),
        "- `requirements.txt`: exact versions of the packages",
        "- `coterie-pack.json`: the sizes and SHA-256 hashes of all files",
        "- `ro-crate-metadata.json`: the same facts as an RO-Crate 1.3",
    ]
    return lines

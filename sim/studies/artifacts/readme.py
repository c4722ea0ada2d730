"""The README of an archive: what it contains, and the two commands that reproduce it."""

from collections.abc import Sequence
from pathlib import Path

from sim.results import text
from sim.studies.artifacts.archive import FileList

_TABLES = " It also computes the tables of the comparison from the runs in this archive, and compares them."
_NO_SOURCE = " The archive does not state the address of the source; its authors must name it."


def readme(
    files: FileList,
    archive: str,
    question: str,
    code: Sequence[str],
    seconds: float,
    left_out: Sequence[str],
    commit: object,
    source: str | None,
    *,
    compared: bool,
) -> str:
    """Return the README of an archive.

    archive: name of its file. seconds: time of all runs. commit, source: commit of coterie, and address of
    its source, None if unknown. compared: True if the archive has a comparison.
    """
    parts = [
        f"# {files.name}",
        question,
        "## Reproduce the results",
        f"```\npip install -r requirements.txt\ncoterie reproduce {archive} --all\n```",
        f"{_runs_sentence(files, seconds)} Without `--all`, a "
        "sample of the runs is repeated. The command states for each figure whether it is equal, within "
        f"chance, or not equal.{_TABLES if compared else ''} Its results are in the new folder "
        f"`reproduced-{Path(archive).stem}`, which ends with `-2` if a folder of this name has files.",
        f"If your package index lacks coterie {files.coterie}, remove its line from `requirements.txt`, and "
        f"install coterie from its source{_source_text(source)} with `pip install .`{_commit_text(commit)}."
        f"{'' if source else _NO_SOURCE}",
        _code_section(code),
        "## Contents",
        "\n".join(_contents(files, bool(code), compared)),
    ]
    if left_out:
        parts += ["## Not in this archive", "\n".join(f"- {each}" for each in left_out)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _runs_sentence(files: FileList, seconds: float) -> str:
    count = len(files.runs)
    runs = "The run" if count == 1 else f"The {count:,} runs"
    missing = f" {files.missing_text}." if files.missing else ""
    return f"{runs} took {text.duration(round(seconds))} in total.{missing}"


def _source_text(source: str | None) -> str:
    return f", <{source}>," if source else ""


def _commit_text(commit: object) -> str:
    return f", at the commit `{commit}`" if isinstance(commit, str) else ""


def _code_section(code: Sequence[str]) -> str:
    if not code:
        return "The archive contains no code of its authors; only the code of coterie is executed."
    names = "\n".join(f"- `{name}`" for name in code)
    rule = (
        "The command executes the code of this archive that the repeated runs name. With `--no-code`, it "
        "rejects the archive if any of its runs needs code:"
    )
    return f"{rule}\n\n{names}"


def _contents(files: FileList, has_code: bool, compared: bool) -> list[str]:
    """Return a line for each file or folder. has_code: True if the archive has the user's code."""
    of_study = ["the study", *(["its code"] if has_code else []), *(["its comparison"] if compared else [])]
    of_run = ["its scenario", *(["its code"] if has_code else []), "its summary", "its tables"]
    lines = [f"- `{files.study}/`: {_join_words(of_study)}"] if files.study else []
    lines += [
        f"- `runs/`: a folder for each run with {_join_words(of_run)}",
        *(["- `data/`: the data files that the scenarios name"] if files.data else []),
        "- `requirements.txt`: exact versions of the packages",
        "- `coterie-pack.json`: the sizes and SHA-256 hashes of all files",
        "- `ro-crate-metadata.json`: the same facts as an RO-Crate 1.3",
    ]
    return lines


def _join_words(parts: Sequence[str]) -> str:
    """Return parts in a sentence: "a", "a and b", "a, b, and c"."""
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"

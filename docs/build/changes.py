"""Generator of the section of a release in CHANGELOG.md from the files of changes/.

Each file, `changes/<slug>.<kind>.md`, is one bullet. `python -m docs.build.changes 0.4.0` moves the files to
the section of this version. Without a version, the command prints the section and changes no file.
"""

import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADS = {"removal": "Breaking changes", "feature": "Added", "fix": "Fixed", "docs": "Documentation"}
"""Headings by kind of change, in the order of the section."""
_WIDTH = 150


def fragments(folder: Path) -> list[Path]:
    """Return the files of changes, sorted by name.

    Raises ValueError for a file of another kind or an empty file.
    """
    found = sorted(folder.glob("*.md"))
    for path in found:
        slug, _, kind = path.stem.partition(".")
        if not slug or kind not in HEADS:
            raise ValueError(f"{path}: must be called <slug>.<kind>.md; kinds: {', '.join(HEADS)}")
        if not path.read_text(encoding="utf-8").strip():
            raise ValueError(f"{path}: is empty; describe the change for users in one sentence")
    return found


def section(version: str, paths: list[Path]) -> str:
    """Return the section of a version, without its date."""
    lines = [f"## {version}", ""]
    for kind, head in HEADS.items():
        texts = [path.read_text(encoding="utf-8") for path in paths if path.stem.endswith(f".{kind}")]
        bullets = [
            textwrap.fill(
                " ".join(text.split()),
                _WIDTH,
                initial_indent="- ",
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for text in texts
        ]
        lines += [f"### {head}", "", *bullets, ""] if bullets else []
    return "\n".join(lines) + "\n"


def release(version: str, root: Path = ROOT) -> None:
    """Insert the section above those of earlier releases, and delete its files in changes/."""
    changelog, paths = root / "CHANGELOG.md", fragments(root / "changes")
    before, mark, after = changelog.read_text(encoding="utf-8").partition("\n## ")
    changelog.write_text(f"{before}\n{section(version, paths)}{mark[1:]}{after}", encoding="utf-8")
    for path in paths:
        path.unlink()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        release(sys.argv[1])
    else:
        print(section("Unreleased", fragments(ROOT / "changes")), end="")

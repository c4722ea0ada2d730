"""The files of changes/, and the section of a release that is made from them."""

from pathlib import Path

import pytest

from docs.build.changes import ROOT, fragments, release, section


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.replace('__', '.')}.md").write_text(text, encoding="utf-8")
    return folder


def test_the_files_here_have_a_kind_and_a_text() -> None:
    fragments(ROOT / "changes")


def test_a_release_takes_all_changes_breaking_ones_first(tmp_path: Path) -> None:
    write(
        tmp_path / "changes",
        b__fix="A fault is\nmended.\n",
        a__feature="A thing.",
        c__removal="A key is gone.",
    )
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nWords.\n\n## 0.3.0\n\n- Old.\n", encoding="utf-8")
    release("0.4.0", tmp_path)
    assert (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8") == (
        "# Changelog\n\nWords.\n\n## 0.4.0\n\n### Breaking changes\n\n- A key is gone.\n\n"
        "### Added\n\n- A thing.\n\n### Fixed\n\n- A fault is mended.\n\n## 0.3.0\n\n- Old.\n"
    )
    assert not list((tmp_path / "changes").iterdir())


@pytest.mark.parametrize("name", ["words", "words__bug", "__fix"])
def test_a_file_of_no_known_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"must be called <slug>\.<kind>\.md; kinds: removal, feature"):
        fragments(write(tmp_path, **{name: "A thing."}))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is empty"):
        section("1", fragments(write(tmp_path, a__fix=" \n")))

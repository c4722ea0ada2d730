"""Folders of pictures as torchvision's ImageFolder has them: a folder for each class, which is its name.

`folder/CLASS/*.png`, or `folder/train/CLASS/*.png` and `folder/test/CLASS/*.png`; with a folder for each
client `folder/CLIENT/CLASS/*.png`. Everything is in order of the names, whatever the order on the disk. Links
are followed; nothing is read of what they lead to but pictures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sim.errors import UserError
from sim.files.input_file import InputFile, shown

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
"""How the name of a picture ends, in small or capital letters."""
_OF_SYSTEMS = ("thumbs.db", "desktop.ini")  # hidden, as are names that begin with a dot
_TESTS = ("test", "val", "valid", "validation")


class PictureFile(NamedTuple):
    """A picture's file, the name of its class, and that of its client, "" if there are none."""

    file: InputFile
    label: str
    client: str


def picture_parts(folder: InputFile, *, by_client: bool) -> Mapping[str, list[PictureFile]]:
    """The pictures of the part "train", two classes at least, and of "test" where that has a folder.

    Tested is on `test`, or without it on `val`, `valid` or `validation`, which beside `test` are not read.
    by_client: whether classes lie in folders of clients. UserError for whatever else is there.
    """
    parts = {name: _pictures(part, by_client=by_client) for name, part in _parts(folder).items()}
    classes = {picture.label for picture in parts["train"]}
    if len(classes) < 2:
        one = shown(min(classes))
        raise folder.refusal(f"has the class {one} only; must have a folder for each class, two at least")
    for picture in parts.get("test", ()):
        if picture.label not in classes:
            there = shown(sorted(classes))
            raise picture.file.refusal(
                f"is of the class {shown(picture.label)}, which is not trained on; must be of {there}"
            )
    return parts


def picture_files(folder: Path) -> list[Path]:
    """The pictures' files of such a folder, in order; none of another one."""
    for by_client in (False, True):
        try:
            parts = picture_parts(InputFile("", folder), by_client=by_client)
        except UserError:
            continue
        return [picture.file.path for part in parts.values() for picture in part]
    return []


def _parts(folder: InputFile) -> dict[str, InputFile]:
    """The folders to train and to test on; only the folder itself if it has no such parts."""
    inside = {each.path.name: each for each in _inside(folder)[0]}
    others = inside.keys() - {"train", *_TESTS}
    if "train" not in inside or not _inside(inside["train"])[0]:
        if inside and not others:
            there = f"only {', '.join(sorted(inside))}, and in train no folder of a class"
            raise folder.refusal(f"has {there}; must have train/CLASS, or a folder for each class")
        return {"train": folder}  # a class may be called so
    if others:
        raise inside[min(others)].refusal(f"lies beside train; must be one of {', '.join(_TESTS)}")
    tests = [inside[name] for name in _TESTS if name in inside]
    return {"train": inside["train"], **({"test": tests[0]} if tests else {})}


def _pictures(part: InputFile, *, by_client: bool) -> list[PictureFile]:
    """The pictures of a part, by client, class and name. UserError."""
    clients = {each.path.name: each for each in _folders(part)} if by_client else {"": part}
    found = [
        PictureFile(file, each.path.name, client)
        for client, folder in clients.items()
        for each in _folders(folder)
        for file in _files(each, by_client=by_client)
    ]
    if not found:
        raise part.refusal("has no folder of a class in it; must have one for each class")
    return found


def _folders(folder: InputFile) -> list[InputFile]:
    """The folders in a folder that has no pictures itself. Other files do no harm: a README, a list."""
    folders, files = _inside(folder)
    if lost := list(filter(_is_picture, files)):
        raise lost[0].refusal("lies beside folders; must be in that of its class")
    return folders


def _files(folder: InputFile, *, by_client: bool) -> list[InputFile]:
    """The pictures of a class, one at least. UserError for anything else in its folder."""
    folders, files = _inside(folder)
    if folders:
        hint = "" if by_client else "; for CLIENT/CLASS say data.client_folders = true"
        raise folders[0].refusal(f"is a folder where pictures of one class must be{hint}")
    if others := [file for file in files if not _is_picture(file)]:
        raise others[0].refusal(
            f"is no picture, by its name; must end in {', '.join(SUFFIXES)} (hidden files are left out)"
        )
    if not files:
        raise folder.refusal("has no picture; must have one at least, as each folder of a class")
    return files


def _is_picture(file: InputFile) -> bool:
    return file.path.suffix.lower() in SUFFIXES


def _inside(folder: InputFile) -> tuple[list[InputFile], list[InputFile]]:
    """Folders and files in a folder, each by name, without hidden ones. UserError."""
    if not os.path.isdir(folder.path):
        raise folder.refusal("is no folder; must be one, with a folder for each class")
    folders: list[InputFile] = []
    files: list[InputFile] = []
    try:
        for entry in sorted(os.scandir(folder.path), key=lambda entry: entry.name):
            if not (entry.name.startswith(".") or entry.name.lower() in _OF_SYSTEMS):
                kind = folders if entry.is_dir() else files
                kind.append(InputFile(folder.key, folder.path / entry.name))
    except OSError as error:
        raise folder.refusal(f"cannot be read: {error.strerror}") from None
    return folders, files

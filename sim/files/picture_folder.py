"""Folders of pictures in the layout of torchvision's ImageFolder: one folder for each class, with its name.

`folder/CLASS/*.png`, or `folder/train/CLASS/*.png` and `folder/test/CLASS/*.png`; with a folder for each
client `folder/CLIENT/CLASS/*.png`. Pictures are sorted by name. Links are followed; only pictures are read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from sim.errors import UserError
from sim.files.input_file import InputFile, excerpt

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
"""Endings of picture files, in lower or upper case."""
_OF_SYSTEMS = ("thumbs.db", "desktop.ini")  # ignored, like names that start with a dot
_VALIDATION = ("val", "valid", "validation")
_TESTS = ("test", *_VALIDATION)


class PictureFile(NamedTuple):
    """A picture's file, the name of its class, and the name of its client, "" without clients."""

    file: InputFile
    label: str
    client: str


def picture_parts(
    folder: InputFile, *, by_client: bool, wanted: Collection[str] = ("train", "test", "validation")
) -> Mapping[str, list[PictureFile]]:
    """Return the pictures of the parts: train, with at least two classes, and test and validation, if any.

    The validation part is in `val`, `valid` or `validation`; if there is no `test`, this part is used as the
    test part. by_client: whether folders of clients contain the classes. wanted: the parts to read. Raises
    UserError for any other content.
    """
    there = {name: part for name, part in _parts(folder).items() if name in wanted}
    parts = {name: _pictures(part, by_client=by_client) for name, part in there.items()}
    classes = {picture.label for picture in parts["train"]}
    if len(classes) < 2:
        one = excerpt(min(classes))
        raise folder.refusal(f"has only the class {one}; must have at least two classes, each with a folder")
    for picture in (*parts.get("test", ()), *parts.get("validation", ())):
        if picture.label not in classes:
            known = excerpt(sorted(classes))
            raise picture.file.refusal(
                f"has class {excerpt(picture.label)} without training pictures; must be one of {known}"
            )
    return parts


def picture_files(folder: Path) -> list[Path]:
    """Return the pictures of a folder with this layout, in order; empty for other folders."""
    for by_client in (False, True):
        try:
            parts = picture_parts(InputFile("", folder), by_client=by_client)
        except UserError:
            continue
        return [picture.file.path for part in parts.values() for picture in part]
    return []


def _parts(folder: InputFile) -> dict[str, InputFile]:
    """Return the folders of the parts; the folder itself is "train" if it has no parts."""
    inside = {each.path.name: each for each in _visible_entries(folder)[0]}
    others = inside.keys() - {"train", *_TESTS}
    if "train" not in inside or not _visible_entries(inside["train"])[0]:
        if inside and not others:
            lacks = "train has no folder of a class" if "train" in inside else "no folder train"
            has = f"only {', '.join(sorted(inside))}, and {lacks}"
            raise folder.refusal(f"has {has}; must have train/CLASS, or a folder for each class")
        return {"train": folder}  # a class may have the name of a part
    if others:
        raise inside[min(others)].refusal(f"is next to train; must be one of {', '.join(_TESTS)}")
    tests = [inside[name] for name in _TESTS if name in inside]
    if len(tests) > (2 if "test" in inside else 1):
        also = ", ".join([each.path.name for each in tests])
        raise folder.refusal(f"has {also}; must have at most one of {', '.join(_VALIDATION)}")
    return {"train": inside["train"], **dict(zip(("test", "validation"), tests, strict=False))}


def _pictures(part: InputFile, *, by_client: bool) -> list[PictureFile]:
    """Return the pictures of a part, by client, class and name. Raises UserError."""
    clients = {each.path.name: each for each in _folders(part)} if by_client else {"": part}
    found = [
        PictureFile(file, each.path.name, client)
        for client, folder in clients.items()
        for each in _folders(folder)
        for file in _files(each, by_client=by_client)
    ]
    if not found:
        where = " in the folder of a client" if by_client else ""
        raise part.refusal(f"contains no class folder{where}; must contain one for each class{where}")
    return found


def _folders(folder: InputFile) -> list[InputFile]:
    """Return the subfolders of a folder. Raises UserError for a picture in it; other files are allowed."""
    folders, files = _visible_entries(folder)
    if outside := list(filter(_is_picture, files)):
        raise outside[0].refusal("is outside the class folders; move it into the folder of its class")
    return folders


def _files(folder: InputFile, *, by_client: bool) -> list[InputFile]:
    """Return the pictures of a class, at least one. Raises UserError for other content in its folder."""
    folders, files = _visible_entries(folder)
    if folders:
        hint = "" if by_client else "; for CLIENT/CLASS, set data.client_folders = true"
        raise folders[0].refusal(f"is a folder; must be a picture of the class{hint}")
    if others := [file for file in files if not _is_picture(file)]:
        raise others[0].refusal(
            f"does not have a picture's name; the name must end in {', '.join(SUFFIXES)} (hidden files are "
            "ignored)"
        )
    if not files:
        raise folder.refusal("contains no picture; a class folder must contain at least one")
    return files


def _is_picture(file: InputFile) -> bool:
    return file.path.suffix.lower() in SUFFIXES


def _visible_entries(folder: InputFile) -> tuple[list[InputFile], list[InputFile]]:
    """Return the visible folders and files in a folder, sorted by name. Raises UserError."""
    if not os.path.isdir(folder.path):
        raise folder.refusal("is not a folder; must be a folder with a folder for each class")
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

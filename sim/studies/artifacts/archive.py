"""Archives of studies: zip files with a list of their files, which are written and unpacked here.

Equal contents give equal archives, byte for byte. An archive from others is checked before anything is
written: the number of its files, and their names, kinds and sizes. The hash of each file is checked
afterwards.
"""

import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from sim.errors import UserError, one_line
from sim.files.input_file import require_regular
from sim.results.store.formats import FORMAT, KEY

LIST = "coterie-pack.json"
"""Name of the file that lists the others."""
RUNS, DATA = "runs", "data"
"""Folders of an archive: of runs and sweeps, and of data files."""
COMPARISON = "comparison"
"""Folder of a sweep's comparison, in the folder of the sweep."""
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that the format can state
_PLAIN, _TEXT = stat.S_IFREG | 0o644, zipfile.ZIP_DEFLATED
_FILES_MAX = 200_000
_LIST_BYTES = 64 << 20
_NAME_LENGTH, _DEPTH = 240, 16
_PACKED, _SMALL = 200, 64 << 20
"""Largest ratio of unpacked to packed bytes, above a size that any archive may have."""
_PIECE = 1 << 20

Member = bytes | Path
"""Content of a file of an archive, or the file with the content."""


class PackedRun(BaseModel):
    """A run in an archive. alike: identifier, equal for runs that differ only in their seeds."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    directory: Annotated[str, Field(pattern=r"^[^./\\][^/\\]*$")]
    seed: NonNegativeInt
    alike: str


class FileList(BaseModel):
    """The list of an archive's files, with sizes and SHA-256 hashes, and of the runs among them.

    study: the folder of its sweep, if any. missing: the number of planned runs without results. data: hashes
    of the data files that the runs read, by name.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    format: NonNegativeInt
    coterie: str | None
    name: str
    study: str | None
    runs: tuple[PackedRun, ...]
    missing: NonNegativeInt = 0
    data: dict[str, str]
    files: dict[str, tuple[NonNegativeInt, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]]

    @classmethod
    def of(cls, members: Mapping[str, Member], **facts: Any) -> Self:
        files = {name: size_and_hash(content) for name, content in sorted(members.items())}
        return cls(format=FORMAT, files=files, **facts)

    @property
    def missing_text(self) -> str:
        """The number of planned runs without results in words; empty if all have results."""
        if not self.missing:
            return ""
        are = "is" if self.missing == 1 else "are"
        return f"{self.missing:,} of {len(self.runs) + self.missing:,} planned runs {are} missing"


def size_and_hash(content: Member) -> tuple[int, str]:
    """Return the size and the SHA-256 hash of a file."""
    if isinstance(content, bytes):
        return len(content), sha256(content).hexdigest()
    hashed, size = sha256(), 0
    with content.open("rb") as file:
        while piece := file.read(_PIECE):
            hashed.update(piece)
            size += len(piece)
    return size, hashed.hexdigest()


def write_archive(path: Path, members: Mapping[str, Member], files: FileList) -> None:
    """Write an archive: sorted names, one fixed time, plain permissions. Raises OSError."""
    listed = json.dumps(files.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    everything = {**members, LIST: listed.encode()}
    new = path.with_name(f".{path.name}.new")
    try:
        with zipfile.ZipFile(new, "w") as archive:
            for name in sorted(everything):
                _add(archive, name, everything[name])
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def is_archive(path: Path) -> bool:
    """Return True if a file is an archive with a list of its files."""
    try:
        require_regular(path)
        with zipfile.ZipFile(path) as archive:
            return LIST in archive.namelist()
    except (UserError, OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def _add(archive: zipfile.ZipFile, name: str, content: Member) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type, entry.create_system, entry.external_attr = _TEXT, 3, _PLAIN << 16
    if isinstance(content, bytes):
        archive.writestr(entry, content)
        return
    with content.open("rb") as file, archive.open(entry, "w", force_zip64=True) as packed:
        shutil.copyfileobj(file, packed, _PIECE)


def unpack(path: Path, folder: Path) -> FileList:
    """Unpack an archive into a new folder, and return the list of its files. Raises UserError.

    Nothing is written unless all names, kinds and sizes are harmless and as listed.
    """
    try:
        size = require_regular(path)
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _require_harmless(entries, size)
            entries = [entry for entry in entries if not entry.is_dir()]  # other programs also pack folders
            files = _read_file_list(archive)
            _require_listed(entries, files)
            _require_room(folder, sum(entry.file_size for entry in entries))
            for entry in entries:
                _extract(archive, entry, folder, files)
    except UserError as error:
        raise UserError(f"{path}: {error.problem}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{path} is not an archive of a study, or is damaged: {one_line(error, 200)}"
        ) from None
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror or one_line(error, 200)}") from None
    return files


def _require_harmless(entries: list[zipfile.ZipInfo], packed_bytes: int) -> None:
    """Reject archives that would fill the disk or write outside of a folder. Raises UserError."""
    if len(entries) > _FILES_MAX:
        raise UserError(f"has {len(entries):,} files; must have at most {_FILES_MAX:,}")
    total = sum(entry.file_size for entry in entries)
    if total > max(_SMALL, _PACKED * packed_bytes):
        raise UserError(f"would unpack {packed_bytes:,} bytes to {total:,} bytes, which is too much")
    seen: set[str] = set()
    for entry in entries:
        shown = one_line(entry.filename, 100)
        if problem := _problem(entry):
            raise UserError(f"{shown}: {problem}")
        if entry.filename.casefold() in seen:
            raise UserError(f"{shown}: is in the archive twice")
        seen.add(entry.filename.casefold())
    seen = {name for name in seen if not name.endswith("/")}
    folders = {str(parent) for name in seen for parent in PurePosixPath(name).parents}
    if both := seen & folders:
        raise UserError(f"{one_line(min(both), 100)}: is both a file and a folder")


def name_problem(name: str) -> str:
    """Return why an archive cannot have a file of this name; empty if it can."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or ":" in name:
        return "the name has a character that is not allowed"
    if not all(parts) or {".", ".."} & set(parts):
        return "the name must be a relative path of a file, without . and .."
    if len(parts) > _DEPTH or max(map(len, parts)) > _NAME_LENGTH:
        return "the name is too long"
    return ""


def _problem(entry: zipfile.ZipInfo) -> str:
    """Return why a file of an archive is rejected; empty if it is not."""
    mode = entry.external_attr >> 16
    if entry.filename != entry.orig_filename:
        return "the name has a character that is not allowed"
    if problem := name_problem(entry.filename.removesuffix("/")):
        return problem
    if entry.is_dir() and entry.file_size:
        return "must not be a folder with content"
    if stat.S_IFMT(mode) not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
        return "must be a regular file, not a link, device or folder"
    if entry.flag_bits & 0x1:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that is not allowed"
    return ""


def _read_file_list(archive: zipfile.ZipFile) -> FileList:
    """Read the list of files. Raises UserError."""
    try:
        entry = archive.getinfo(LIST)
    except KeyError:
        raise UserError(f"has no {LIST}, so it is not an archive of `coterie pack`") from None
    if entry.file_size > _LIST_BYTES:
        raise UserError(f"{LIST}: exceeds {_LIST_BYTES >> 20} MiB")
    content = archive.read(entry)
    with suppress(ValueError, RecursionError):
        found = json.loads(content)
        number = found.get(KEY) if isinstance(found, dict) else None
        if isinstance(number, int) and number > FORMAT:
            raise UserError(
                f"{LIST}: {KEY} = {number}: written by a later version of coterie; install that version"
            )
    try:
        return FileList.model_validate_json(content)
    except ValueError as error:
        reason = one_line(str(error).replace("\n", " "), 200)
        raise UserError(f"{LIST} is not a list of files, or is damaged: {reason}") from None


def _require_listed(entries: list[zipfile.ZipInfo], files: FileList) -> None:
    sizes = {entry.filename: entry.file_size for entry in entries if entry.filename != LIST}
    for name in sorted(sizes.keys() | files.files.keys()):
        shown = one_line(name, 100)
        if name not in files.files:
            raise UserError(f"{shown}: is not in {LIST}")
        if name not in sizes:
            raise UserError(f"{shown}: is missing")
        if sizes[name] != files.files[name][0]:
            raise UserError(f"{shown}: has another size than {LIST} states; it was changed")


def _require_room(folder: Path, needed: int) -> None:
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    if needed > (free := shutil.disk_usage(there).free):
        raise UserError(f"takes {needed:,} bytes when unpacked, but only {free:,} bytes are free")


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, files: FileList) -> None:
    """Write one file, and check its hash. Raises UserError, OSError, and the errors of the format."""
    path = folder.joinpath(*entry.filename.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed = sha256()
    with archive.open(entry) as packed, path.open("xb") as file:
        while piece := packed.read(_PIECE):
            hashed.update(piece)
            file.write(piece)
    listed = files.files.get(entry.filename)
    if listed is not None and hashed.hexdigest() != listed[1]:
        raise UserError(f"{entry.filename}: does not have the hash in {LIST}; it was changed")

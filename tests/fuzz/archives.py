"""Studies that are packed from damaged results, and damaged or hostile archives that are reproduced."""

import json
import shutil
import stat
import warnings
import zipfile
from hashlib import sha256
from pathlib import Path
from random import Random

from sim.studies.artifacts.archive import LIST
from sim.studies.artifacts.packing import pack
from tests.fuzz import spoil
from tests.fuzz.case import Commands
from tests.fuzz.results import SWEEP, spoiled

_ARCHIVE = Path("study.zip")
_NAMES = ("../a", "/a", "a/../../b", "a\\b", "C:a", "a\nb", "", ".", "runs/", "x" * 5000, "README.MD")
_MODES = (stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666, stat.S_IFIFO | 0o600, stat.S_IFDIR | 0o755, 0o777)


def archives(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """An archive with damaged bytes, files or a damaged list; or damaged results, which are packed."""
    shutil.copytree(Path("data", SWEEP, "runs"), "runs", symlinks=True)
    folders = sorted(path for path in Path("runs").iterdir() if path.is_dir())
    sweep = next(path for path in folders if (path / "sweep.json").is_file())
    if changes and rng.random() < 0.4:
        words = [spoiled(rng.choice(folders), rng) for _ in range(changes)]
        again = ["sweep", str(sweep), "--dry-run"]
        packed = ["pack", str(rng.choice((sweep, sweep, Path("runs"), folders[0]))), "--out", str(_ARCHIVE)]
        return words, [rng.choice((again, packed, packed))]
    pack(sweep, _ARCHIVE)
    shutil.rmtree("runs")
    words = [_spoiled(rng) for _ in range(changes)]
    return words, [["reproduce", str(_ARCHIVE), "--out", "out", "--quiet", "--runs", "1", "--jobs", "1"]]


def _spoiled(rng: Random) -> str:
    """Damage the archive: as bytes, or a file in it, with a list that fits or not."""
    try:
        with zipfile.ZipFile(_ARCHIVE) as file:
            files = {name: file.read(name) for name in file.namelist()}
    except Exception:  # an earlier change has left nothing that can be read
        files = {}
    how = rng.choice(("bytes", "content", "content", "list", "entry", "missing")) if files else "bytes"
    if how == "bytes":
        content, words = spoil.damaged_bytes(_ARCHIVE.read_bytes(), rng)
        _ARCHIVE.write_bytes(content)
        return words
    name = LIST if how == "list" and LIST in files else rng.choice(sorted(files))
    entry: zipfile.ZipInfo | str = name
    if how == "entry":
        entry = zipfile.ZipInfo(rng.choice((name, *_NAMES)))
        entry.create_system, entry.external_attr = 3, rng.choice(_MODES) << 16
        words = f"{name} as {entry.filename!r:.50} of mode {entry.external_attr >> 16:o}"
        content = files.pop(name)
    elif how == "missing":
        content, words = None, f"{name} is missing"
        del files[name]
    else:
        content, words = _other(name, files.pop(name), rng)
    listed = rng.random() < 0.7 and name != LIST
    _write(files | ({} if content is None else {name: content}), {name: entry}, listed)
    return f"{words}, {'with' if listed else 'without'} a list that fits"


def _other(name: str, content: bytes, rng: Random) -> tuple[bytes, str]:
    if name.endswith(".json") and rng.random() < 0.8:
        try:
            table = json.loads(content)
            how = spoil.damaged_table(table, rng)
            return json.dumps(table, default=str).encode(errors="replace"), f"{name}: {how}"
        except Exception:
            pass
    content, how = spoil.damaged_bytes(content, rng)
    return content, f"{name}: {how}"


def _write(files: dict[str, bytes], entries: dict[str, zipfile.ZipInfo | str], listed: bool) -> None:
    """Write the archive; `listed`: with sizes and hashes of these files, also in the runs' own lists."""
    if listed:
        for name in [name for name in files if name.endswith("/checksums.json")]:
            folder = name.rpartition("/")[0]
            own = {each: files.get(f"{folder}/{each}") for each in _table(files[name])}
            sums = {each: _sum(content) for each, content in own.items() if content is not None}
            files[name] = json.dumps(sums).encode()
        table = _table(files.get(LIST, b"{}"))
        names = {name: getattr(entries.get(name), "filename", name) for name in files if name != LIST}
        table["files"] = {names[name]: _sum(files[name]) for name in names}
        files[LIST] = json.dumps(table).encode(errors="replace")
    with zipfile.ZipFile(_ARCHIVE, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in files.items():
            try:
                file.writestr(entries.get(name, name), content)
            except (ValueError, UnicodeError):  # a name that no archive can have
                file.writestr("odd", content)


def _table(content: bytes) -> dict:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _sum(content: bytes) -> list[object]:
    return [len(content), sha256(content).hexdigest()]

"""Description of an archive as an RO-Crate: https://w3id.org/ro/crate/1.3."""

import json
import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.studies.artifacts.archive import LIST, FileList

CRATE = "ro-crate-metadata.json"
_URL = "README.md#reproduce-the-results"
"""Section that says how to install coterie."""
_KINDS = {".parquet": "application/vnd.apache.parquet", ".toml": "application/toml", ".md": "text/markdown"}


class RunAction(NamedTuple):
    """A run: its folder in the archive, the files that it used, and the times (ISO 8601) of start and end."""

    folder: str
    name: str
    used: Sequence[str]
    start: str
    end: str


def crate_metadata(
    files: FileList, description: str, license: str, source: str | None, actions: Sequence[RunAction]
) -> bytes:
    """Return the metadata file of an archive; equal inputs give equal bytes.

    source: address of coterie's source, None if unknown.
    """
    from rocrate.model import ContextEntity, Dataset, File
    from rocrate.rocrate import ROCrate

    made = ROCrate()
    root: Any = made.root_dataset
    root["name"], root["description"], root["license"] = files.name, description, license
    root["datePublished"] = max((action.end for action in actions), default="")[:10]
    facts = {"name": "coterie", "version": files.coterie or "unknown", "url": source or _URL}
    program = made.add(ContextEntity(made, "#coterie", {"@type": "SoftwareApplication", **facts}))
    of_path: dict[str, Any] = {}
    listing = {
        "name": LIST,
        "encodingFormat": _media_type(LIST),
    }  # without its hash: it states that of this file
    made.add(File(made, dest_path=LIST, properties=listing))
    for name, (size, digest) in files.files.items():
        facts = {
            "name": name,
            "contentSize": str(size),
            "sha256": digest,
            "encodingFormat": _media_type(name),
        }
        of_path[name] = made.add(File(made, dest_path=name, properties=facts))
    mentioned = []
    for action in actions:
        facts = {"name": f"Results of {action.name}"}
        folder = made.add(Dataset(made, dest_path=f"{action.folder}/", properties=facts))
        folder["hasPart"] = [of_path[name] for name in of_path if name.startswith(f"{action.folder}/")]
        facts = {"@type": "CreateAction", "name": f"Run {action.name}"}
        times = {"startTime": action.start, "endTime": action.end}
        ran = made.add(ContextEntity(made, f"#run-{action.name}", facts | times))
        ran["instrument"], ran["result"] = program, folder
        ran["object"] = _unwrap_single([of_path[name] for name in action.used])
        mentioned.append(ran)
    root["mentions"] = _unwrap_single(mentioned)
    return (json.dumps(_sorted(made.metadata.generate()), indent=1, ensure_ascii=False) + "\n").encode()


def _unwrap_single(values: list[Any]) -> Any:
    """Return a single value instead of a list of one, as RO-Crate 1.3 recommends."""
    return values[0] if len(values) == 1 else values


def _media_type(name: str) -> str:
    suffix = f".{name.rpartition('.')[2]}"
    return _KINDS.get(suffix) or mimetypes.types_map.get(suffix, "application/octet-stream")


def _sorted(metadata: Mapping[str, Any]) -> dict[str, Any]:
    first = {"ro-crate-metadata.json": 0, "./": 1}
    graph = sorted(metadata["@graph"], key=lambda each: (first.get(each["@id"], 2), each["@id"]))
    return {"@context": metadata["@context"], "@graph": graph}

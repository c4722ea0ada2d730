"""What is wrong with how a command ended; most of the time nothing is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.isolation import Outcome

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>\S+)')
_WARNING = re.compile(r"^(\S+):\d+: (\w*Warning: .*)$", re.MULTILINE)
_OF_PAGE = re.compile(r"^fault: (.*)$", re.MULTILINE)  # as who asks for it says
_ANNOUNCED = re.compile(r"memory +(?P<count>[\d.,]+)\s(?P<unit>[kMGT]?B) of models and optimizers")
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_OURS = ("actors", "protocols", "sim")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fault:
    """A fault; those of one `name` have the same cause, as far as can be told from outside."""

    name: str
    detail: str


def fault(arguments: Sequence[str], outcome: Outcome, *, checked: str = "") -> Fault | None:
    """What is wrong, if anything. `checked`: the command that has said of the same input that it is well."""
    command, said = arguments[0], f"{outcome.output}\n{outcome.errors}"
    if outcome.stopped is not None:
        return Fault(f"{outcome.stopped} {command} {_place(outcome.errors)}", _tail(outcome.errors))
    if outcome.code < 0:
        return Fault(f"signal {-outcome.code} {command} {_place(outcome.errors)}", _tail(outcome.errors))
    if "Traceback (most recent call last)" in said:
        return Fault(f"traceback {_exception(said)} {_place(said)}", _tail(said))
    if command == "watch" and (found := _OF_PAGE.search(outcome.output)):
        return Fault(f"watch {found[1]}", _tail(said))
    expected = (0, 1, 2, 130) if outcome.interrupted or command == "watch" else (0, 1, 2)
    if outcome.code not in expected:
        return Fault(f"exit {outcome.code} of {command}", _tail(said))
    if outcome.code and not outcome.errors.strip():
        return Fault(f"exit {outcome.code} of {command} without a message", _tail(said))
    if len(said) > 100_000:
        return Fault(f"{command} prints {len(said):,} characters", said[:2000])
    if command == "check" and outcome.network:
        return Fault("check uses the network", _tail(said))
    if checked and outcome.code == 2 and not outcome.network:  # what can't be downloaded is nobody's fault
        return Fault(f"{checked} passes, {command} refuses: {_gist(outcome.errors)}", _tail(said))
    if warning := _WARNING.search(outcome.errors):
        return Fault(f"warning {command} {Path(warning[1]).name}: {warning[2][:80]}", _tail(said))
    return None


def announced_bytes(output: str) -> float:
    """What a check has said that models and optimizers take; 0 if it has not."""
    found = _ANNOUNCED.search(output)
    return float(found["count"].replace(",", "")) * _UNITS[found["unit"]] if found else 0.0


def hidden_folders(folder: Path) -> set[str]:
    """Hidden folders where results go, which only a killed run may leave."""
    found = [path for results in (folder, folder / "runs") if results.is_dir() for path in results.iterdir()]
    # A scenario's own file may be hidden, and a folder in its place.
    return {path.name for path in found if path.name[0] == "." and path.suffix != ".toml" and path.is_dir()}


def _exception(text: str) -> str:
    """The type of the last exception of the first traceback."""
    after = text.partition("Traceback (most recent call last)")[2]
    found = re.findall(r"^([A-Za-z_][\w.]*)(?::|$)", after, re.MULTILINE)
    return found[0].rpartition(".")[2] if found else "?"


def _place(text: str) -> str:
    """The innermost frame of our own in a traceback or in a dump of where a process is."""
    frames = [
        f"{path.relative_to(_ROOT)}:{match['function']}"
        for match in _FRAME.finditer(text)
        if (path := Path(match["file"])).is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS
    ]
    innermost_first = "most recent call first" in text
    return frames[0 if innermost_first else -1] if frames else "outside our code"


def _gist(text: str) -> str:
    """A message without the values and the places that differ from case to case."""
    first = text.strip().partition("\n")[0]
    words = re.sub(r"'[^']*'|\"[^\"]*\"|[\d.e+-]*\d|/\S+|\S+\.toml:", "_", first)
    return " ".join(words.split())[:100]


def _tail(text: str) -> str:
    """The end of a text, or its beginning where that says more."""
    return (text[:3000] if "most recent call first" in text else text[-3000:]).strip()

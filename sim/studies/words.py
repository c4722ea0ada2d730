"""Labels of keys in words: ``devices.override.0.slowdown`` is "slowdown (devices override 1)"."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from sim.errors import UserError

_LABELS = {
    "protocol.name": "protocol",
    "model.name": "model",
    "data.name": "data",
    "clients.count": "number of clients",
    "network.loss": "lost messages",
    "run.duration": "duration",
    "training.optimizer": "optimizer",
}


def key_label(key: str) -> str:
    """Return the label of a key: its last part in words, then its section; lists count from 1."""
    *section, last = [str(int(part) + 1) if part.isdecimal() else part for part in key.split(".")]
    if key in _LABELS or not section:
        return _LABELS.get(key, last.replace("_", " "))
    return f"{last.replace('_', ' ')} ({' '.join(section).replace('_', ' ')})"


def axis_named(name: str, axes: Iterable[str], labels: Mapping[str, str]) -> str:
    """Return the axis with this key or label, or `name` if there is none. labels: the stated ones, by axis.

    `protocol.name` and `protocol` are equal: sweeps have the first, studies of other runs the second.
    """
    known = list(axes)
    others = [{"protocol": "protocol.name", "protocol.name": "protocol"}.get(name, name)]
    others += [axis for axis in known if (labels.get(axis) or key_label(axis)) == name]
    return next((other for other in [name, *others] if other in known), name)


def stated_labels(
    options: Iterable[str], axes: Sequence[str], labels: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Parse ``KEY=words`` of the option `--label`; KEY may be a label so far. Raises UserError."""
    found = {}
    for option in options:
        key, equals, words = map(str.strip, option.partition("="))
        key = axis_named(key, axes, labels or {})
        if not equals or not words or key not in axes:
            if not axes:
                none = "there are no axes to label, because all runs have the same settings; omit --label"
                raise UserError(f"--label {option}: {none}")
            known = ", ".join(axes)
            raise UserError(f'--label {option}: must be KEY="words", with one of the axes {known}')
        found[key] = words
    if same := same_label(axes, {**(labels or {}), **found}, found):
        axis, other = same
        raise UserError(f"--label {axis}={found[axis]}: {other} has the same label; state another")
    return found


def same_label(
    axes: Iterable[str], labels: Mapping[str, str], stated: Iterable[str]
) -> tuple[str, str] | None:
    """Return the first axis of `stated` with the label of another axis, and that axis; None if all differ.

    labels: the labels that are stated, by axis; the other axes have their own.
    """
    of_all = {axis: key_label(axis) for axis in axes} | dict(labels)
    pairs = itertools.product(stated, of_all)
    return next((pair for pair in pairs if pair[0] != pair[1] and of_all[pair[0]] == of_all[pair[1]]), None)

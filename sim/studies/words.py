"""Labels of keys in words: ``devices.override.0.slowdown`` is "slowdown (devices override 1)"."""

from collections.abc import Iterable, Sequence

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


def stated_labels(options: Iterable[str], axes: Sequence[str]) -> dict[str, str]:
    """Parse ``KEY=words`` of the option `--label`. Raises UserError."""
    found = {}
    for option in options:
        key, equals, words = map(str.strip, option.partition("="))
        if not equals or not words or key not in axes:
            if not axes:
                none = "there are no axes to label, because all runs have the same settings; omit --label"
                raise UserError(f"--label {option}: {none}")
            known = ", ".join(axes)
            raise UserError(f'--label {option}: must be KEY="words", with one of the axes {known}')
        found[key] = words
    return found

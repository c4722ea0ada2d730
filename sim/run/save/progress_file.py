"""How far a run is, noted in its hidden folder for `coterie watch`. Nothing hangs on whether that works."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from sim.results.store.output_dir import PROGRESS
from sim.run.save.progress import RUNNING, Progress, Show

_EVERY_S = 1.0  # real time
_MOST_POINTS = 400  # of the curve


def noted(folder: Callable[[], Path], show: Show | None) -> Show:
    """A `show` that writes progress.json into a folder, about once a second, and then does what `show` does.

    What is written is the progress, and as `curve` the accuracies so far, (virtual seconds, accuracy) each.
    """
    curve: list[tuple[float, float]] = []
    written_s = 0.0

    def note(progress: Progress) -> None:
        nonlocal written_s
        if progress.accuracy is not None and (not curve or curve[-1][1] != progress.accuracy):
            curve.append((progress.virtual_s, progress.accuracy))
            if len(curve) > _MOST_POINTS:
                del curve[1::2]
        if progress.phase != RUNNING or progress.elapsed_s - written_s >= _EVERY_S:
            written_s = progress.elapsed_s
            shares = [share for share in progress.shares if share is not None]
            content = asdict(progress) | {"share": max(shares, default=None), "curve": curve}
            with suppress(OSError):  # the disk is full: the run is worth more
                new = folder() / f"{PROGRESS}.new"
                new.write_text(json.dumps(content), encoding="utf-8")
                new.replace(folder() / PROGRESS)
        if show is not None:
            show(progress)

    return note

"""Weights & Biases: an offline run in the results folder, for an optional upload by `wandb sync`."""

import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.results.evaluations import Evaluation
from sim.results.store.run_directory import RunDirectory


@contextmanager
def open_tracker(directory: RunDirectory) -> Iterator[tuple[Callable[[Evaluation, int], None], Path]]:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline runs also report errors to a server
    import wandb

    def write(evaluation: Evaluation, step: int) -> None:
        run.log({"time": evaluation.time, **evaluation.scalars()}, step=step)

    folder = directory.path / "wandb"
    for earlier in folder.glob("offline-run-*"):
        shutil.rmtree(earlier)
    run = wandb.init(
        mode="offline",
        dir=directory.path,
        project="coterie",
        name=directory.path.name,
        config=tomllib.loads(directory.scenario_text()),
        reinit="create_new",
        settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
    )
    try:
        with run:
            yield write, folder
    finally:
        wandb.teardown()  # waits for its process to finish writing

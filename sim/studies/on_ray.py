"""The cells of a sweep on a Ray cluster: https://docs.ray.io."""

import io
import os
import tarfile
import tempfile
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.files.data_folder import FOLDER_VARIABLE
from sim.results.store.output_dir import HiddenFolder
from sim.run.on_ray import TRIES, cluster
from sim.studies.sweep import LOOK_EVERY_S, Ended, Execute, Look
from sim.studies.worker import Ran, Task, run_cell

_PYTHON = ("*.py", "*.pyc", "*.so", "*.pyd")


def on_ray(
    address: str | None = None, *, threads: int = 1, gpus: float = 0.0, jobs: int | None = None
) -> Execute:
    """Runs tasks on the nodes of a Ray cluster; without an address on one of this machine's cores.

    A run takes so many threads and GPUs (shares of one, too); `jobs` run at a time, by default as many as
    there is room for. A cell whose node dies is tried a second time, elsewhere. A cluster with an address is
    sent the files beside the scenario; coterie must be there, and the data. UserError without Ray, and
    without a cluster.
    """

    def execute(tasks: list[Task], ran: Ended, look: Look) -> None:
        if not tasks:
            return look(())
        with _connected(address, tasks[0], None if jobs is None else jobs * threads) as ray:
            run = ray.remote(_packed).options(num_cpus=threads, num_gpus=gpus, max_retries=TRIES - 1)
            waiting, running = deque(tasks), dict[Any, Task]()
            while waiting or running:
                while waiting and len(running) < (jobs or len(tasks)):
                    task = waiting.popleft()
                    running[run.remote(_there(task, is_sent=address is not None))] = task
                look((0.0,) * len(running))
                for done in ray.wait(list(running), timeout=LOOK_EVERY_S)[0]:
                    task = running.pop(done)
                    ran(task, _brought(ray, done, task.out))
            look(())

    return execute


def _connected(address: str | None, task: Task, cores: int | None) -> AbstractContextManager[Any]:
    """A cluster that has the files of a task, and without an address can read them where they are."""
    if address is None:
        return cluster(address, cores)
    folder, out = task.file.resolve().parent, task.out.resolve()
    results = [f"/{out.relative_to(folder)}"] if folder in out.parents else []  # which stay here
    return cluster(address, cores, folder, [".?*", *results, *(() if task.how.code else _PYTHON)])


def _there(task: Task, *, is_sent: bool) -> Task:
    """A task with the paths that a node needs; the scenario may have been sent to its working folder."""
    file = Path(task.file.name) if is_sent else task.file.resolve()
    data_dir = task.how.data_dir
    if data_dir is None and not is_sent:  # a process here does not start in the current folder
        here = Path(os.environ.get(FOLDER_VARIABLE) or "data")
        data_dir = here if here.is_dir() else None
    data_dir = None if data_dir is None else data_dir.resolve()
    parent = None if task.parent is None else str((task.out / task.parent).resolve())
    return replace(task, file=file, how=replace(task.how, data_dir=data_dir), parent=parent)


def _packed(task: Task) -> tuple[Ran, bytes]:
    """Run one cell on a node; its result, and its result directory as an archive."""
    with tempfile.TemporaryDirectory(prefix="coterie-") as folder:
        ran = run_cell(replace(task, out=Path(folder)))
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as file:
            if ran.directory is not None:
                file.add(Path(folder) / ran.directory, ".")
        return ran, archive.getvalue()


def _brought(ray: Any, done: Any, out: Path) -> Ran:
    """The result of a cell, with its result directory unpacked in `out`."""
    try:
        ran, archive = ray.get(done)
        if ran.directory is None:
            return ran
        folder = HiddenFolder(out / ran.directory)
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as file:
                file.extractall(folder.path, filter="data")
            return replace(ran, directory=folder.move_to_target(replace=True).name)
        finally:
            folder.clear()
    except ray.exceptions.RayError as error:
        return Ran(None, f"{type(error).__name__}: {error}".partition("\n")[0])
    except OSError as error:
        return Ran(None, f"its results could not be brought: {error.strerror}")

"""Execution of a sweep's cells on a Ray cluster: https://docs.ray.io."""

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
from sim.studies.sweep import POLL_S, AddResult, Execute, ShowRunning
from sim.studies.worker import CellResult, CellTask, run_cells

_PYTHON = ("*.py", "*.pyc", "*.so", "*.pyd")


def ray_executor(
    address: str | None = None, *, threads: int = 1, gpus: float = 0.0, jobs: int | None = None
) -> Execute:
    """Run tasks on the nodes of a Ray cluster; without an address, on a local cluster on this machine.

    Each run takes `threads` cores and `gpus` GPUs (fractions allowed). `jobs` runs run at a time, by default
    as many as fit. If a node dies, its cell is tried a second time on another node. A cluster with an
    address receives the files in the scenario's folder; coterie and the data must be installed there.
    Raises UserError without Ray, and without a cluster.
    """

    def execute(tasks: list[CellTask], ran: AddResult, show_running: ShowRunning) -> None:
        if not tasks:
            return show_running(())
        with _connected(address, tasks[0], None if jobs is None else jobs * threads) as ray:
            run = ray.remote(_run_and_pack).options(num_cpus=threads, num_gpus=gpus, max_retries=TRIES - 1)
            waiting, running = deque(tasks), dict[Any, CellTask]()
            while waiting or running:
                while waiting and len(running) < (jobs or len(tasks)):
                    task = waiting.popleft()
                    running[run.remote(_task_for_node(task, is_sent=address is not None))] = task
                show_running((0.0,) * len(running))
                for done in ray.wait(list(running), timeout=POLL_S)[0]:
                    task = running.pop(done)
                    ran(task, _unpack_result(ray, done, task.out))
            show_running(())

    return execute


def _connected(address: str | None, task: CellTask, cores: int | None) -> AbstractContextManager[Any]:
    """Connect to a cluster that receives the files of a task, or to a local one that reads them in place."""
    if address is None:
        return cluster(address, cores)
    folder, out = task.file.resolve().parent, task.out.resolve()
    results = [f"/{out.relative_to(folder)}"] if folder in out.parents else []  # not sent
    return cluster(address, cores, folder, [".?*", *results, *(() if task.how.code else _PYTHON)])


def _task_for_node(task: CellTask, *, is_sent: bool) -> CellTask:
    """Return a task with paths for a node; a sent scenario lies in the node's working folder."""
    file = Path(task.file.name) if is_sent else task.file.resolve()
    data_dir = task.how.data_dir
    if data_dir is None and not is_sent:  # local workers start in another folder
        local = Path(os.environ.get(FOLDER_VARIABLE) or "data")
        data_dir = local if local.is_dir() else None
    data_dir = None if data_dir is None else data_dir.resolve()
    parent = None if task.parent is None else str((task.out / task.parent).resolve())
    return replace(task, file=file, how=replace(task.how, data_dir=data_dir), parent=parent)


def _run_and_pack(task: CellTask) -> tuple[CellResult, bytes]:
    """Run one cell on a node, and return its result and its results folder as an archive."""
    with tempfile.TemporaryDirectory(prefix="coterie-") as folder:
        [ran] = run_cells([replace(task, out=Path(folder))])
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as file:
            if ran.directory is not None:
                file.add(Path(folder) / ran.directory, ".")
        return ran, archive.getvalue()


def _unpack_result(ray: Any, done: Any, out: Path) -> CellResult:
    """Return the result of a cell after unpacking its results folder into `out`."""
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
        return CellResult(None, f"{type(error).__name__}: {error}".partition("\n")[0])
    except OSError as error:
        return CellResult(None, f"its results could not be copied from the node: {error.strerror}")

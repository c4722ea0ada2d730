"""TensorBoard: an events file in the results folder; its "relative" time is virtual time in hours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.results.evaluations import Evaluation
from sim.results.store.run_directory import RunDirectory


@contextmanager
def open_tracker(directory: RunDirectory) -> Iterator[tuple[Callable[[Evaluation, int], None], Path]]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def write(evaluation: Evaluation, step: int) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in evaluation.scalars().items()]
        writer.add_event(Event(wall_time=evaluation.time, step=step, summary=Summary(value=values)))

    for earlier in directory.path.glob("events.out.tfevents.*"):
        earlier.unlink()
    writer = EventFileWriter(str(directory.path))
    try:
        yield write, directory.path
    finally:
        writer.close()

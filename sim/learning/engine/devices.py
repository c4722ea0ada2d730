"""Workers of an engine on several devices of one kind, which compute parts of a batch at the same time."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

import torch

from sim.learning.engine.backends.kernels import Kernel
from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.parcels import Packer, Unpacker, computed
from sim.learning.engine.workers import Workers


class DeviceWorkers(Workers):
    """A thread for each of some devices. The first has all vectors, and computes like the others.

    Each other one has a copy of the data. What a part needs goes there, and what comes of it comes back.
    """

    def __init__(self, devices: Sequence[torch.device], data: ClientData) -> None:
        super().__init__(len(devices))
        self.alone = True
        self._data, self._home = data, devices[0]
        self._others = [_Other(device, self._home, data) for device in devices[1:]]
        self._idle: SimpleQueue[_Other | None] = SimpleQueue()
        for other in (None, *self._others):  # None: the first
            self._idle.put(other)

    @property
    def each(self) -> Callable[..., Iterable[Any]]:
        return self._each

    def _each(self, function: Callable[..., Any], *values: Iterable[Any]) -> list[Any]:
        for other in self._others:
            other.follow(self._home)
        found = list(super().each(function, *values))
        for other in self._others:
            other.lead(self._home)
        return found

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        other = self._idle.get()
        try:
            if other is None:
                return function(*arguments)
            with other.copying():
                kernels: list[Kernel] = []  # any device can use them as they are
                packer = Packer(self._data, kernels, device=other.engine.device)
                parcel = packer.pack((function, arguments))
                reply = computed(parcel, other.engine, kernels, self._home)
                return Unpacker(reply, rows=packer.rows).load()
        finally:
            self._idle.put(other)


class _Other:
    """Another device than the first, `home`: the engine in whose pools it computes.

    On a GPU, copies wait for what both of its ends have been given to do. So at home they have a stream of
    their own: it follows what was to be done there when a batch began, and not what the batch does there.
    """

    def __init__(self, device: torch.device, home: torch.device, data: ClientData) -> None:
        copy: ClientData = Unpacker(Packer(device=device).pack(data)).load()
        self.engine = Engine(copy, seed=0, device=device)
        self._stream = torch.cuda.Stream(home) if home.type == "cuda" else None

    def copying(self) -> AbstractContextManager[object]:
        """While it is entered, what this thread does at home is in that stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def follow(self, home: torch.device) -> None:
        """Copies come after what is to be done at home until now."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(home))

    def lead(self, home: torch.device) -> None:
        """What is to be done at home from now on comes after the copies."""
        if self._stream is not None:
            torch.cuda.current_stream(home).wait_stream(self._stream)

"""Workers of an engine on several devices of one kind, which compute parts of a batch at the same time."""

from collections.abc import Callable, Sequence
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
        self._idle: SimpleQueue[Engine | None] = SimpleQueue()
        self._idle.put(None)  # the first
        for device in devices[1:]:
            copy: ClientData = Unpacker(Packer(device=device).pack(data)).load()
            self._idle.put(Engine(copy, seed=0, device=device))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        other = self._idle.get()
        try:
            if other is None:
                return function(*arguments)
            # All in each device's one stream, in which rows and memory are taken again only behind those who
            # read them. So a copy comes behind what the first has been given to do by then.
            kernels: list[Kernel] = []  # any device can use them as they are
            packer = Packer(self._data, kernels, device=other.device)
            reply = computed(packer.pack((function, arguments)), other, kernels, self._home)
            return Unpacker(reply, rows=packer.rows).load()
        finally:
            self._idle.put(other)

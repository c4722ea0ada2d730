"""Workers of an engine on several devices of one kind, which compute parts of a batch at the same time."""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import torch

from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.parcels import ParcelPickler, ParcelUnpickler, compute_parcel
from sim.learning.engine.workers import Workers


class DeviceWorkers(Workers):
    """One thread for each device. The first device stores all vectors, and computes like the others.

    Each other device has a copy of the data. The inputs of a part are copied to it, and the results copied
    back.
    """

    def __init__(self, devices: Sequence[torch.device], data: ClientData) -> None:
        super().__init__(len(devices))
        self.alone = True
        self._data, self._home = data, devices[0]
        self._idle: SimpleQueue[Engine | None] = SimpleQueue()
        self._idle.put(None)  # the first device
        for device in devices[1:]:
            copy: ClientData = ParcelUnpickler(ParcelPickler(device=device).pack(data)).load()
            self._idle.put(Engine(copy, seed=0, device=device))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        other = self._idle.get()
        try:
            if other is None:
                return function(*arguments)
            # One stream per device orders all work: rows and memory are reused only after earlier reads. A
            # copy therefore comes after the work that the first device has been given before.
            kernels: list[ModelKernel] = []  # usable on any device
            packer = ParcelPickler(self._data, kernels, device=other.device)
            reply = compute_parcel(packer.pack((function, arguments)), other, kernels, self._home)
            return ParcelUnpickler(reply, rows=packer.rows).load()
        finally:
            self._idle.put(other)

"""Server without rounds: it uses the work of each client on arrival, and no client waits for another.

    each client, repeatedly:     trains from the server's last model, and sends the result
    the server, at each arrival: uses the result, and answers with its current model

Only clients start exchanges, so the server need not know which clients are up, and a slow or dead client
delays no other. A client asks until it is answered, however long the server is away. The server uses each
result once, whatever messages are repeated or lost: it keeps the time of the last model for each client, and
ignores results from another model. The same holds for a server that restarts: with its old state it
continues; without this state, it gives a new model to each client that asks.

A client is evaluated by the last model from the server, and keeps that when its budget is exhausted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from actors.delivery.round_trips import doubled_wait_s
from actors.message import PeerUnavailable, RemoteError
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from actors.source_location import name_with_line
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import Server, ServerPlan
from protocols.framework.vectors import Scalar, Vector

_ATTEMPTS = 4
_DOUBLINGS_MAX = 10
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Start:
    """Model of the server for a client to train from, and the time of the answer."""

    params: Vector
    time: float


@dataclass(frozen=True)
class Report:
    """Work of a client from the `Start` of that `time`; None from a client that has no `Start` yet."""

    work: object | None = None
    time: float | None = None


class AsyncSettings(ProtocolSettings):
    """Settings of a server without rounds: `local_steps` or `local_epochs`, and `patience`."""

    changing: ClassVar[tuple[str, ...]] = ("local_steps", "local_epochs")

    local_steps: Count | None = None
    """Training steps between two models from the server, instead of `local_epochs`."""
    local_epochs: Count = 1
    """Passes of a client over its own samples between two models; each drops the last incomplete
    batch."""
    patience: PositiveDuration = default("10 s")
    """Initial estimate of the network's delay. An overdue answer is requested again and again until it
    arrives: at first after a quarter of this time, and later after the time that answers usually take."""


class AsyncServer(Server):
    """Server that uses each client's work when it arrives. A method overrides `arrived`."""

    _machinery = True
    settings: AsyncSettings
    version = 0
    """Number of changes to the server's model."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.given: dict[str, tuple[float, int]] = {}  # by client: time and version of the last answer

    def arrived(self, work: Any, client: str, staleness: int) -> None:
        """Use `work`, the result of a client's `work` method; assign the new model to `self.params`.

        staleness: number of changes to the model since the server sent the version that the client trained.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define arrived()")

    async def on_message(self, message: object, sender: str) -> Start:
        time, version = self.given.get(sender, (math.nan, 0))
        if isinstance(message, Report) and message.time == time:
            staleness, before = self.version - version, self.params
            self.context.report(self.name, "versions_behind", staleness)
            self.arrived(message.work, sender, staleness)
            self.version += self.params is not before
        self.given[sender] = (self.now, self.version)
        return Start(self.params, self.now)


class AsyncClient(Client):
    """Client of an `AsyncServer`. A method names its `server`, and may override `work`."""

    _machinery = True
    Settings = AsyncSettings
    settings: AsyncSettings
    server: ClassVar[type[AsyncServer]] = AsyncServer
    """Class of the server."""
    start: Start | None = None
    """Last message of the server to work from."""

    @classmethod
    def servers(
        cls, settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        return ServerPlan.one(cls.server, AsyncServer, clients)

    async def work(self, start: Vector) -> object:
        """Compute and return the result for the server from the server's model `start`; never None.

        By default the result is the trained model.
        """
        return await self.trained(start)

    async def trained(self, start: Vector, proximal: Sequence[tuple[float | Scalar, Vector]] = ()) -> Vector:
        """Return `start` after the local steps, with a fresh optimizer."""
        steps = self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch
        return start + await self.train(steps, start=start, proximal=proximal, fresh_optimizer=True)

    async def step(self) -> None:
        """Train once, send the result and wait for the answer; a client that is alone only trains."""
        if self.context.alone:
            self.params = await self.trained(self.params)
            return
        start = self.start or await self._exchange(Report())
        self.params = start.params
        work = await self.work(start.params)
        if work is None:
            raise TypeError(f"{name_with_line(self.work)} returned nothing: return a result for the server")
        self.context.report(self.name, "staleness", self.now - start.time)
        self.start = await self._exchange(Report(work, start.time))
        self.params = self.start.params

    async def _exchange(self, report: Report) -> Start:
        """Return the server's answer, however long it takes.

        After some attempts, the client asks a new question; each new question has more attempts. The waits
        between the attempts of a question double, which is slow where many messages are lost, but right where
        the network is slower than expected.
        """
        self.round_trips.wait_at_first(self.settings.patience)
        for times in count():
            more = 2 ** min(times, _DOUBLINGS_MAX)
            try:
                server = self.pick_peer()
                all_attempts_s = 2**_ATTEMPTS * self.round_trips.limit_s(server, Report)
                timeout = more * max(self.settings.patience, all_attempts_s)
                answer: Start = await self.ask(server, report, timeout=timeout, attempts=more * _ATTEMPTS)
                return answer
            except (PeerUnavailable, RemoteError):  # the message is lost, or the server is away
                await self.sleep(doubled_wait_s(_PAUSE_S, times))
        raise AssertionError("the loop above has no end")

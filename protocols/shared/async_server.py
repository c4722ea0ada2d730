"""A server without rounds: it makes use of what each client has done when it arrives, and nobody waits.

    a client, again and again:   trains from the model that the server gave it, and sends what came of it
    the server, at each arrival: uses it, and answers with its model as it is by then

Only clients begin anything, so the server need not know who is there, and a slow or dead client holds up
nobody. A client asks until it is answered, however long the server is away. What it sends is used once,
whatever is repeated or lost: the server keeps when it gave each client its last model, and uses nothing that
was made of another one. So it is with a server that comes back: with its old state it goes on, and afresh it
gives a new model to everybody who asks.

A client is judged by the last model that it was given, and keeps that when its budget is spent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from actors.delivery.round_trips import doubled_s
from actors.message import PeerUnavailable, RemoteError
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from actors.source_location import at_line
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import Server, ServerPlan
from protocols.framework.vectors import Scalar, Vector

_ATTEMPTS = 4
_DOUBLINGS_MAX = 10
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Start:
    """A server's model for a client to train from, and when it was given."""

    params: Vector
    time: float


@dataclass(frozen=True)
class Report:
    """A client's work from the `Start` of that `time`; None from a client that has no `Start` yet."""

    work: object | None = None
    time: float | None = None


class AsyncSettings(ProtocolSettings):
    """A server without rounds: `local_steps` or `local_epochs`, and `patience`."""

    changing: ClassVar[tuple[str, ...]] = ("local_steps", "local_epochs")

    local_steps: Count | None = None
    """Training steps from one model of the server's to the next, instead of `local_epochs`."""
    local_epochs: Count = 1
    """Passes of a client over its own samples from one model to the next; each drops the last incomplete
    batch."""
    patience: PositiveDuration = default("10 s")
    """How slow the network may be when nothing is known of it yet: an answer is asked for again after a
    quarter of this, and later after what answers have taken, until there is one."""


class AsyncServer(Server):
    """Uses what each client has done as it arrives. A method says how, in `arrived`."""

    _machinery = True
    settings: AsyncSettings
    version = 0
    """How often its model has changed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.given: dict[str, tuple[float, int]] = {}  # to each client last: when, and which version

    def arrived(self, work: Any, client: str, staleness: int) -> None:
        """Make use of what `work` of a client returned; assign `self.params` what it makes of the model.

        staleness: how often the model has changed since the client was given the one that it trained from.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no arrived()")

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
    """A client of an `AsyncServer`. A method names its `server`, and may say what a client does in `work`."""

    _machinery = True
    Settings = AsyncSettings
    settings: AsyncSettings
    server: ClassVar[type[AsyncServer]] = AsyncServer
    """The class of the server."""
    start: Start | None = None
    """The last message from the server to work from."""

    @classmethod
    def servers(
        cls, settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        return ServerPlan.one(cls.server, AsyncServer, clients)

    async def work(self, start: Vector) -> object:
        """Work from the server's model `start`; what is returned, never None, is sent to the server.

        Here it is the trained model.
        """
        return await self.trained(start)

    async def trained(self, start: Vector, proximal: Sequence[tuple[float | Scalar, Vector]] = ()) -> Vector:
        """`start` after the local steps, with a fresh optimizer."""
        steps = self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch
        return start + await self.train(steps, start=start, proximal=proximal, fresh_optimizer=True)

    async def step(self) -> None:
        """One training, sent and answered."""
        if self.context.alone:
            self.params = await self.trained(self.params)
            return
        start = self.start or await self._asked(Report())
        self.params = start.params
        work = await self.work(start.params)
        if work is None:
            raise TypeError(f"{at_line(self.work)} returned nothing: it is what the server makes use of")
        self.context.report(self.name, "staleness", self.now - start.time)
        self.start = await self._asked(Report(work, start.time))
        self.params = self.start.params

    async def _asked(self, report: Report) -> Start:
        """The server's answer, however long it takes.

        After some attempts it is asked anew, and after more the next time: the waits between attempts double,
        which is long where many are lost, and right where the network is slower than anybody knew.
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
            except (PeerUnavailable, RemoteError):  # lost, away, or known to be
                await self.sleep(doubled_s(_PAUSE_S, times))
        raise AssertionError("the loop above has no end")

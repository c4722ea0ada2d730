"""A small world for tests of supervision: actors that do as they are told, and what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from actors.actor import Actor
from actors.supervisor import Supervisor
from actors.transport import InMemoryTransport
from tests.virtual_time import run_virtual


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Model:
    params: Any


@dataclass(frozen=True)
class Work:
    seconds: float


class World:
    """One transport and one supervisor; `events` is what happened, in order, with the virtual time."""

    def __init__(self, **options: Any) -> None:
        self.transport = InMemoryTransport()
        self.events: list[tuple[float, str, str]] = []
        self.lines: list[str] = []
        self.supervisor = Supervisor(
            self.transport,
            log=self.lines.append,
            observe=lambda time_s, name, event: self.events.append((time_s, name, event)),
            **options,
        )

    def client(self, name: str, script: Script | None = None) -> Client:
        client = self.supervisor.start(lambda: Client(name, self, script))
        assert isinstance(client, Client)
        return client


class Client(Actor):
    """Does what a test gives it to do; its hooks leave marks among the world's events."""

    collected: ClassVar[tuple[type, ...]] = (Model,)
    goodbye_s = 0.0

    def __init__(self, name: str, world: World, script: Script | None = None) -> None:
        super().__init__(name, world.transport)
        self.world = world
        self.script = script

    def mark(self, event: str) -> None:
        self.world.events.append((self.now, self.name, event))

    async def run(self) -> None:
        if self.script is not None:
            await self.script(self)

    async def on_stop(self) -> None:
        await self.sleep(self.goodbye_s)
        self.mark("on_stop")

    async def on_failure(self, error: Exception) -> None:
        self.mark(f"on_failure {error}")

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Work(seconds):
                await self.sleep(seconds)
                return Note("done")
            case Note("fail"):
                raise ValueError("told to fail")
            case Note("kill me"):
                assert self.world.supervisor.kill(self.name)
                self.tell(sender, Note("from the grave"))
                return Note("an answer from the grave")
            case Note("stop me"):
                await self.world.supervisor.stop(self.name)
            case Note(text):
                self.mark(text)
        return None


Script = Callable[[Client], Coroutine[Any, Any, None]]


def simulate(main: Callable[[World], Coroutine[Any, Any, None]], **options: Any) -> World:
    world = World(**options)

    async def everything() -> None:
        await main(world)
        await world.supervisor.drain()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(everything())
    return world


def nothing_is_left_of(name: str, world: World) -> bool:
    """Whether supervisor, transport and event loop have forgotten the actor."""
    supervisor, transport = world.supervisor, world.transport
    tasks = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(f"{name}: ")]
    places = (supervisor.running, supervisor._factories, transport._attached)
    return not tasks and not supervisor._ending and not any(name in place for place in places)


async def forever(me: Client) -> None:
    while True:
        await me.sleep(1.0)


async def fail(me: Client) -> None:
    await me.sleep(1.5)
    raise ZeroDivisionError("one over none")

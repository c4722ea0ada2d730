"""Kinds of slow times of devices: scheduled, random, periodic, measured, user-defined."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, at_most_one
from actors.settings.quantities import (
    FACTOR_MAX,
    FACTOR_MIN,
    ClientList,
    Duration,
    Factor,
    PositiveDuration,
    Probability,
)
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.files.rows import read_cycle
from sim.kernel.random import RandomStream, stream
from sim.world.devices.slowness import (
    Piece,
    periodic_slowness,
    random_slow_times,
    repeated_slowness,
    single_slow_time,
)
from sim.world.plugins import WorldPlugin

Trace = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds from 0 on, one more than factors: factors[k] applies from times[k] to times[k + 1]."""

_PIECES_TRIED = 100


class SlowTimes(Settings):
    """Periods in which the devices of some clients are slow."""

    clients: ClientList | None = None
    """Clients with these slow times; by default all."""
    share: Probability | None = None
    """Instead of `clients`: probability that a client has these slow times, drawn for each client
    separately."""

    share_key: ClassVar[str] = "share"  # key of the share of the clients
    coin: ClassVar[str]  # name of the random stream that decides for each client

    @model_validator(mode="after")
    def _one_way(self) -> SlowTimes:
        at_most_one(self, "clients", self.share_key)
        return self

    def concerns(self, seed: int, client: int, *number: int) -> bool:
        """Return True if a client has these slow times. number: index of this entry in its list."""
        if self.clients is not None:
            return client in self.clients
        share = getattr(self, self.share_key)
        # A separate draw for each client, not one among all: adding a client must not change which ones are
        # slow.
        return share is None or RandomStream(seed, self.coin, *number, client).uniform() < share

    @abstractmethod
    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        """Return the slow times of one of `clients` clients, for entry `number`. Raises UserError."""


class ScheduledSlowdown(SlowTimes):
    """Some clients' devices are slower for a limited time."""

    coin = "slowdown"

    factor: Factor
    """Factor on the computing times of these clients."""
    start: Duration
    """Start of the slow time."""
    end: PositiveDuration
    """End of the slow time."""

    @model_validator(mode="after")
    def _in_order(self) -> ScheduledSlowdown:
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        return self

    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        return single_slow_time(self.start, self.end, self.factor)


class TransientStragglers(SlowTimes):
    """Slow periods at random times, independent for each client."""

    coin = "who has transient slowdowns"  # prose: allow

    every: PositiveDuration
    """Mean time between two slow periods of a client (exponential)."""
    length: PositiveDuration
    """Mean length of a slow period (exponential)."""
    factor: Factor
    """Factor on the computing times during a slow period."""

    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        return random_slow_times(
            self.every, self.length, self.factor, RandomStream(seed, "transient slowdown", client)
        )


class PeriodicSlowTimes(SlowTimes):
    """Devices are slow for a part of each period, for example phones that train well only while charging."""

    share_key, coin = "share_of_clients", "who has periodic slow times"  # prose: allow

    share_of_clients: Probability | None = None
    """Instead of `clients`: probability that a client has these slow times, drawn for each client
    separately."""
    period: PositiveDuration
    """Length of a period."""
    share: Annotated[float, Field(gt=0, lt=1)]
    """Slow share of each period: its last part."""
    factor: Factor
    """Factor on the computing times during the slow part."""
    phase: Literal["random"] | Duration = "random"
    """Position in a period at which the run starts: drawn for each client, or the same for all."""

    @model_validator(mode="after")
    def _phase_in_period(self) -> PeriodicSlowTimes:
        if self.phase != "random" and self.phase >= self.period:
            raise SettingError("phase", self.phase, f"must be less than the period ({self.period:g} s)")
        return self

    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        phase_s = self.phase
        if phase_s == "random":
            phase_s = self.period * RandomStream(seed, "phase of slow times", client).uniform()
        return periodic_slowness(self.period, self.share, self.factor, phase_s)


class MeasuredSlowTimes(SlowTimes):
    """Slowdown factor over time from a table, which is repeated."""

    coin = "who has measured slow times"  # prose: allow

    file: Annotated[BesideFile, Field(min_length=1)]
    """CSV or .parquet file with the columns `time_s`, from 0 on, and `factor`, which applies from that time
    on. The last row ends the cycle; its factor is ignored. The path is relative to the current folder or, if
    it does not exist there, to the folder of the scenario."""
    offset: Literal["random"] | Duration = "random"
    """Position in the trace at which the run starts: drawn for each client, or the same for all."""

    @cached_property
    def trace(self) -> Trace:
        """Slowdown factors over time, as read from the file. Raises UserError."""
        source = InputFile("devices.measured.file", Path(self.file))
        return read_cycle(source, "factor", FACTOR_MIN, FACTOR_MAX)

    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        length_s = self.trace[0][-1]
        offset_s = self.offset
        if offset_s == "random":
            offset_s = length_s * RandomStream(seed, "offset of slow times", client).uniform()
        return repeated_slowness(*self.trace, offset_s % length_s)


class OwnSlowTimes(WorldPlugin, SlowTimes):
    """Your own function returns the slow times of each client's device.

    It returns pairs (until, factor), in order: up to the virtual time `until`, in seconds, one second of
    computing takes `factor` seconds. After the last pair the factor is 1. A generator is only read as far as
    virtual time advances. The function may have any of these parameters: `rng` (a numpy generator for this
    client), `shared_rng` (a generator with the same random numbers for all clients), `client` (the client's
    number) and `clients` (the number of clients).
    """

    provided = ("rng", "shared_rng", "client", "clients")
    coin = "who has slow times of the user's own"  # prose: allow

    def try_out(self, seed: int, client: int, clients: int, number: int) -> None:
        """Call the function twice for a client. Raises UserError if it fails or returns different pieces."""

        def find() -> list[Piece]:
            return [*islice(self.pieces(seed, client, clients, number), _PIECES_TRIED)]

        self.same_again(find, self.about_client(client))

    def pieces(self, seed: int, client: int, clients: int, number: int = 0) -> Iterator[Piece]:
        about = self.about_client(client)
        found = self.call_checked(
            about,
            rng=stream(seed, "own slow times", number, client),
            shared_rng=stream(seed, "own slow times", number, "shared"),
            client=client,
            clients=clients,
        )
        end_s = 0.0
        for item in self.items(found, about):
            until, by = self.row(item, "pairs (until, factor)", about)
            before_s, end_s = end_s, self.number(until, 0.0, math.inf, "a time in seconds", about)
            factor = self.number(by, FACTOR_MIN, FACTOR_MAX, "a factor", about)
            if end_s <= before_s:
                raise self.refusal(
                    f"returned the time {end_s:g} s after the time {before_s:g} s {about()}; each must be "
                    "later than the previous time, and the first later than 0"
                )
            yield end_s, factor
            if end_s == math.inf:
                return
        yield math.inf, 1.0

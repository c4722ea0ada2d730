"""Who joins, leaves, crashes and comes back: single events, and processes that make many."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from protocols.settings import (
    CountOrZero,
    Duration,
    PositiveDuration,
    SettingError,
    Settings,
    Within,
    default,
)
from sim.settings.shared import ClientList, Share, SigmaOfLog, exactly_one

State = Literal["keep", "stale", "fresh"]


class Churn(Settings):
    """One event in the life of some clients. A client whose first event is a join is absent at the start."""

    at: Duration
    """Virtual time of the event."""
    event: Literal["join", "leave", "crash", "rejoin"]
    """join: first appearance; leave: with goodbyes; crash: at once, in silence; rejoin: back after either."""
    clients: ClientList | None = None
    """The clients."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of those to whom it can happen then, drawn at random, instead of `clients`. Of a join these are
    the clients that no other entry names, no earlier join has drawn, and no process has in its pool."""
    cluster: CountOrZero | None = None
    """All clients of a true cluster to whom it can happen then, instead of `clients`."""
    spread: Duration = default("0 s")
    """Each client's event comes at a random time within so much after `at`."""
    state: State = "keep"
    """For a rejoin: with the state it had (keep), with the model of its last backup (stale), or as a newcomer
    (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for a stale rejoin; the same for all of one client."""

    @model_validator(mode="after")
    def _consistent(self) -> "Churn":
        exactly_one(self, "clients", "share", "cluster")
        if self.state != "keep" and self.event != "rejoin":
            problem = f"only a rejoin can be {self.state}, this is a {self.event}"
            raise SettingError("state", self.state, problem)
        return self


# Processes ------------------------------------------------------------------------------------------------


class ExponentialLength(Settings):
    """Exponential: a session ends with the same probability in each second."""

    kind: Literal["exponential"]
    mean: PositiveDuration
    """Mean length."""


class WeibullLength(Settings):
    """Weibull; with a shape below 1, as measured in peer-to-peer networks, the young die first."""

    kind: Literal["weibull"]
    scale: PositiveDuration
    """63 % of the sessions are shorter."""
    shape: Annotated[PositiveFloat, Within(0.1, 100)]
    """1 is exponential."""


class LogNormalLength(Settings):
    """Logarithm normally distributed."""

    kind: Literal["lognormal"]
    median: PositiveDuration
    """Half of the sessions are shorter."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm."""


SessionLength = Annotated[ExponentialLength | WeibullLength | LogNormalLength, Field(discriminator="kind")]


class _Process(Settings):
    """What all processes share."""

    clients: ClientList | None = None
    """The pool of clients that come and go; by default all. Nothing else may happen to them."""
    end: Literal["crash", "leave"] = "crash"
    """How a session ends."""
    state: State = "fresh"
    """What a client comes back with: what it had (keep), its last backup (stale), or nothing (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for stale."""
    until: PositiveDuration | None = None
    """End of the process; by default that of the run."""


class PoissonChurn(_Process):
    """Clients arrive at random and stay for a session.

    An arrival takes the client of the pool that has been away the longest; when all are up it is turned away
    (`turned_away` in the summary): make the pool large beside the mean population, session over `every`.
    """

    kind: Literal["poisson"]
    every: PositiveDuration
    """Mean time between two arrivals."""
    session: SessionLength
    """How long a client stays."""
    up_at_start: Share = 0.0
    """Share of the pool that is there at the start, each with a whole new session: not with what is left of
    one that began earlier. That is the same for exponential lengths; others need a few sessions to settle."""


class DiurnalChurn(PoissonChurn):
    """As poisson, but the rate of arrivals swings like a sine: by day more come than by night."""

    kind: Literal["diurnal"]  # type: ignore[assignment]
    period: PositiveDuration = default("24 h")
    """Length of a day; it begins with the rate rising from its mean."""
    amplitude: Share = 0.8
    """By how much the rate swings, as a share of its mean."""


class TraceChurn(_Process):
    """Sessions as they were measured: spot instances of cloud providers in 2020."""

    kind: Literal["trace"]
    source: Literal[
        "aws_2020-03-15",
        "gcp_2020-03-01",
        "gcp_2020-03-04",
        "g4dn_us-east-1c_2020-11-20",
        "g4dn_us-east-1d_2020-11-23",
        "p2_2020-11-20",
    ]
    """A run whose single sessions are known (the first three), or a group whose size is."""
    speedup: Annotated[PositiveFloat, Within(0.001, 1_000_000)] = 1.0
    """How much faster than real time it passes: with 60, an hour is a minute."""


ChurnProcess = Annotated[PoissonChurn | DiurnalChurn | TraceChurn, Field(discriminator="kind")]

"""User-defined functions for parts of the world: calls, and checks of their results."""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from numbers import Real
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, WithJsonSchema

from sim.errors import FAILURES
from sim.kernel.random import stream
from sim.plugins.section import USERS_CODE, PluginSection, first_error_line
from sim.world.participants import Participants

ActorId = int | str
"""Client, by its number, or server, by its name."""
Found = TypeVar("Found")


def _require_function(name: str) -> str:
    # A kind that names a function became a section of a plugin class before validation.
    raise ValueError('must name your own function, "my_file.py:function" or "package.module:function"')


class WorldPlugin(PluginSection):
    """Table whose `kind` names a user-defined function."""

    kind: Annotated[
        str, AfterValidator(_require_function), WithJsonSchema({"type": "string", "pattern": USERS_CODE})
    ]
    """The function: `my_file.py:function` or `package.module:function`."""

    def about_client(self, client: ActorId) -> Callable[[], str]:
        """Return a function that names the client in errors."""
        return lambda: f"for client = {client!r}"

    def call_checked(self, about: Callable[[], str], **provided: Any) -> Any:
        """Call the function. `about` describes the client or message in the UserError if it fails."""
        try:
            return self.call(**provided)
        except FAILURES as error:
            raise self.refusal(f"failed {about()}: {first_error_line(error)}", error) from error

    def items(self, found: Any, about: Callable[[], str]) -> Iterator[Any]:
        """Yield the items of the list or generator that the function returned. Raises UserError."""
        try:
            yield from found
        except FAILURES as error:
            if not isinstance(found, Iterable):
                what = f"returned type {type(found).__name__} {about()}; return a list, or use yield"
                raise self.refusal(what) from None
            raise self.refusal(f"failed {about()}: {first_error_line(error)}", error) from error

    def row(
        self, item: Any, form: str, about: Callable[[], str], lengths: Container[int] = (2,)
    ) -> tuple[Any, ...]:
        """Return an item as a tuple with one of these `lengths`. Raises UserError."""
        try:
            values = tuple(item)
        except TypeError:
            values = ()
        if len(values) not in lengths or isinstance(item, str):
            raise self.refusal(f"returned {item!r:.60} {about()}; must be {form}")
        return values

    def number(self, value: Any, least: float, most: float, unit: str, about: Callable[[], str]) -> float:
        """Return `value` as a number from `least` to `most`. Raises UserError."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and least <= float(value) <= most:
            return float(value)
        text = f"{value!r:.60}" if is_number else f"{value!r:.60} ({type(value).__name__})"
        allowed = f"at least {least:,g}" if most == math.inf else f"from {least:,g} to {most:,g}"
        raise self.refusal(f"returned {text} {about()}; must be {unit} {allowed}")

    def same_again(self, find: Callable[[], Found], about: Callable[[], str]) -> Found:
        """Call `find` twice and return its result. Raises UserError if the two differ."""
        first, second = find(), find()
        if first != second:
            raise self.refusal(
                f"returned different results in two calls with the same arguments {about()}; take "
                "random numbers from rng only"
            )
        return first


class QuantityPlugin(WorldPlugin):
    """Your own function, which returns the value of each client."""

    provided = ("rng", "client", "clients")

    least: ClassVar[float]
    most: ClassVar[float]
    unit: ClassVar[str]

    def of(self, who: ActorId, clients: int, seed: int, purpose: str) -> float:
        """Return the value for a client or server, with its own random numbers. Raises UserError."""
        about = self.about_client(who)

        def find() -> float:
            rng = stream(seed, "own", purpose, str(who))
            return self.checked(self.call_checked(about, rng=rng, client=who, clients=clients), about)

        return self.same_again(find, about)

    def checked(self, value: Any, about: Callable[[], str]) -> float:
        """Return `value` if it is a value of this quantity. Raises UserError."""
        return self.number(value, self.least, self.most, self.unit, about)


def actor_ids(participants: Participants) -> dict[str, ActorId]:
    """Return the number of each client and the name of each server, as the user's functions get them."""
    numbers: dict[str, ActorId] = {name: number for number, name in enumerate(participants.clients)}
    return numbers | {name: name for name in participants.servers}

"""The user's functions for parts of the world: how they are called, and checks of what they return."""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from numbers import Real
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, WithJsonSchema

from sim.kernel.random import stream
from sim.plugins.section import FAILURES, USERS_CODE, PluginSection, in_short
from sim.world.participants import Participants

Who = int | str
"""A client, by its number, or a server, by its name."""
Found = TypeVar("Found")


def _no_function(name: str) -> str:
    # What names one has become a section of a class of its own before anything is validated.
    raise ValueError('must name a function of your own, "my_file.py:function" or "package.module:function"')


class WorldPlugin(PluginSection):
    """A table whose `kind` names a function of the user's own."""

    kind: Annotated[
        str, AfterValidator(_no_function), WithJsonSchema({"type": "string", "pattern": USERS_CODE})
    ]
    """The function: `my_file.py:function`, or `package.module:function`."""

    def about_client(self, client: Who) -> Callable[[], str]:
        """For which client something is asked, for errors."""
        return lambda: f"for client = {client!r}"

    def asked(self, about: Callable[[], str], **provided: Any) -> Any:
        """Call the function. `about` says for which client or message, in the UserError if it fails."""
        try:
            return self.call(**provided)
        except FAILURES as error:
            raise self.refusal(f"failed {about()}: {in_short(error)}", error) from error

    def items(self, found: Any, about: Callable[[], str]) -> Iterator[Any]:
        """The items of the list or generator that the function returned. UserError."""
        try:
            yield from found
        except FAILURES as error:
            if not isinstance(found, Iterable):
                what = f"gave a {type(found).__name__} {about()}; must be a list, or a generator that yields"
                raise self.refusal(what) from None
            raise self.refusal(f"failed {about()}: {in_short(error)}", error) from error

    def row(
        self, item: Any, form: str, about: Callable[[], str], lengths: Container[int] = (2,)
    ) -> tuple[Any, ...]:
        """One of the items as a tuple of so many values. UserError."""
        try:
            values = tuple(item)
        except TypeError:
            values = ()
        if len(values) not in lengths or isinstance(item, str):
            raise self.refusal(f"gave {item!r:.60} {about()}; must be {form}")
        return values

    def number(self, value: Any, least: float, most: float, unit: str, about: Callable[[], str]) -> float:
        """`value` as a number from `least` to `most`. UserError."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and least <= float(value) <= most:
            return float(value)
        shown = f"{value!r:.60}" if is_number else f"{value!r:.60} ({type(value).__name__})"
        allowed = f"at least {least:,g}" if most == math.inf else f"from {least:,g} to {most:,g}"
        raise self.refusal(f"gave {shown} {about()}; must be {unit} {allowed}")

    def same_again(self, find: Callable[[], Found], about: Callable[[], str]) -> Found:
        """Call `find` twice and return its result. UserError if the two differ."""
        first, second = find(), find()
        if first != second:
            raise self.refusal(
                f"gave other results when it was called again with the same arguments {about()}; what is "
                "random must come from rng"
            )
        return first


class QuantityPlugin(WorldPlugin):
    """A function of your own, which says it for each client."""

    provided = ("rng", "client", "clients")

    least: ClassVar[float]
    most: ClassVar[float]
    unit: ClassVar[str]

    def of(self, who: Who, clients: int, seed: int, purpose: str) -> float:
        """The value for a client or server, with random numbers of its own for this purpose. UserError."""
        about = self.about_client(who)

        def find() -> float:
            rng = stream(seed, "own", purpose, str(who))
            return self.checked(self.asked(about, rng=rng, client=who, clients=clients), about)

        return self.same_again(find, about)

    def checked(self, value: Any, about: Callable[[], str]) -> float:
        """`value`, checked to be one of the quantity. UserError."""
        return self.number(value, self.least, self.most, self.unit, about)


def numbers_of(participants: Participants) -> dict[str, Who]:
    """The number of each client, and the name of each server, by which the user's functions know them."""
    numbers: dict[str, Who] = {name: number for number, name in enumerate(participants.clients)}
    return numbers | {name: name for name in participants.servers}

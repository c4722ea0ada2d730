"""Methods of clients under their former names: called, with a warning that names the present one."""

from contextlib import closing
from typing import Any

import pytest

from protocols.decentralized.dpsgd import DPSGD
from protocols.framework.client import Client
from tests.protocols.worlds import QUADRATIC, make

STEPS = ("run.duration=1 s", "run.evaluate_every=1 s")


class Idle(Client):
    async def step(self) -> None:
        await self.sleep(1.0)


def calls_of(kind: type[Client]) -> list[str]:
    """The calls that the first client of a short run has recorded."""
    with closing(make(QUADRATIC, f"protocol.name={__name__}:{kind.__name__}", *STEPS)) as simulation:
        simulation.run()
        found: list[str] = simulation.clients[0].actor.calls  # type: ignore[attr-defined]
        return found


with pytest.warns(FutureWarning) as WARNINGS:

    class Begins(Idle):
        def begin(self) -> None:
            self.calls = ["begin"]
            super().begin()  # type: ignore[misc]

    class BeginsMethod(DPSGD):
        """Extends a method of coterie, which has only `setup`."""

        def begin(self) -> None:
            self.calls = ["begin"]
            super().begin()  # type: ignore[misc]

    class Mixin:
        def begin(self) -> None:
            self.calls = ["begin of a mixin"]
            super().begin()  # type: ignore[misc]

    class Mixed(Mixin, Idle):
        pass

    class Hears(Idle):
        def begin(self) -> None:
            self.calls: list[str] = []

        async def step(self) -> None:
            self.gossip("hello")
            await self.sleep(0.5)

        async def on_message(self, message: object, sender: str) -> None:
            self.calls.append("on_message")

        def heard(self, message: object, sender: str) -> bool:
            self.calls.append("heard")
            return bool(super().heard(message, sender))  # type: ignore[misc]


class Both(Begins):
    """The present name in a subclass of a class with the former one."""

    def setup(self) -> None:
        super().setup()
        self.calls.append("setup")


def test_begin_is_called_in_place_of_setup() -> None:
    assert calls_of(Begins) == ["begin"]
    assert calls_of(BeginsMethod) == ["begin"]  # and its rounds are set up, or its steps would fail
    assert calls_of(Mixed) == ["begin of a mixin"]
    assert calls_of(Both) == ["begin", "setup"]


def test_heard_is_called_in_place_of_intercept() -> None:
    calls = calls_of(Hears)
    assert calls[:2] == ["heard", "on_message"] and calls.count("heard") >= calls.count("on_message")


def test_the_warning_names_the_method_and_its_present_name() -> None:
    texts = [str(warning.message) for warning in WARNINGS]
    assert len(texts) == 5
    assert any(text.startswith("Begins.begin() (") and "now called setup()" in text for text in texts)
    assert any(text.startswith("Hears.heard() (") and "now called intercept()" in text for text in texts)
    assert all("test_former_names.py:" in text for text in texts)


def test_a_class_with_both_names_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"Twice.begin\(\) .*: begin\(\) is the former name of setup\(\); remove one"
    ):

        class Twice(Client):
            def begin(self) -> None: ...

            def setup(self) -> None: ...


def test_the_present_name_gives_no_warning(recwarn: Any) -> None:
    class Sets(Client):
        def setup(self) -> None: ...

    assert not recwarn.list

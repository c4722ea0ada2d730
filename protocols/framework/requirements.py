"""What a method needs of the rest of a scenario, and the settings that all methods have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from actors.settings.base import Settings


class ProtocolSettings(Settings):
    """Settings of a method; its own keys stand beside `protocol.name` in a scenario file."""

    changing: ClassVar[tuple[str, ...]] = ()
    """Keys that can become others while a run goes on, as the method reads `self.settings` whenever it needs
    them."""
    alone: bool = False
    """No client knows any other, so that each trains by itself as it does in this method: its control."""
    unusual: tuple[str, ...] = ()
    """Keys outside this section whose values the method was not made for (`["training.momentum"]`), and are
    meant all the same; without, they are refused."""

    def own_numbers(self, model: int, clients: int) -> int:
        """How many numbers the method keeps besides its clients' models, for so many clients.

        model: the numbers of one model. By this a check tells how much memory a run takes.
        """
        return 0


@dataclass(frozen=True)
class Requirement:
    """What a method needs of the rest of a scenario, or it would not be what its paper describes.

    key: where the value stands, such as "model.initialisation". suits(value): whether it will do. problem:
    why others won't, and which are allowed; the rest of a sentence that begins with the protocol's name.
    """

    key: str
    suits: Callable[[Any], bool]
    problem: str


def common_start(*allowed: str) -> Requirement:
    """The need of methods that average models, or backbones, which no server has handed out."""
    means_little = "averages layers of different clients, which means little if these start apart"
    must_be = " or ".join(f'"{value}"' for value in allowed)
    return Requirement(
        "model.initialisation", lambda value: value in allowed, f"{means_little}; must be {must_be}"
    )


def plain_sgd(method: str) -> tuple[Requirement, ...]:
    """The needs of methods with the formulas of plain SGD; `method` says which, as a predicate."""
    return (
        Requirement("training.optimizer", lambda value: value == "sgd", f'{method}; must be "sgd"'),
        Requirement("training.momentum", lambda value: value == 0, f"{method}, without momentum; must be 0"),
    )


def held_back(on: str) -> tuple[Requirement, ...]:
    """The need of methods that compare models by losses on held-back samples, if `on` names these."""
    problem = "compares models on samples that are held back; must be more than 0"
    return (Requirement("data.validation_share", bool, problem),) if on == "validation" else ()


def two_way_links(settings: ProtocolSettings) -> tuple[Requirement, ...]:
    """The need of methods in which both ends of a link hear of each other."""
    if settings.alone:
        return ()
    problem = "needs links that go both ways; must have directed = false"
    return (Requirement("clients.topology", lambda value: not getattr(value, "directed", False), problem),)

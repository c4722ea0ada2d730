"""Requirements of methods for a scenario, and the settings that all methods have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from actors.settings.base import Settings


class ProtocolSettings(Settings):
    """Settings of a method; its own keys are written next to `protocol.name` in a scenario file."""

    beside: ClassVar[tuple[str, ...]] = ("name",)
    """Keys of the table that are not part of the settings."""
    changing: ClassVar[tuple[str, ...]] = ()
    """Keys that may change during a run, because the method reads `self.settings` at each use."""
    alone: bool = False
    """Control run: clients have no peers, and each client trains alone as it does in this method."""
    unusual: tuple[str, ...] = ()
    """Keys outside this section with intended values for which the method was not designed
    (`["training.momentum"]`); without this entry, they are refused."""

    def own_numbers(self, model: int, clients: int) -> int:
        """Return the number of values that the method keeps in addition to its clients' models.

        model: the number of values of one model. A check uses this to estimate the memory of a run.
        """
        return 0


@dataclass(frozen=True)
class Requirement:
    """Requirement of a method on the scenario; a run that violates it does not match the method's paper.

    key: the key of the checked value, such as "model.initialisation". suits(value): returns True for allowed
    values. problem: the reason, and the allowed values; the end of a sentence that starts with the protocol's
    name.
    """

    key: str
    suits: Callable[[Any], bool]
    problem: str


def common_start_requirement(*allowed: str) -> Requirement:
    """Return the requirement of methods that average models or backbones that the clients initialize.

    allowed: the values of `model.initialisation` that suit the method.
    """
    means_little = (
        "averages layers of different clients, which has little effect if the layers start from "
        "different values"
    )
    must_be = " or ".join(f'"{value}"' for value in allowed)
    return Requirement(
        "model.initialisation", lambda value: value in allowed, f"{means_little}; must be {must_be}"
    )


def plain_sgd_requirements(method: str) -> tuple[Requirement, ...]:
    """Return the requirements of methods whose formulas assume plain SGD.

    method: the reason, for the error, such as "uses single gradients as steps".
    """
    return (
        Requirement("training.optimizer", lambda value: value == "sgd", f'{method}; must be "sgd"'),
        Requirement("training.momentum", lambda value: value == 0, f"{method}; must be 0, as in plain SGD"),
    )


def constant_rate_requirement(method: str) -> Requirement:
    """Return the requirement of methods that convert between steps and gradients by the learning rate.

    method: the reason, for the error, such as "treats a step as the learning rate times the gradient".
    """
    return Requirement("training.schedule", lambda value: value is None, f"{method}; must be left out")


def held_out_requirement(on: str) -> tuple[Requirement, ...]:
    """Return the requirement of held-out samples if `on` is "validation", otherwise no requirement."""
    problem = "compares models on held-out samples; must be more than 0"
    return (Requirement("data.validation_share", bool, problem),) if on == "validation" else ()


def two_way_links_requirement(settings: ProtocolSettings) -> tuple[Requirement, ...]:
    """Return the requirement of two-way links, for methods that need them; none with `alone`."""
    if settings.alone:
        return ()
    problem = "needs two-way links; must have directed = false"
    return (Requirement("clients.topology", lambda value: not getattr(value, "directed", False), problem),)

"""Fields of messages have no defaults, so that a place that sends a message without a field fails."""

import dataclasses
import importlib
import inspect
import pkgutil

import protocols
from sim.scenario.protocol_lookup import WITHOUT_METHODS
from tests.lists import require_listed

OPTIONAL = {
    "Account.steps",
    "Beliefs.assigned",
    "Beliefs.membership",
    "Beliefs.sketch",
    "Correction.steps",
    "Correction.value",
    "Edge.by",
    "Edge.version",
    "Edge.weight",
    "GradientFound.loss",
    "Publication.beliefs",
    "Report.time",
    "Report.work",
    "Shared.encoder",
    "Shared.steps",
}
"""Fields that some messages, or parts of messages, leave out on purpose."""
NOT_SENT = ("Adam", "GraphLearning", "PersonalizedModelLoss", "ContrastiveClassifier", "FeaturePrototypes")
"""Frozen dataclasses that are no messages."""


def test_fields_of_messages_have_no_defaults() -> None:
    apart = [f"protocols.{folder}" for folder in WITHOUT_METHODS if folder != "shared"]
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(protocols.__path__, "protocols.")
        if not found.name.startswith(tuple(apart))
    ]
    frozen = [
        found
        for module in modules
        for found in vars(module).values()
        if inspect.isclass(found) and found.__module__ == module.__name__ and dataclasses.is_dataclass(found)
        if found.__dataclass_params__.frozen and found.__name__ not in NOT_SENT  # type: ignore[attr-defined]
    ]
    none = dataclasses.MISSING
    with_default = {
        f"{cls.__name__}.{field.name}"
        for cls in frozen
        for field in dataclasses.fields(cls)
        if field.init and not (field.default is none and field.default_factory is none)
    }
    require_listed(with_default, OPTIONAL, f"OPTIONAL in {__file__}, or remove their defaults")

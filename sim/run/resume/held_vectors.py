"""Names, for error messages, of the vectors that clients and servers of a simulation hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.core.simulation import Simulation
from sim.learning.engine import Vector
from sim.learning.engine.snapshot import VectorId

_DEPTH_MAX = 4  # of nested attributes, keys, and list items


def name_of_owner(simulation: Simulation, owner: VectorId) -> str:
    """Return a description of a vector, such as "vector 12 (params of client-3)".

    It states the vector's serial number among the vectors of the same width, and the attribute that holds it.
    No attribute holds a vector that is in a message or in a local variable of a method.
    """
    number = f"vector {owner.serial:,}"
    for life in simulation.lives:
        if life.actor is not None:
            for path, vector in _vectors(vars(life.actor), _DEPTH_MAX):
                if _is_made_of(vector, owner):
                    return f"{number} ({path} of {life.name})"
    return number


def _is_made_of(vector: Vector, owner: VectorId) -> bool:
    return any(VectorId(slot.pool.width, slot.serial) == owner for slot in vector.terms)


def _vectors(fields: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Vector]]:
    """Return the vectors in the values of a mapping, with the path to each."""
    for name, value in fields.items():
        if isinstance(value, Vector):
            yield name, value
        elif depth:
            inner = _parts_of_value(value)
            yield from ((f"{name}.{path}", vector) for path, vector in _vectors(inner, depth - 1))


def _parts_of_value(value: Any) -> Mapping[str, Any]:
    """Return the parts of a value, by name."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(value)}
    belongs_to_a_method = type(value).__module__.partition(".")[0] not in ("sim", "asyncio", "torch", "numpy")
    return vars(value) if belongs_to_a_method and hasattr(value, "__dict__") else {}

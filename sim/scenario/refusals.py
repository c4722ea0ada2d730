"""Refusals in words: what is wrong with a scenario, what is allowed there, and the nearest valid key."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from actors.nearest import did_you_mean
from actors.settings.base import SettingError, Settings
from actors.settings.tables import tagged
from sim.errors import one_line
from sim.scenario.key_path import step
from sim.scenario.schema import allowed_values, resolve

Path = tuple[str | int, ...]
_KEY_SHOWN = 200  # characters
_DEVICE = "the option --device of a command says where it computes, as does device= of coterie.run"
_OPTIONS = {f"{place}device": _DEVICE for place in ("", "engine.", "run.", "training.")}
"""What is no key, as other machines have other ones, but an option of a command."""


def refused(error: ValidationError) -> list[ErrorDetails]:
    """What pydantic refused, each thing once; unknown sections first: one misspelt leaves others missing."""
    found = [
        details
        for details in error.errors(include_url=False)
        # Pydantic counts items without those that it refused, of which it tells as well.
        if details["type"] != "too_short" or len(details["input"]) < details["ctx"]["min_length"]
    ]
    return sorted(found, key=lambda each: (each["type"], len(each["loc"])) != ("extra_forbidden", 1))


def problems(
    root: type[Settings], refused: Iterable[ErrorDetails], raw: Mapping[str, Any], prefix: Sequence[str] = ()
) -> Iterator[SettingError]:
    """What was refused in `raw`, as errors whose keys are written as in the file, below `prefix`."""
    found: dict[str, SettingError] = {}
    for details in refused:
        problem = _explain(details, _locate(root, details), prefix)
        if details["type"] != "missing":
            problem = as_written(raw, problem)
        key, rule = ".".join((*prefix, problem.key)), problem.problem
        if key in found and found[key].problem != rule:  # of a key that may be one thing or another
            rule = f"{found[key].problem}; or: {rule}"
        found[key] = SettingError(key, problem.value, rule)
    yield from found.values()


def as_written(raw: Mapping[str, Any], problem: SettingError) -> SettingError:
    """The same problem with key and value as they stand in the file, so with the user's own unit."""
    path, written = _as_written(raw, tuple(problem.key.split(".")))
    # A value that is not in the file is a default that is refused.
    return SettingError(".".join(path), problem.value if written is None else written, problem.problem)


def line_of(problem: SettingError, origin: str = "") -> str:
    """Key, value, origin, and what is allowed."""
    said = "" if problem.value is None else f" = {show(problem.value)}"
    return one_line(f"{one_line(problem.key, _KEY_SHOWN)}{said}{origin}: {problem.problem}")


def show(value: Any) -> str:
    """A value as it would stand in a scenario file, shortened to one line."""
    if isinstance(value, Settings):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        items = ", ".join(f"{key} = {show(item)}" for key, item in value.items())
        text = f"{{ {items} }}" if items else "{}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(show, value))}]"
    elif isinstance(value, str | bool | int | float):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def keys_of(models: Sequence[type[Settings]]) -> dict[str, Any]:
    """The keys, as written in files, of a table that is described by these classes, with their fields."""
    return {field.alias or name: field for model in models for name, field in model.model_fields.items()}


def kinds_of(annotation: Any) -> dict[str, str]:
    """The kinds (or names) of a table that comes in several, each with its documentation's first line."""
    return {tag: (model.__doc__ or "").partition("\n")[0] for tag, model in tagged(annotation).items()}


def _settings_in(annotation: Any) -> list[type[Settings]]:
    """The settings classes named in an annotation: several when a table comes in several kinds."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _settings_in(argument)]


def _is_dict(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_is_dict, get_args(annotation)))


def _words(annotation: Any) -> list[str]:
    """The words that a Literal (perhaps inside Optional or Annotated) allows."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for argument in get_args(annotation) for word in _words(argument)]


def _tags(models: Sequence[type[Settings]]) -> list[str]:
    """The kinds (or names) that a table of one of these classes may state."""
    return [tag for model in models for tag in tagged(model)]


class _Place(NamedTuple):
    """Where an error is: its path in the file, the classes of the table around it and of the table it is."""

    path: Path
    around: Sequence[type[Settings]]
    here: Sequence[type[Settings]]


def _locate(root: type[Settings], details: ErrorDetails) -> _Place:
    """Pydantic's location in the terms of the file.

    Behind a table that comes in several kinds, pydantic names the kind that it took, and behind a value that
    may be of several types, the type; a file has no such keys.
    """
    location, is_unknown = details["loc"], details["type"] == "extra_forbidden"
    has_any_keys = False
    path: list[str | int] = []
    around: Sequence[type[Settings]] = []
    here: Sequence[type[Settings]] = [root]
    for part in location:
        if isinstance(part, str) and len(here) > 1:
            here = [model for model in here if part in _tags([model])]
            continue
        if isinstance(part, str) and not (part in keys_of(here) or is_unknown or has_any_keys):
            continue
        path.append(part)
        if isinstance(part, str):
            if not has_any_keys:
                around, field = here, keys_of(here).get(part)
                here = _settings_in(field.annotation) if field else []
            has_any_keys = not has_any_keys and field is not None and _is_dict(field.annotation)
    return _Place(tuple(path), around, here)


def _discriminator(models: Sequence[type[Settings]]) -> str:
    return "kind" if "kind" in models[0].model_fields else "name"


def _as_written(raw: Any, path: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """`path`, and what the file has there (None: nothing).

    Cut where the file has a plain value for a table: in ``latency = "20 ms"`` there is no key latency.value.
    """
    for depth, part in enumerate(path):
        if not isinstance(raw, Mapping | list):
            return path[:depth], raw
        raw = step(raw, part)
    return path, raw


def _explain(details: ErrorDetails, place: _Place, prefix: Sequence[str]) -> SettingError:
    key, value, context = ".".join(map(str, place.path)), details["input"], details.get("ctx", {})
    match details["type"]:
        case "value_error" if isinstance(inner := context["error"], SettingError):
            return SettingError(".".join(filter(None, (key, inner.key))), inner.value, inner.problem)
        case "value_error":
            return SettingError(key, value, str(context["error"]))
        case "extra_forbidden":
            beside = [key for model in place.around for key in getattr(model, "beside", ())]  # read before
            known = [*keys_of(place.around), *beside]
            allowed = f"unknown key; allowed: {', '.join(known) or 'none'}"
            option = _OPTIONS.get(".".join((*prefix, key)))
            hint = f"; {option}" if option else did_you_mean(place.path[-1], known)
            return SettingError(key, value, allowed + hint)
        case "missing":
            if isinstance(place.path[-1], int):  # of a list, in which each place has its meaning
                return SettingError(key, None, f"is missing; {key.rpartition('.')[0]} has a value too few")
            return SettingError(key, None, f"is missing; write {_wanted(place)}")
        case "union_tag_not_found":
            allowed = f"is missing; must be one of {', '.join(_tags(place.here))}"
            return SettingError(f"{key}.{_discriminator(place.here)}", None, allowed)
        case "union_tag_invalid":
            tags, tag = _tags(place.here), context["tag"]
            allowed = f"must be one of {', '.join(tags)}{did_you_mean(tag, tags)}"
            return SettingError(f"{key}.{_discriminator(place.here)}", tag, allowed)
        case "literal_error":
            name = next(part for part in reversed(place.path) if isinstance(part, str))  # or the list
            words = _words(keys_of(place.around)[name].annotation)
            hint = _in_quotes(value, words, ".".join((*prefix, key))) or did_you_mean(value, words)
            return SettingError(key, value, f"must be one of {', '.join(words)}{hint}")
        case "model_type" | "model_attributes_type":
            return SettingError(key, value, f"must be a table with the keys {', '.join(keys_of(place.here))}")
    return SettingError(key, value, _rule(details))


def _in_quotes(value: Any, words: Iterable[str], key: str) -> str:
    """How to state a word that TOML reads as a number or as true or false; nothing for other values."""
    word = str(value).lower()
    is_word = not isinstance(value, str) and word in words
    return f'; the word is written "{word}": --set \'{key}="{word}"\'' if is_word else ""


_RULES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number, got a number with a fractional part",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "too_short": "must have at least {min_length} item{s} after validation, not {actual_length}",
    "too_long": "must have at most {max_length} item{s} after validation, not {actual_length}",
    "string_too_short": "must have at least {min_length} character{s}",
    "string_too_long": "must have at most {max_length} character{s}",
}
"""What is allowed, by pydantic's type of an error, in the words of a scenario file."""


def _rule(details: ErrorDetails) -> str:
    """What is allowed instead; pydantic's own sentence where there is none of ours."""
    context = dict(details.get("ctx", {}))
    if details["type"] == "too_short" and (context["min_length"], context["actual_length"]) == (1, 0):
        return "must not be empty"
    count = context.get("min_length", context.get("max_length"))
    numbers = {
        name: int(number) if isinstance(number, float) and number.is_integer() else number
        for name, number in context.items()
    }
    rule = _RULES.get(details["type"])
    return details["msg"] if rule is None else rule.format(s="" if count == 1 else "s", **numbers)


def _wanted(place: _Place) -> str:
    """The values that a missing key may have, in the words of its class's JSON Schema."""
    key = str(place.path[-1])
    for model in place.around:
        schema = model.model_json_schema()
        if key in schema["properties"]:
            found, definitions = schema["properties"][key], schema.get("$defs", {})
            table = resolve(found, definitions) if "$ref" in found else {}
            if required := table.get("required"):
                others = ", among others" if len(required) < len(table["properties"]) else ""
                return f"a table with the key{'s' * (len(required) > 1)} {', '.join(required)}{others}"
            return allowed_values(found, definitions)
    raise AssertionError(f"{key} is required by none of {place.around}")

"""Error messages for a scenario: the problem, the allowed values, and the nearest valid key."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from actors.nearest import did_you_mean
from actors.settings.base import SettingError, Settings
from actors.settings.tables import tagged
from sim.errors import one_line
from sim.scenario.key_path import item_at
from sim.scenario.schema import allowed_values, resolve

Path = tuple[str | int, ...]
_KEY_SHOWN = 200  # characters
_DEVICE = "use the option --device of a command, or device= of coterie.run"
_OPTIONS = {f"{prefix}device": _DEVICE for prefix in ("", "engine.", "run.", "training.")}
"""Options of commands that a scenario cannot set, because they depend on the machine."""


def unique_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return pydantic's errors without duplicates; unknown sections first, as they cause further errors."""
    found = [
        details
        for details in error.errors(include_url=False)
        # Pydantic's count leaves out rejected items, which it also reports.
        if details["type"] != "too_short" or len(details["input"]) < details["ctx"]["min_length"]
    ]
    return sorted(found, key=lambda each: (each["type"], len(each["loc"])) != ("extra_forbidden", 1))


def errors_in_file(
    root: type[Settings], refused: Iterable[ErrorDetails], raw: Mapping[str, Any], prefix: Sequence[str] = ()
) -> Iterator[SettingError]:
    """Return the errors in `raw` with keys as in the file, below `prefix`."""
    found: dict[str, SettingError] = {}
    for details in refused:
        problem = _explain(details, _locate(root, details), prefix)
        if details["type"] != "missing":
            problem = with_key_as_in_file(raw, problem)
        key, rule = ".".join((*prefix, problem.key)), problem.problem
        if key in found and found[key].problem != rule:  # a key with a value of several types
            rule = f"{found[key].problem}; or: {rule}"
        found[key] = SettingError(key, problem.value, rule)
    yield from found.values()


def with_key_as_in_file(raw: Mapping[str, Any], problem: SettingError) -> SettingError:
    """Return the problem with key and value as in the file, including the user's unit."""
    path, written = _path_and_value(raw, tuple(problem.key.split(".")))
    # A value that is not in the file is a rejected default.
    return SettingError(".".join(path), problem.value if written is None else written, problem.problem)


def error_line(problem: SettingError, origin: str = "") -> str:
    """Return key, value, origin, and the problem with the allowed values."""
    value = "" if problem.value is None else f" = {show(problem.value)}"
    return one_line(f"{one_line(problem.key, _KEY_SHOWN)}{value}{origin}: {problem.problem}")


def show(value: Any) -> str:
    """Format a value as in a scenario file, shortened to one line."""
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


def fields_by_key(models: Sequence[type[Settings]]) -> dict[str, Any]:
    """Return the fields of these classes, which describe one table, by key as written in files."""
    return {field.alias or name: field for model in models for name, field in model.model_fields.items()}


def kind_descriptions(annotation: Any) -> dict[str, str]:
    """Return the kinds (or names) of a table that has several, each with the first line of its docstring."""
    return {tag: (model.__doc__ or "").partition("\n")[0] for tag, model in tagged(annotation).items()}


def _settings_in(annotation: Any) -> list[type[Settings]]:
    """Return the settings classes in an annotation: several if the table has several kinds."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _settings_in(argument)]


def _is_dict(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_is_dict, get_args(annotation)))


def _literal_values(annotation: Any) -> list[str]:
    """Return the words that a Literal (perhaps inside Optional or Annotated) allows."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for argument in get_args(annotation) for word in _literal_values(argument)]


def _kind_names(models: Sequence[type[Settings]]) -> list[str]:
    """Return the kinds (or names) that a table of one of these classes may state."""
    return [tag for model in models for tag in tagged(model)]


class _Location(NamedTuple):
    """Location of an error: path in the file, classes of the table around it and of the value's table."""

    path: Path
    around: Sequence[type[Settings]]
    table: Sequence[type[Settings]]


def _locate(root: type[Settings], details: ErrorDetails) -> _Location:
    """Convert pydantic's location to that in the file.

    pydantic's location also contains the selected kind after a table with several kinds, and the type after a
    value with several types; a file has no such keys.
    """
    location, is_unknown = details["loc"], details["type"] == "extra_forbidden"
    has_any_keys = False
    path: list[str | int] = []
    around: Sequence[type[Settings]] = []
    table: Sequence[type[Settings]] = [root]
    for part in location:
        if isinstance(part, str) and len(table) > 1:
            table = [model for model in table if part in _kind_names([model])]
            continue
        if isinstance(part, str) and not (part in fields_by_key(table) or is_unknown or has_any_keys):
            continue
        path.append(part)
        if isinstance(part, str):
            if not has_any_keys:
                around, field = table, fields_by_key(table).get(part)
                table = _settings_in(field.annotation) if field else []
            has_any_keys = not has_any_keys and field is not None and _is_dict(field.annotation)
    return _Location(tuple(path), around, table)


def _discriminator(models: Sequence[type[Settings]]) -> str:
    return "kind" if "kind" in models[0].model_fields else "name"


def _path_and_value(raw: Any, path: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """Return `path`, and the file's value at it (None if there is none).

    The path ends at a plain value that abbreviates a table: ``latency = "20 ms"`` has no key latency.value.
    """
    for depth, part in enumerate(path):
        if not isinstance(raw, Mapping | list):
            return path[:depth], raw
        if isinstance(raw, Mapping) and (dotted := ".".join(path[depth:])) in raw:  # a key in quotes
            return path, raw[dotted]
        raw = item_at(raw, part)
    return path, raw


def _explain(details: ErrorDetails, location: _Location, prefix: Sequence[str]) -> SettingError:
    key, value, context = ".".join(map(str, location.path)), details["input"], details.get("ctx", {})
    match details["type"]:
        case "value_error" if isinstance(inner := context["error"], SettingError):
            return SettingError(".".join(filter(None, (key, inner.key))), inner.value, inner.problem)
        case "value_error":
            return SettingError(key, value, str(context["error"]))
        case "extra_forbidden":
            # keys that are read before validation
            beside = [key for model in location.around for key in getattr(model, "beside", ())]
            names = [*fields_by_key(location.around), *beside]
            allowed = f"unknown key; allowed: {', '.join(names) or 'none'}"
            option = _OPTIONS.get(".".join((*prefix, key)))
            hint = f"; {option}" if option else did_you_mean(location.path[-1], names)
            return SettingError(key, value, allowed + hint)
        case "missing":
            if isinstance(location.path[-1], int):  # in a list of fixed length
                return SettingError(key, None, f"is missing; {key.rpartition('.')[0]} has too few values")
            return SettingError(key, None, f"is missing; write {_wanted_values(location)}")
        case "union_tag_not_found":
            allowed = f"is missing; must be one of {', '.join(_kind_names(location.table))}"
            return SettingError(f"{key}.{_discriminator(location.table)}", None, allowed)
        case "union_tag_invalid":
            tags, tag = _kind_names(location.table), context["tag"]
            allowed = f"must be one of {', '.join(tags)}{did_you_mean(tag, tags)}"
            return SettingError(f"{key}.{_discriminator(location.table)}", tag, allowed)
        case "literal_error":
            name = next(part for part in reversed(location.path) if isinstance(part, str))  # or the list
            words = _literal_values(fields_by_key(location.around)[name].annotation)
            hint = _quotes_hint(value, words, ".".join((*prefix, key))) or did_you_mean(value, words)
            return SettingError(key, value, f"must be one of {', '.join(words)}{hint}")
        case "model_type" | "model_attributes_type":
            known = fields_by_key(location.table)
            return SettingError(key, value, f"must be a table with the keys {', '.join(known)}")
    return SettingError(key, value, _rule(details))


def _quotes_hint(value: Any, words: Iterable[str], key: str) -> str:
    """Return a hint for a word that TOML reads as a number or as true or false, else an empty text."""
    word = str(value).lower()
    is_word = not isinstance(value, str) and word in words
    return f'; put the word in quotes, "{word}": --set \'{key}="{word}"\'' if is_word else ""


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
    "too_short": "must have at least {min_length} item{s}, not {actual_length}",
    "too_long": "must have at most {max_length} item{s}, not {actual_length}",
    "string_too_short": "must have at least {min_length} character{s}",
    "string_too_long": "must have at most {max_length} character{s}",
}
"""Rules by pydantic's type of an error, in the terms of a scenario file."""


def _rule(details: ErrorDetails) -> str:
    """Return the rule that a value violates, or else pydantic's message."""
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


def _wanted_values(location: _Location) -> str:
    """Return the values that a missing key may have, from its class's JSON Schema."""
    key = str(location.path[-1])
    for model in location.around:
        schema = model.model_json_schema()
        if key in schema["properties"]:
            found, definitions = schema["properties"][key], schema.get("$defs", {})
            table = resolve(found, definitions) if "$ref" in found else {}
            if required := table.get("required"):
                others = ", among others" if len(required) < len(table["properties"]) else ""
                return f"a table with the key{'s' * (len(required) > 1)} {', '.join(required)}{others}"
            return allowed_values(found, definitions)
    raise AssertionError(f"no model requires {key}: {location.around}")

"""Turns pydantic's errors into problems that say what to write instead, without repeating the value."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from balajoin.errors import Problem

_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "unknown setting",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be above {gt:g}",
    "less_than": "must be below {lt:g}",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "tuple_type": "must be a list",
    "literal_error": "must be {expected}",
}


def wrong(message: str, suggestion: str = "", at: str = "") -> PydanticCustomError:
    """An error for validators to raise. `at` names the wrong entry of a table."""
    return PydanticCustomError("wrong", "{message}", {"message": message, "suggestion": suggestion, "at": at})


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    found: list[Problem] = []
    for details in error.errors(include_url=False, include_input=False):
        context = details.get("ctx", {})
        found.extend(context["problems"] if "problems" in context else [_problem(details, model)])
    return found


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    path = [str(part) for part in details["loc"]]
    context = details.get("ctx", {})
    setting = ".".join([*path, context["at"]] if context.get("at") else path)
    if details["type"] == "wrong":
        return Problem(setting, context["message"], context["suggestion"] or _example(path, model))
    message = _MESSAGES.get(details["type"], "is not valid").format(**context)
    unknown = details["type"] == "extra_forbidden"
    return Problem(setting, message, _known_name(path, model) if unknown else _example(path, model))


def fields_by_setting(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by the names that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _known_name(path: list[str], model: type[BaseModel]) -> str:
    *tables, name = path
    inner = model
    for table in tables:
        inner = section_of(fields_by_setting(inner)[table]) or inner
    near = get_close_matches(name.lower(), fields_by_setting(inner), n=1)
    if near:
        return f"did you mean {near[0]}?"
    homes = [
        section
        for section, field in fields_by_setting(model).items()
        if (kind := section_of(field)) and name.lower() in fields_by_setting(kind)
    ]
    return (
        f"move it to {_join_brackets(homes)}" if homes else f"known settings are {', '.join(fields_by_setting(inner))}"
    )


def _join_brackets(sections: Iterable[str]) -> str:
    return " or ".join(f"[{section}]" for section in sections)


def _example(path: list[str], model: type[BaseModel]) -> str:
    names = fields_by_setting(model)
    for position, name in enumerate(path):
        field = names.get(name)
        if field is None:
            break
        section = section_of(field)
        if section is not None and position + 1 < len(path):
            names = fields_by_setting(section)
        elif section is not None:
            required = [inner for inner, kind in fields_by_setting(section).items() if kind.is_required()]
            return f"add [{name}] with {', '.join(required)}" if required else f"write [{name}]"
        elif field.examples:
            return f"for example {name} = {toml(field.examples[0])}"
    return ""


def toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{name}" = {toml(inner)}' for name, inner in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)

"""Writes docs/settings.md from the models: `python -m balajoin.config.reference > docs/settings.md`."""

from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from balajoin.config import durations
from balajoin.config.models import LEFT_OUT, Config
from balajoin.config.problems import fields_by_setting, section_of, toml

_INTRODUCTION = """\
# Settings
For anyone who writes a join's TOML file, or gives the same settings from Python. `python -m balajoin.config.reference`
writes this page from the models in `streaming/balajoin/config/models.py`.

Any text may hold `${VARIABLE}`, which stands for a variable of the environment, or `${file:/path}`, which stands for
the content of a file. Logs, errors and Spark's pages show no setting that looks like a secret. A duration is a
text with a unit: `"500 ms"`, `"10 s"`, `"5 min"`, `"2 h"` or `"1 day"`.

In Python, `Kafka`, `Stream`, `JoinSettings`, `Skew` and `Output` take the same names. A library's join has no output
topic, so it names its side topics after both inputs: `<probe.topic>-<build.topic>.late`, and so on.
"""
_TITLES = {"": "Top of the file", "probe": "`[probe]` and `[build]`"}
_SAME_AS_PROBE = "build"


def markdown() -> str:
    return "\n".join([_INTRODUCTION, *_section(Config)])


def _section(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """A table of the section's settings, then the sections inside it."""
    yield f"## {_TITLES.get(path, f'`[{path}]`')}"
    yield f"{' '.join((model.__doc__ or '').split())}\n"
    yield "| setting | meaning | if left out |\n|---|---|---|"
    inner = []
    for name, field in fields_by_setting(model).items():
        section = section_of(field)
        if section is None:
            yield f"| `{name}` | {field.description} | {_if_left_out(field)} |"
        elif name != _SAME_AS_PROBE:
            inner.append((section, f"{path}.{name}" if path else name))
    for section, inside in inner:
        yield ""
        yield from _section(section, inside)
    if not path:
        yield ""


def _if_left_out(field: FieldInfo) -> str:
    explained = field.json_schema_extra
    if isinstance(explained, dict):
        return str(explained[LEFT_OUT])
    if field.is_required():
        return "required"
    if field.default in (None, {}, ()):
        return "none"
    if field.annotation is int and isinstance((field.examples or [0])[0], str):  # a duration
        return f"`{durations.format_ms(field.default)}`"
    return f"`{field.default}`" if isinstance(field.default, str) else f"`{toml(field.default)}`"


if __name__ == "__main__":
    print(markdown(), end="")

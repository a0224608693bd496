"""`load` reads the settings from a TOML file, which may refer to the environment and to other files.

`load` reports all problems at once, each with its line.
"""

import errno
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from balajoin.config.models import EXPRESSIONS, Config, topic_clashes, with_side_topics
from balajoin.config.redaction import is_secret, is_secret_variable
from balajoin.config.toml_lines import line_of, locate
from balajoin.errors import ConfigError, Problem

_REFERENCE = re.compile(r"\$(?P<escape>\$)?\{(?:(?P<body>[^}]*)\})?")
_SHOWING_PLANS = ("spark.ui.enabled", "spark.eventLog.enabled")
_LARGEST_FILE_BYTES = 1 << 20
_DEEPEST = 32
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """In any text `${NAME}` stands for a variable of `environ`, and `${file:/path}` for the content of a file."""
    text = _read(path)
    references = _References(environ)
    settings = with_side_topics(references.resolve(tomllib.loads(text)))
    try:
        config = Config(**settings)
    except ConfigError as error:
        problems = _first_of_each([*references.problems, *error.problems, *topic_clashes(settings)])
    else:
        problems = [*references.problems, *_exposed(config, references.with_secrets)]
    if problems:
        raise ConfigError(sorted(with_lines(problems, locate(text)), key=lambda problem: problem.line or 0))
    config._substituted_secrets = tuple(references.secrets)
    config.probe._substituted = references.substituted_in("probe")
    config.build._substituted = references.substituted_in("build")
    return config


def _exposed(config: Config, with_secrets: Iterable[str]) -> list[Problem]:
    """Finds secrets that Spark would show: its web pages and its event log print all expressions of a plan."""
    shown_by = next((name for name in _SHOWING_PLANS if config.spark.get(name) == "true"), None)
    if shown_by is None:
        return []
    message = f"{shown_by} would show the secret in this expression"
    return [Problem(setting, message, f"set {shown_by} = false") for setting in with_secrets if setting in EXPRESSIONS]


def with_lines(problems: Iterable[Problem], lines: Mapping[str, int]) -> list[Problem]:
    return [problem if problem.line else replace(problem, line=line_of(lines, problem.setting)) for problem in problems]


def lines_in(path: Path) -> dict[str, int]:
    return locate(_read(path))


def _read(path: Path) -> str:
    """The file's text, after checking that it is TOML."""
    try:
        text = _bounded(path)
        tomllib.loads(text)
    except OSError as error:
        raise ConfigError([Problem(str(path), f"cannot be read: {error.strerror}", "name it with -c FILE")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(str(path), "is not UTF-8 text", "save it as UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        at_line = re.match(r"line (\d+)", place)
        line = int(at_line[1]) if at_line else text.rstrip().count("\n") + 1
        hint = "texts need quotes, and a table may hold a key only once"
        raise ConfigError([Problem(str(path), f"not valid TOML: {reason}", hint, line)]) from None
    except (ValueError, RecursionError):  # numbers with thousands of digits, brackets nested a thousand deep
        raise ConfigError(
            [Problem(str(path), "not valid TOML", "a number is too long, or brackets are nested too deeply")]
        ) from None
    return text


def _bounded(path: Path) -> str:
    """A file's text. Refuses a file far larger than any of these: it may be a device that never ends."""
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE_BYTES + 1)
    if len(content) > _LARGEST_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {_LARGEST_FILE_BYTES >> 20} MiB")
    return content.decode()


def _first_of_each(problems: Iterable[Problem]) -> list[Problem]:
    """Keeps the first problem of each setting."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.setting, problem)
    return list(first.values())


class _References:
    """Replaces `${…}` in a tree of settings, and remembers the secrets, which must never be shown."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[Problem] = []
        self.secrets: list[str] = []
        self.with_secrets: list[str] = []
        self._substituted: set[str] = set()

    def resolve(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {name: self._value(value, name) for name, value in settings.items()}

    def substituted_in(self, section: str) -> frozenset[str]:
        """The names of a section's settings that hold a reference."""
        split = (setting.split(".", 1) for setting in self._substituted)
        return frozenset(name for first, *rest in split if first == section for name in rest)

    def _value(self, value: Any, setting: str, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            self._fail(setting, "nested too deeply", f"at most {_DEEPEST} tables within tables are allowed")
            return None
        if isinstance(value, dict):
            return {name: self._value(inner, f"{setting}.{name}", depth + 1) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._value(inner, setting, depth + 1) for inner in value]
        if isinstance(value, str):
            return _REFERENCE.sub(lambda reference: self._text(reference, setting), value)
        return value

    def _text(self, reference: re.Match[str], setting: str) -> str:
        if reference["escape"]:
            return reference[0].removeprefix("$")
        self._substituted.add(setting)
        body = reference["body"] or ""
        if body.startswith("file:"):
            text = self._file(body.removeprefix("file:"), setting)
            secret = True
        else:
            text = self._variable(body, setting)
            secret = is_secret_variable(body) or is_secret(setting)
        if text and secret:
            self.secrets.append(text)
            self.with_secrets.append(setting)
        return text

    def _variable(self, name: str, setting: str) -> str:
        if not _VARIABLE.fullmatch(name):  # the message does not repeat the name: it may be part of a pasted password
            self._fail(setting, "${…} holds no variable name", "write ${NAME}, ${file:/path}, or $${ for a plain ${")
        elif name not in self._environ:
            self._fail(setting, f"the environment variable {name} is not set", f"export {name}=…")
        return self._environ.get(name, "")

    def _file(self, name: str, setting: str) -> str:
        try:
            return _bounded(Path(name)).strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path, or not UTF-8 text"
            self._fail(setting, f"the file {name} cannot be read: {reason}", "check the path and its rights")
            return ""

    def _fail(self, setting: str, message: str, suggestion: str) -> None:
        self.problems.append(Problem(setting, message, suggestion))

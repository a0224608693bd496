"""Every error balajoin raises on purpose. Each message says what to do, and never holds a secret.

BalaJoinError
├── ConfigError        a setting is missing, wrong or does not analyse; `problems` lists all of them
├── SetupError         this machine lacks something: Java, the jars, the network to fetch them
├── KafkaError         the broker cannot be reached, or refuses
├── StateError         a checkpoint does not fit this join, or cannot be read
└── BlockError         bytes that should be a block of rows are not
"""

from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST_NAME = 200


class BalaJoinError(Exception):
    """Root of all errors of this package."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration: the dotted setting, what is wrong, what to do, and the line in the file."""

    setting: str
    message: str
    suggestion: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{place}{_shortened(self.setting)}: {self.message}{hint}"


def _shortened(name: str) -> str:
    """A name in a file may be of any length."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


class ConfigError(BalaJoinError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class SetupError(BalaJoinError):
    pass


class KafkaError(BalaJoinError):
    pass


class StateError(BalaJoinError):
    pass


class BlockError(BalaJoinError):
    pass

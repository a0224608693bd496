"""Tells which settings are secrets, and removes them from text before anyone reads it."""

import logging
import re
from collections.abc import Iterable, Mapping

from balajoin.core.pins import HIDDEN

# Spark gets it too (spark.redaction.regex), so it uses only syntax that Java and Python share.
SECRET_NAMES = (
    r"(?i)secret|passw(or)?d|token|credential|jaas|private|access[._-]?key"
    r"|ssl\.key|keystore\.key|key\.pem|redaction"  # these options hold the secrets to be redacted
)
_SECRET_NAME = re.compile(SECRET_NAMES)
_SECRET_VARIABLE = re.compile(r"(?i)secret|passw|pwd|token|credential|jaas|private|(api|access|ssl|sasl)_?key")
# Redacting a shorter text would hide ordinary words of a message, and protect nothing.
_SHORTEST_SECRET = 4


def is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def is_secret_variable(name: str) -> bool:
    """Environment variables are named more freely than options, so this pattern is wider."""
    return _SECRET_VARIABLE.search(name) is not None


def redact(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}


class Redactor:
    """Removes known secret values from texts of other programs: Spark's exceptions, librdkafka's errors."""

    def __init__(self, secrets: Iterable[str]) -> None:
        written = [form for secret in secrets for form in (secret, _as_quoted(secret), *secret.splitlines())]
        texts = {text for text in written if len(text) >= _SHORTEST_SECRET}
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @property
    def pattern(self) -> str:
        """A regular expression, for Python and Java, that finds every secret; empty if there are none."""
        return self._pattern.pattern if self._pattern else ""

    def __call__(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text) if self._pattern else text


def _as_quoted(text: str) -> str:
    """The text as a JAAS line or JSON writes it between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


class RedactingFormatter(logging.Formatter):
    """Cleans the finished log line, so that its arguments and its traceback are cleaned too."""

    def __init__(self, line: str, redactor: Redactor) -> None:
        super().__init__(line)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor(super().format(record))

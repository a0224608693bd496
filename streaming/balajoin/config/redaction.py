"""Which settings are secrets, and how text is cleaned of them before anyone reads it."""

import logging
import re
from collections.abc import Iterable, Mapping

from balajoin.core.pins import HIDDEN

# Also handed to Spark (spark.redaction.regex), so it keeps to what Java and Python regular expressions share.
SECRET_NAMES = (
    r"(?i)secret|passw(or)?d|token|credential|jaas|private|access[._-]?key"
    r"|ssl\.key|keystore\.key|key\.pem|redaction"  # what is to be redacted is written there
)
_SECRET_NAME = re.compile(SECRET_NAMES)
_SECRET_VARIABLE = re.compile(r"(?i)secret|passw|pwd|token|credential|jaas|private|(api|access|ssl|sasl)_?key")
# A shorter text would blot out ordinary words of a message, and protects nothing.
_SHORTEST_SECRET = 4


def is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def is_secret_variable(name: str) -> bool:
    """Environment variables are named more freely than options, so the net is wider."""
    return _SECRET_VARIABLE.search(name) is not None


def redact(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}


class Redactor:
    """Takes known secret values out of texts that other programs wrote: Spark's exceptions, librdkafka's errors."""

    def __init__(self, secrets: Iterable[str]) -> None:
        written = [form for secret in secrets for form in (secret, _as_quoted(secret), *secret.splitlines())]
        texts = {text for text in written if len(text) >= _SHORTEST_SECRET}
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @property
    def pattern(self) -> str:
        """What finds each of them, in Java too; empty if there are none."""
        return self._pattern.pattern if self._pattern else ""

    def __call__(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text) if self._pattern else text


def _as_quoted(text: str) -> str:
    """How a JAAS line or a JSON text writes it."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


class RedactingFormatter(logging.Formatter):
    """Cleans the finished line, so neither arguments nor a traceback slip through."""

    def __init__(self, line: str, redactor: Redactor) -> None:
        super().__init__(line)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor(super().format(record))

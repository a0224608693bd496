"""Passes the standard error of Spark's JVM to Python's logging, line by line.

Logging formats and redirects these lines and removes secrets from them, as from all others.
"""

import logging
import os
import threading
from collections import deque
from types import TracebackType
from typing import Self

_logger = logging.getLogger("balajoin.spark")
_NOISE = (
    "WARNING: Using incubator modules",  # from Java, about an option that Spark always sets
    "Starting Streaming TransformWithState",  # from Spark's Python worker on the driver, at every start
    "Streaming TransformWithState",
)


class JvmOutput:
    """Within its `with` block, hand `file_number` to the process as its standard error."""

    def __init__(self) -> None:
        self._last_lines: deque[str] = deque(maxlen=20)

    def __enter__(self) -> Self:
        reading, self.file_number = os.pipe()
        self._thread = threading.Thread(target=self._relay, args=(reading,), name="jvm-output", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.close(self.file_number)
        if error is not None:
            self._thread.join(timeout=1)

    def explanation(self) -> str:
        """The first meaningful line that a JVM printed before it failed to start."""
        return next((line for line in self._last_lines if not line.startswith(_NOISE)), "it said nothing")

    def _relay(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in map(str.rstrip, lines):
                if line:
                    self._last_lines.append(line)
                    _logger.log(logging.DEBUG if line.startswith(_NOISE) else logging.WARNING, "%s", line)

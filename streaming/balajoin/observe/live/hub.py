"""Keeps the last moments of every join of this process. Any number of readers read them, each at its own pace."""

import threading
from collections import deque
from dataclasses import dataclass, field

from balajoin.observe.live.moment import Moment

KEPT_BATCHES = 600
_KEPT_BYTES = 4 << 20  # for each join: with a thousand nodes a line has 10 kB and more


@dataclass
class _Past:
    """What is kept of one join: numbered lines, oldest first."""

    lines: deque[tuple[int, str]] = field(default_factory=deque)
    size: int = 0

    def add(self, number: int, line: str) -> None:
        self.lines.append((number, line))
        self.size += len(line)
        while len(self.lines) > 1 and (len(self.lines) > KEPT_BATCHES or self.size > _KEPT_BYTES):
            self.size -= len(self.lines.popleft()[1])


class Hub:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._past: dict[str, _Past] = {}
        self._last = 0
        self._is_closed = False

    def add(self, moment: Moment) -> None:
        line = moment.model_dump_json()
        with self._changed:
            self._last += 1
            self._past.setdefault(moment.join, _Past()).add(self._last, line)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the wait of every reader."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def past(self) -> tuple[int, list[str]]:
        """Returns the number of the last line, and all lines that are kept, in order."""
        with self._changed:
            return self._last, self._after(0)

    def wait(self, last: int, wait_s: float) -> tuple[int, list[str]] | None:
        """Waits up to `wait_s` for lines after `last`. Returns the last number and the lines; None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._last > last, wait_s)
            lines = self._after(last)
            return None if self._is_closed and not lines else (self._last, lines)

    def _after(self, number: int) -> list[str]:
        found = [line for past in self._past.values() for line in past.lines if line[0] > number]
        return [line for _, line in sorted(found)]

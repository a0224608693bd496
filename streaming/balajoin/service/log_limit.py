"""Keeps a warning that comes again and again from filling the log."""

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_EVERY_S = 60.0
_KINDS = 256


@dataclass
class _Kind:
    said_s: float
    kept_back: int = 0


class LogLimit(logging.Filter):
    """Passes one a minute of warnings that differ only in their numbers, and says how many were left out."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text, now_s = record.getMessage(), self._clock_s()
        key = record.name, re.sub(r"\d+", "#", text)
        kind = self._kinds.setdefault(key, _Kind(float("-inf")))
        self._kinds.move_to_end(key)
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        if now_s - kind.said_s < _EVERY_S:
            kind.kept_back += 1
            return False
        if kind.kept_back:
            record.msg, record.args = "%s (and %d more like it since the last one)", (text, kind.kept_back)
        kind.said_s, kind.kept_back = now_s, 0
        return True

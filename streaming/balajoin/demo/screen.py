"""What the demo prints: the live view on a terminal, elsewhere a few lines every few seconds."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from balajoin.observe.live.picture import Join, line, picture

_LINES_EVERY_S = 3.0
_REFRESHES_PER_S = 8


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._printed_s = float("-inf")

    def say(self, text: str) -> None:
        """Prints a text, which may have rich's markup."""
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Shows what the demo does within the block."""
        if self._console.is_terminal:
            with self._console.status(doing, refresh_per_second=_REFRESHES_PER_S), _logs_above():
                yield
        else:
            self.say(doing)
            yield

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within the block, `show` may be called."""
        if self._console.is_terminal:
            with Live(console=self._console, refresh_per_second=_REFRESHES_PER_S) as self._live, _logs_above():
                yield
        else:
            yield

    def show(self, state: str, joins: Sequence[Join]) -> None:
        """Shows how far the demo is, and its joins."""
        if self._live is not None:
            width, height = self._console.size
            drawn = picture(joins, width, height - 2) if joins else ""
            self._live.update(Group(Text(state, style="bold"), drawn))
        elif time.monotonic() - self._printed_s >= _LINES_EVERY_S:
            self._printed_s = time.monotonic()
            self.say("\n  ".join([state, *map(line, joins)]))


@contextmanager
def _logs_above() -> Iterator[None]:
    """While something moves on the terminal, rich replaces stderr by one that writes above it.

    Log handlers still hold the old stderr, so they get the new one for the time being.
    """
    handlers = [each for each in logging.getLogger("balajoin").handlers if isinstance(each, logging.StreamHandler)]
    streams = [each.setStream(sys.stderr) for each in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, streams, strict=True):
            if stream is not None:
                handler.setStream(stream)

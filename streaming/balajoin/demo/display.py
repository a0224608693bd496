"""What the demo shows: a picture that moves on a terminal, a line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live

from balajoin.demo.figures import shares
from balajoin.demo.panel import panel
from balajoin.demo.picture import JoinPicture, Picture
from balajoin.observe.report import balance_factor

_LINE_EVERY_S = 3.0


class Display(Protocol):
    def say(self, text: str) -> None:
        """Texts may have rich's markup."""

    def busy(self, doing: str) -> AbstractContextManager[None]:
        """Shows that something goes on within."""

    def moving(self) -> AbstractContextManager[None]:
        """Within, `show` may be called."""

    def show(self, picture: Picture) -> None: ...


def display_for(console: Console) -> Display:
    return _Moving(console) if console.is_terminal else _Lines(console)


class _Moving:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        with self._console.status(doing, refresh_per_second=8), _logs_above():
            yield

    @contextmanager
    def moving(self) -> Iterator[None]:
        with Live(console=self._console, refresh_per_second=8) as self._live, _logs_above():
            yield

    def show(self, picture: Picture) -> None:
        assert self._live is not None
        self._live.update(panel(picture, self._console.size))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_s = float("-inf")

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        self.say(doing)
        yield

    @contextmanager
    def moving(self) -> Iterator[None]:
        yield

    def show(self, picture: Picture) -> None:
        if time.monotonic() - self._last_s >= _LINE_EVERY_S:
            self._last_s = time.monotonic()
            self.say(lines(picture))


@contextmanager
def _logs_above() -> Iterator[None]:
    """While a picture moves, rich has a stderr that writes above it; log handlers still hold the one of before."""
    handlers = [each for each in logging.getLogger("balajoin").handlers if isinstance(each, logging.StreamHandler)]
    streams = [each.setStream(sys.stderr) for each in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, streams, strict=True):
            if stream is not None:
                handler.setStream(stream)


def lines(picture: Picture) -> str:
    head = f"{picture.elapsed_s:3.0f} s: {picture.phase}, {picture.sent:,} rows sent"
    return "\n".join([head, *[f"       {join.policy:<9}  {_line(join)}" for join in picture.joins]])


def _line(join: JoinPicture) -> str:
    figures = join.figures
    parts = [
        f"{join.rows_in:,} rows in ({join.rows_in_per_s:,.0f}/s)",
        f"{join.pairs_out:,} pairs out ({join.pairs_out_per_s:,.0f}/s)",
        f"batch {join.batch_ms / 1000:.1f} s",
        f"nodes {' '.join(f'{share:.0%}' for share in shares(figures.node_rows))}",
    ]
    if figures.signals:
        parts += [f"B of skewed rows {balance_factor(figures.skewed_rows) or 0:.2f}", f"{figures.signals:,} signals"]
        parts += [f"{figures.pulls:,} pulls"]
    return ", ".join(parts)

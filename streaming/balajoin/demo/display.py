"""What the demo shows: a picture that moves on a terminal, a line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR_WIDTH = 36
_PANEL_WIDTH = 72
_LINE_EVERY_S = 3.0
_HOT = 1.5  # times the fair share


@dataclass(frozen=True)
class Picture:
    """The demo at one moment."""

    ended: bool
    """Whether all is sent."""

    elapsed_s: float
    seconds: int
    sent: int
    rows_in: int
    rows_in_per_s: float
    pairs_out: int
    pairs_out_per_s: float
    batches: int
    batch_ms: int
    node_rows: tuple[int, ...]


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
        self._live.update(panel(picture))


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
            self.say(line(picture))


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


def line(picture: Picture) -> str:
    nodes = " ".join(f"{share:.0%}" for share in shares(picture.node_rows))
    return (
        f"{picture.elapsed_s:3.0f} s: {_phase(picture)}, {picture.rows_in:,} rows in ({picture.rows_in_per_s:,.0f}/s), "
        f"{picture.pairs_out:,} pairs out ({picture.pairs_out_per_s:,.0f}/s), batch {picture.batch_ms / 1000:.1f} s, "
        f"nodes {nodes}"
    )


def _phase(picture: Picture) -> str:
    if not picture.ended:
        return "joining"
    return "draining" if picture.rows_in < picture.sent else "done"


def panel(picture: Picture) -> RenderableType:
    body = Group(
        _time_bar(picture),
        "",
        _numbers(picture),
        "",
        _bars(picture.node_rows),
        "",
        Text(hottest(picture.node_rows), style="dim"),
    )
    return Panel(Padding(body, (1, 2)), title="balajoin demo", width=_PANEL_WIDTH, border_style="dim")


def _time_bar(picture: Picture) -> Table:
    done_s = min(picture.elapsed_s, picture.seconds)
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"{_phase(picture):<10}", style="bold"),
        ProgressBar(total=picture.seconds, completed=done_s, width=_BAR_WIDTH, complete_style="green"),
        f"{done_s:.0f} of {picture.seconds} s",
    )
    return row


def _numbers(picture: Picture) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=10)
    for width in (12, 12):
        table.add_column(justify="right", width=width)
    table.add_column(style="dim")
    took = f"last took {picture.batch_ms / 1000:.1f} s" if picture.batches else ""
    table.add_row("", "[dim]per second[/]", "[dim]total[/]", "")
    table.add_row(
        "rows in",
        f"{picture.rows_in_per_s:,.0f}",
        f"{picture.rows_in:,}",
        f"{picture.sent - picture.rows_in:,} waiting",
    )
    table.add_row("pairs out", f"{picture.pairs_out_per_s:,.0f}", f"{picture.pairs_out:,}", "")
    table.add_row("batches", "", f"{picture.batches:,}", took)
    return table


def _bars(node_rows: Sequence[int]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=10)
    table.add_column(width=_BAR_WIDTH)
    table.add_column(justify="right", width=4)
    table.add_column(justify="right", width=9)
    largest = max(node_rows, default=0)
    for node, (rows, share) in enumerate(zip(node_rows, shares(node_rows), strict=True)):
        hot = share * len(node_rows) > _HOT
        row_bar = Text(bar(rows / largest if largest else 0.0, _BAR_WIDTH), style="red" if hot else "cyan")
        table.add_row(f"node {node}", row_bar, f"{share:.0%}", f"{rows:,}")
    return table


def bar(part: float, width: int) -> str:
    """A bar that is full at 1, in eighths of a character."""
    full, eighths = divmod(round(min(max(part, 0.0), 1.0) * width * 8), 8)
    return ("█" * full + _EIGHTHS[eighths]).rstrip() if eighths else "█" * full


def shares(node_rows: Sequence[int]) -> list[float]:
    total = sum(node_rows)
    return [rows / total if total else 0.0 for rows in node_rows]


def hottest(node_rows: Sequence[int]) -> str:
    if not any(node_rows):
        return "no rows yet"
    largest = max(shares(node_rows))
    node = shares(node_rows).index(largest)
    return f"hottest is node {node} with {largest:.0%} of all rows, {largest * len(node_rows):.1f}× its fair share"

"""`balajoin top`: what the page shows, in a terminal."""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from balajoin.observe.live import window
from balajoin.observe.live.drawing import OVERLOADED, bar, size, spark_line
from balajoin.observe.live.hub import KEPT_BATCHES
from balajoin.observe.live.moment import Moment, SkewedKey

_NARROWEST, _WIDEST = 76, 100
_IDLE_AFTER_S = 15.0
_LABEL = 16
_FIGURES = 16
_HOT_KEYS = 8
_NODES_OF_BARS = 16
_NODES_OF_MATRIX = 32


def show(console: Console, news: Iterable[Sequence[Moment]]) -> None:
    """Until `news` end; elsewhere than on a terminal only the first picture."""
    joins: defaultdict[str, deque[Moment]] = defaultdict(lambda: deque(maxlen=KEPT_BATCHES))
    heard_s: dict[str, float] = {}
    with Live(console=console, screen=console.is_terminal, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for moments in news:
            for moment in moments:
                joins[moment.join].append(moment)
                heard_s[moment.join] = time.monotonic()
            shown = [Join(list(past), time.monotonic() - heard_s[join]) for join, past in joins.items()]
            live.update(picture(shown, console.width), refresh=console.is_terminal)
            if not console.is_terminal and joins:
                break


@dataclass(frozen=True)
class Join:
    moments: Sequence[Moment]
    silent_s: float
    """Since the last of them came."""


def picture(joins: Sequence[Join], width: int) -> RenderableType:
    if not joins:
        return Text("connected; no batch has ended yet")
    columns = max(min(width // _NARROWEST, len(joins)), 1)
    panels = [_panel(join, min(width // columns, _WIDEST)) for join in joins]
    table = Table.grid()
    for at in range(0, len(panels), columns):
        table.add_row(*panels[at : at + columns])
    return table


def _panel(join: Join, width: int) -> Panel:
    moments = join.moments
    last, recent = moments[-1], window.last_minute(moments)
    is_idle = join.silent_s > _IDLE_AFTER_S
    rows_in, rows_out = (0.0, 0.0) if is_idle else window.speeds(moments)
    age = f", {join.silent_s:.0f} s ago" if is_idle else ""
    inner = width - 6
    head = _grid()
    head.add_row("rows in", f"{rows_in:,.0f}/s")
    head.add_row("rows out", f"{rows_out:,.0f}/s")
    head.add_row("last batch", f"{last.batch:,}, took {last.duration_ms / 1000:.1f} s{age}")
    head.add_row("rows", f"{last.waiting_rows:,} waiting, {last.stored_rows:,} stored")
    late, dead = sum(each.late_rows for each in recent), sum(each.dead_letters for each in recent)
    head.add_row("set aside", f"{late:,} late, {dead:,} dead letters")
    head.add_row("B, skewed rows", _balance(moments, inner - _LABEL))
    head.add_row("B, all rows", _factor(last.b_all))
    head.add_row("traffic", ", ".join(f"{kind} {size(sent)}" for kind, sent in window.traffic(recent).items()))
    sections: list[RenderableType] = [head, "", _bars(window.node_rows(recent), inner)]
    if last.hot_keys:
        sections += ["", _matrix(last.hot_keys, len(last.node_rows))]
    title = Text(f"{last.join}: {last.policy}, {len(last.node_rows)} nodes, last minute")
    return Panel(Padding(Group(*sections), (0, 1)), title=title, width=width, border_style="dim")


def _balance(moments: Sequence[Moment], room: int) -> Text:
    last = moments[-1]
    text = Text(f"{_factor(last.b_skewed)} (ε {last.epsilon:g}) ")
    if last.b_skewed is not None and last.b_skewed > last.epsilon:
        text = Text.assemble((f"{_factor(last.b_skewed)} above ε {last.epsilon:g} ", "red"))
    known = [each.b_skewed for each in moments if each.b_skewed is not None]
    return text + Text(spark_line(known[-max(room - len(text), 0) :]), style="cyan")


def _bars(rows: Sequence[int], width: int) -> Table:
    """All nodes, or where they are many, the fullest and the emptiest."""
    order = list(range(len(rows)))
    if len(rows) > _NODES_OF_BARS:
        by_load = sorted(order, key=lambda node: -rows[node])
        order = by_load[: _NODES_OF_BARS // 2] + by_load[-_NODES_OF_BARS // 2 :]
    table, most, total = _grid(), max(max(rows), 1), max(sum(rows), 1)
    room = width - _LABEL - _FIGURES - 2
    for node in order:
        times = rows[node] * len(rows) / total
        drawn = Text(f"{bar(rows[node] / most, room):<{room}}", style="red" if times > OVERLOADED else "cyan")
        table.add_row(f"node {node}", drawn + Text(f" {rows[node]:>9,} {rows[node] / total:>4.0%}"))
    return table


def _matrix(keys: Sequence[SkewedKey], nodes: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=32, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right")
    table.add_column()
    for key in keys[:_HOT_KEYS]:
        if nodes > _NODES_OF_MATRIX:
            drawn = f"{len(key.nodes)} nodes, home {key.nodes[0]}"
        else:
            drawn = "".join("■" if node == key.nodes[0] else "□" if node in key.nodes else "·" for node in range(nodes))
        table.add_row(Text(key.key), f"{key.share:.0%}", Text(drawn, style="cyan"))
    more = f" ({_HOT_KEYS} of {len(keys)})" if len(keys) > _HOT_KEYS else ""
    return Group(
        Text(f"skewed keys, share, nodes 0 to {nodes - 1} (■ home, □ others of U(x)){more}", style="dim"), table
    )


def _factor(b: float | None) -> str:
    return "–" if b is None else f"{b:.2f}"


def _grid() -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL - 1)
    table.add_column()
    return table

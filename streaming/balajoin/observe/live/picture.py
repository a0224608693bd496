"""Draws joins as text, next to each other, for `balajoin top` and the demo."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from balajoin.observe.live import window
from balajoin.observe.live.moment import Moment, SkewedKey

_LABEL, _GAP = 16, 2
_NARROWEST, _WIDEST = 28, 84  # column of a join
_IDLE_AFTER_S = 15.0
_FEWEST_KEYS, _MOST_KEYS = 3, 8
_MOST_BARS = 16
_LONGEST_KEY = 32
_EIGHTHS_ACROSS = " ▏▎▍▌▋▊▉█"
_EIGHTHS_UP = "▁▂▃▄▅▆▇█"
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Join:
    moments: Sequence[Moment]
    """Oldest first, at least one."""

    silent_s: float
    """Seconds since the last moment came."""

    @property
    def last(self) -> Moment:
        return self.moments[-1]


def picture(joins: Sequence[Join], width: int, height: int = 60) -> RenderableType:
    """Draws one column for each join. Where `width` is too small for all, they go into several rows of columns."""
    if not joins:
        return Text("connected; no batch has ended yet")
    columns = max(min((width - _LABEL) // (_NARROWEST + _GAP), len(joins)), 1)
    column = min((width - _LABEL) // columns - _GAP, _WIDEST)
    groups = [joins[at : at + columns] for at in range(0, len(joins), columns)]
    return Group(*[_side_by_side(group, column, height // len(groups)) for group in groups])


def line(join: Join) -> str:
    """Returns the most important figures in one line, for an output that is no terminal."""
    figures, rows = _figures(join), window.node_rows(window.last_minute(join.moments))
    told = [
        f"{figures['rows in']} in, {figures['rows out']} out, {join.last.waiting_rows:,} waiting",
        f"batch {figures['last batch']}",
        f"rows by node {' '.join(f'{share:.0%}' for share in shares(rows))}",
        f"B of all rows {figures['B, all rows']}",
    ]
    if join.last.b_skewed is not None:
        told += [f"B of what is balanced {figures['B, balanced']}", f"signals, pulls {figures['signals, pulls']}"]
    return f"{join.last.policy}: {'; '.join(told)}"


def _side_by_side(joins: Sequence[Join], column: int, height: int) -> RenderableType:
    head = _grid(column, len(joins))
    head.add_row(Text("last minute", style="dim"), *[_title(join.last, column) for join in joins])
    cells = [_cells(join, column) for join in joins]
    for label in cells[0]:
        head.add_row(label, *[each[label] for each in cells])
    bars = _bars(joins, column)
    sections: list[RenderableType] = [head, Text("rows by node", style="dim"), bars]
    if any(join.last.hot_keys for join in joins):
        used = 2 + len(cells[0]) + 1 + bars.row_count + 1
        sections += _keys(joins, column, min(max(height - used, _FEWEST_KEYS), _MOST_KEYS))
    return Group(*sections)


def _title(last: Moment, column: int) -> Text:
    """Takes two lines where one is too short."""
    name, how = f"{last.join}:", f"{last.policy}, {len(last.node_rows)} nodes"
    return Text(f"{name} {how}" if len(name) + len(how) < column else f"{name}\n{how}", style="bold")


def _figures(join: Join) -> dict[str, str]:
    last, recent = join.last, window.last_minute(join.moments)
    is_idle = join.silent_s > _IDLE_AFTER_S
    rows_in, rows_out = (0.0, 0.0) if is_idle else window.speeds(join.moments)
    late, dead = sum(each.late_rows for each in recent), sum(each.dead_letters for each in recent)
    signals, pulls = sum(each.signals for each in recent), sum(each.pulls for each in recent)
    return {
        "rows in": f"{rows_in:,.0f}/s",
        "rows out": f"{rows_out:,.0f}/s",
        "last batch": f"{last.batch:,}, took {last.duration_ms / 1000:.1f} s"
        + (f", {join.silent_s:.0f} s ago" if is_idle else ""),
        "rows": f"{last.waiting_rows:,} waiting, {last.stored_rows:,} stored",
        "set aside": f"{late:,} late, {dead:,} dead letters",
        "B, balanced": _factor(last.b_skewed),
        "B, all rows": _factor(last.b_all),
        "busiest node": busiest(window.node_rows(recent)),
        "traffic": ", ".join(f"{kind} {size(sent)}" for kind, sent in window.traffic(recent).items()),
        "signals, pulls": f"{signals:,}, {pulls:,}",
    }


def _cells(join: Join, column: int) -> dict[str, Text]:
    cells = {label: Text(text) for label, text in _figures(join).items()}
    cells["B, balanced"] = _balance(join.moments, column)
    if len(cells["traffic"]) > column:
        cells["traffic"] = Text(size(sum(window.traffic(window.last_minute(join.moments)).values())))
    return cells


def _balance(moments: Sequence[Moment], column: int) -> Text:
    last = moments[-1]
    text = Text(f"{_factor(last.b_skewed)} " + (f"(ε {last.epsilon:g}) " if last.epsilon is not None else ""))
    if last.b_skewed is not None and last.epsilon is not None and last.b_skewed > last.epsilon:
        text = Text(f"{_factor(last.b_skewed)} above ε {last.epsilon:g} ", style="red")
    known = [each.b_skewed for each in moments if each.b_skewed is not None]
    room = max(column - len(text), 1)
    return Text.assemble(text, (spark_line(known[-room:]), "cyan"))


def busiest(node_rows: Sequence[int]) -> str:
    if not any(node_rows):
        return "–"
    share = max(shares(node_rows))
    return f"{share:.0%} of rows, {share * len(node_rows):.1f}× its share"


def _bars(joins: Sequence[Join], column: int) -> Table:
    """All bars have one scale, the nodes' fair shares, so that bars of different joins compare."""
    rows = [window.node_rows(window.last_minute(join.moments)) for join in joins]
    times = [[share * len(each) for share in shares(each)] for each in rows]
    longest = max(max(map(max, times)), 1.0)
    digits = max(len(f"{max(each):,}") for each in rows)
    room = column - digits - len("  100%")
    table = _grid(column, len(joins))
    for node in _nodes_to_draw(times):
        cells = [
            _bar(each[node], part[node], part[node] / len(each), longest, room, digits) if node < len(each) else ""
            for each, part in zip(rows, times, strict=True)
        ]
        table.add_row(f"node {node}", *cells)
    return table


def _bar(rows: int, times: float, share: float, longest: float, room: int, digits: int) -> Text:
    drawn = (f"{bar(times / longest, room):<{room}}", "red" if times > window.OVERLOADED else "cyan")
    return Text.assemble(drawn, f" {rows:>{digits},} {share:>4.0%}")


def _nodes_to_draw(times: Sequence[Sequence[float]]) -> list[int]:
    """Returns all nodes or, where they are many, the fullest and the emptiest."""
    nodes = range(max(map(len, times)))
    if len(nodes) <= _MOST_BARS:
        return list(nodes)
    by_load = sorted(nodes, key=lambda node: -max(each[node] for each in times if node < len(each)))
    return by_load[: _MOST_BARS // 2] + by_load[-_MOST_BARS // 2 :]


def _keys(joins: Sequence[Join], column: int, most: int) -> Iterator[RenderableType]:
    known = max(len(join.last.hot_keys) for join in joins)
    more = f" ({most} of {known})" if known > most else ""
    yield Text(f"skewed keys, share of probe rows, nodes from 0 (■ home, □ others){more}", style="dim")
    table = _grid(column, len(joins))
    cells = [[_key(key, len(join.last.node_rows), column) for key in join.last.hot_keys[:most]] for join in joins]
    for at in range(min(known, most)):
        table.add_row("", *[each[at] if at < len(each) else "" for each in cells])
    yield table


def _key(key: SkewedKey, nodes: int, column: int) -> Text:
    if nodes <= column // 2:
        drawn = "".join("■" if node == key.nodes[0] else "□" if node in key.nodes else "·" for node in range(nodes))
    else:
        drawn = f"{len(key.nodes)} nodes, home {key.nodes[0]}"
    name = Text(key.key)
    name.truncate(min(column - len(drawn) - len("  100%  "), _LONGEST_KEY), overflow="ellipsis", pad=True)
    return Text.assemble(name, f"  {key.share:>4.0%}  ", (drawn, "cyan"))


def shares(node_rows: Sequence[int]) -> list[float]:
    total = sum(node_rows) or 1
    return [rows / total for rows in node_rows]


def _factor(b: float | None) -> str:
    return "–" if b is None else f"{b:.2f}"


def _grid(column: int, columns: int) -> Table:
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=_LABEL - _GAP)
    for _ in range(columns):
        table.add_column(width=column)
    return table


def bar(part: float, width: int) -> str:
    """Draws a bar that is full at 1, in eighths of a character."""
    full, eighths = divmod(round(min(max(part, 0.0), 1.0) * width * 8), 8)
    return ("█" * full + _EIGHTHS_ACROSS[eighths]).rstrip() if eighths else "█" * full


def spark_line(parts: Sequence[float]) -> str:
    """Draws one character for each part, the highest at 1."""
    return "".join(_EIGHTHS_UP[min(int(min(max(part, 0.0), 1.0) * 8), 7)] for part in parts)


def size(count: float) -> str:
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"

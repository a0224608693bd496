"""The picture that moves on a terminal: the joins next to each other, with less detail where there is little room."""

from collections.abc import Sequence

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from balajoin.demo.comparing import Comparison, comparison, explanation, node_list
from balajoin.demo.figures import shares
from balajoin.demo.picture import JoinPicture, Picture
from balajoin.demo.scenario import SKEW
from balajoin.observe.live.drawing import OVERLOADED, bar

_NARROWEST, _WIDEST = 76, 96
_BORDER_AND_PADDING = 8
_LABEL = 14
_BETWEEN = 2
_SHARE, _ROWS = 4, 8
_HEIGHT = 31  # of the picture with all its detail
_HOT_KEYS = 6


def panel(picture: Picture, terminal: ConsoleDimensions) -> RenderableType:
    width = min(max(terminal.width, _NARROWEST), _WIDEST)
    column = (width - _BORDER_AND_PADDING - _LABEL) // len(picture.joins) - _BETWEEN
    figures = [*comparison([join.figures for join in picture.joins]), *_speed(picture)]
    roomy = terminal.height >= _HEIGHT
    sections: list[RenderableType] = [
        _time_bar(picture, column),
        _bars(picture.joins, column),
        _comparison(figures if roomy else [each for each in figures if not _is_detail(each[0])], column),
        *_hot_keys(picture.joins),
    ]
    if roomy:
        sections.append(Text(explanation(SKEW.balance), style="dim"))
        sections = [part for section in sections for part in (section, "")][:-1]
    return Panel(Padding(Group(*sections), (0, 2)), title="balajoin demo", width=width, border_style="dim")


def _time_bar(picture: Picture, column: int) -> Table:
    done_s = min(picture.elapsed_s, picture.seconds)
    row = _grid(column, 2)
    row.add_row(
        Text(picture.phase, style="bold"),
        ProgressBar(total=picture.seconds, completed=done_s, width=column, complete_style="green"),
        f"{done_s:.0f} of {picture.seconds} s, {picture.sent:,} sent",
    )
    return row


def _bars(joins: Sequence[JoinPicture], column: int) -> Table:
    """On one scale, so that bars of different joins compare."""
    table = _grid(column, len(joins))
    table.add_row("[dim]rows by node[/]", *[Text(join.policy, style="bold") for join in joins])
    largest = max(max(join.figures.node_rows) for join in joins) or 1
    for node in range(len(joins[0].figures.node_rows)):
        table.add_row(f"node {node}", *[_bar(join.figures.node_rows, node, largest, column) for join in joins])
    return table


def _bar(node_rows: Sequence[int], node: int, largest: int, column: int) -> Text:
    share = shares(node_rows)[node]
    width = column - _SHARE - _ROWS - 1
    drawn = Text(f"{bar(node_rows[node] / largest, width):<{width}}")
    drawn.stylize("red" if share * len(node_rows) > OVERLOADED else "cyan")
    return drawn + Text(f" {share:>{_SHARE}.0%}{node_rows[node]:>{_ROWS},}")


def _comparison(figures: Comparison, column: int) -> Table:
    table = _grid(column, len(figures[0][1]))
    for label, texts in figures:
        style = "dim" if _is_detail(label) else ""
        table.add_row(*[Text(text, style=style, no_wrap=True, overflow="ellipsis") for text in (label, *texts)])
    return table


def _is_detail(label: str) -> bool:
    return label.startswith(" ")


def _speed(picture: Picture) -> Comparison:
    joins = picture.joins
    return [
        ("rows in", [f"{join.rows_in_per_s:,.0f}/s, {picture.sent - join.rows_in:,} waiting" for join in joins]),
        ("pairs out", [f"{join.pairs_out_per_s:,.0f}/s, {join.pairs_out:,} so far" for join in joins]),
        ("batches", [f"{join.batches:,}, last took {join.batch_ms / 1000:.1f} s" for join in joins]),
    ]


def _hot_keys(joins: Sequence[JoinPicture]) -> list[RenderableType]:
    """Two in a line."""
    keys = next((join.hot_keys for join in joins if join.hot_keys), ())
    if not keys:
        return []
    table = Table.grid(padding=(0, 2))
    cells = [[key.name, f"{key.share:.0%}", node_list(key.nodes)] for key in keys[:_HOT_KEYS]]
    cells += [["", "", ""]] * (len(cells) % 2)
    for _ in range(2):
        table.add_column(min_width=_LABEL - 2)
        table.add_column(justify="right")
        table.add_column(min_width=14, style="cyan")
    for left, right in zip(cells[::2], cells[1::2], strict=True):
        table.add_row(*left, *right)
    more = f" ({_HOT_KEYS} of {len(keys)})" if len(keys) > _HOT_KEYS else ""
    return [Group(f"[dim]skewed keys, their share of views, where bala-join sends them{more}[/]", table)]


def _grid(column: int, columns: int) -> Table:
    table = Table.grid(padding=(0, _BETWEEN, 0, 0))
    table.add_column(width=_LABEL)
    for _ in range(columns):
        table.add_column(width=column)
    return table

"""Figures over several moments of one join. Moments are given oldest first."""

from collections.abc import Sequence

from balajoin.observe.live.moment import Moment

OVERLOADED = 1.3
"""A node that gets more than this many times its fair share is marked."""

_RATE_MS = 10_000
_MINUTE_MS = 60_000


def speeds(moments: Sequence[Moment]) -> tuple[float, float]:
    """Rows in and rows out per second, over the last ten seconds or the last batch, whichever is longer."""
    last = len(moments) - 1
    first = last
    while first > 0 and moments[last].ended_ms - moments[first - 1].ended_ms < _RATE_MS:
        first -= 1
    begin_ms = moments[first - 1].ended_ms if first else moments[0].ended_ms - moments[0].duration_ms
    span_s = max(moments[last].ended_ms - begin_ms, 1) / 1000
    recent = moments[first:]
    return sum(each.rows_in for each in recent) / span_s, sum(each.rows_out for each in recent) / span_s


def last_minute(moments: Sequence[Moment]) -> list[Moment]:
    return [each for each in moments if each.ended_ms > moments[-1].ended_ms - _MINUTE_MS]


def node_rows(moments: Sequence[Moment]) -> list[int]:
    return [sum(rows) for rows in zip(*(each.node_rows for each in moments), strict=True)]


def traffic(moments: Sequence[Moment]) -> dict[str, int]:
    return {kind: sum(each.traffic.get(kind, 0) for each in moments) for kind in moments[-1].traffic}

"""The join by its definition. Slow, short, and importing nothing of the project, which is measured by it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    key: bytes
    time_us: int
    value: bytes
    partition: int
    offset: int


def interval_join(probe: Iterable[Row], build: Iterable[Row], before_us: int, after_us: int) -> set[tuple[Row, Row]]:
    """All pairs of equal keys in which the build row is at most `before` older and at most `after` newer."""
    by_key = defaultdict(list)
    for row in build:
        by_key[row.key].append(row)
    return {(p, b) for p in probe for b in by_key[p.key] if p.time_us - before_us <= b.time_us <= p.time_us + after_us}

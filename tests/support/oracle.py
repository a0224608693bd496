"""The join by its definition: slow and short. It imports nothing of the project, whose results it checks."""

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


Result = tuple[Row | None, Row | None]


def join(type_: str, probe: Iterable[Row], build: Iterable[Row], before_us: int, after_us: int) -> set[Result]:
    """Any type of interval join, as SQL defines it. Results of semi and anti joins have a probe row only."""
    probe, build = list(probe), list(build)
    pairs = interval_join(probe, build, before_us, after_us)
    met_probe, met_build = {p for p, _ in pairs}, {b for _, b in pairs}
    alone_probe: set[Result] = {(p, None) for p in probe if p not in met_probe}
    alone_build: set[Result] = {(None, b) for b in build if b not in met_build}
    return {
        "inner": pairs,
        "left": pairs | alone_probe,
        "right": pairs | alone_build,
        "full": pairs | alone_probe | alone_build,
        "left_semi": {(p, None) for p in met_probe},
        "left_anti": alone_probe,
    }[type_]

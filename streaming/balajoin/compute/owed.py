"""Results that were pending when a checkpoint was made from another: a node emits them in its first batch."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from balajoin.compute.pairs import PAIRS
from balajoin.compute.store import Durable, stored_block
from balajoin.core.blocks import concat, decode, encode

_FIRST = -2  # counted downwards; the head is -1, and blocks of rows have numbers from 0 on


def entries(results: Iterable[pa.Table]) -> Iterator[tuple[int, bytes]]:
    """Entries of the node's state that hold these results."""
    for at, table in enumerate(results):
        yield _FIRST - at, encode(table)


def take(durable: Durable, count: int) -> Iterator[pa.Table]:
    for number in range(_FIRST, _FIRST - count, -1):
        yield concat([decode(stored_block(durable, number), PAIRS)])
        durable.remove(number)

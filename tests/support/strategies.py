"""For tests of the pure logic: converts rows to tables and back, a state store in memory, and random rows."""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import strategies as st

from balajoin.core.blocks import ROWS
from oracle import Result, Row

SECOND = 1_000_000
LARGEST_ORDINARY_OBJECT = 1 << 20
"""Half a region of the JVM's G1 collector with a heap of 2 to 4 GiB."""


def hash_of(key: bytes, hashes: int = 1 << 32) -> int:
    """A hash that may be negative. A small number of `hashes` makes different keys collide."""
    return zlib.crc32(key) % hashes - hashes // 2


def table(rows: Iterable[Row], hashes: int = 1 << 32) -> pa.Table:
    rows = list(rows)
    columns = [
        [hash_of(row.key, hashes) for row in rows],
        [row.time_us for row in rows],
        [row.partition for row in rows],
        [row.offset for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
    ]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, ROWS, strict=True)], schema=ROWS)


def rows_of(*tables: pa.Table) -> list[Row]:
    """Converts tables back to rows."""
    return [
        Row(row["key"], row["time"], row["value"], row["partition"], row["offset"])
        for each in tables
        for row in each.to_pylist()
    ]


def results_of(tables: Iterable[pa.Table]) -> Counter[Result]:
    """The joined rows of a node as the oracle's results, with the count of each."""

    def side(row: dict, name: str) -> Row | None:
        time, value, partition, offset = (row[f"{name}_{part}"] for part in ("time", "value", "partition", "offset"))
        return None if offset is None else Row(row["key"], time, value, partition, offset)

    return Counter((side(row, "probe"), side(row, "build")) for each in tables for row in each.to_pylist())


class Memory(dict[int, bytes]):
    """Spark's map state as a dict. Asserts that a number names one block for ever and is never used again."""

    def __init__(self, blocks: dict[int, bytes] | None = None, used: Iterable[int] = ()) -> None:
        super().__init__(blocks or {})
        self.used = {*used, *self}
        self.bytes_put = 0

    def put(self, number: int, block: bytes) -> None:
        assert number not in self.used, f"block {number} is written again"
        self.used.add(number)
        self.bytes_put += len(block)
        self[number] = block

    def remove(self, number: int) -> None:
        del self[number]

    def items(self):
        return [(number, block) for number, block in super().items() if number >= 0]

    def copy(self) -> "Memory":
        return Memory(self, self.used)


# The empty key, keys that are prefixes of others, zero bytes, and bytes that are not UTF-8.
KEYS: Sequence[bytes] = (b"", b"a", b"ab", b"abc", b"\x00", b"\x00\x00", b"\xff\xfe", b"a longer key than the others")

keys = st.sampled_from(KEYS)
values = st.none() | st.binary(max_size=12)


@st.composite
def row_lists(
    draw: st.DrawFn, times: st.SearchStrategy[int], min_size: int = 0, max_size: int = 30, partition: int = 0
) -> list[Row]:
    """Rows of one source. Key, time and value are often equal; the offset tells rows apart."""
    drawn = draw(st.lists(st.tuples(keys, times, values), min_size=min_size, max_size=max_size))
    return [Row(key, time, value, partition, offset) for offset, (key, time, value) in enumerate(drawn)]

"""Loads every kernel by using it once: the first call compiles it, or reads it from numba's cache."""

from balajoin.blocks import ROWS, concat, decode, encode, longs, partition_by
from balajoin.compute.index import build, matches
from balajoin.compute.spec import Window
from balajoin.hashing import homes


def load_kernels() -> None:
    # Decoded, as kernels are compiled once for arrays that may be written and once for those that may not.
    rows = concat([decode(encode(ROWS.empty_table().from_pylist([dict.fromkeys(ROWS.names, 0) | _BYTES] * 2, ROWS)))])
    index = build(longs(rows, "hash"), longs(rows, "time"))
    list(matches(rows, index, rows, Window(0, 0)))
    partition_by(rows, homes(longs(rows, "hash"), 2), 2)


_BYTES = {"key": b"k", "value": b"v"}

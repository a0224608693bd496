"""Loads every kernel by using it once: the first call compiles it, or reads it from numba's cache."""

import pyarrow as pa

from balajoin.compute.index import build, matches, rows_with
from balajoin.core.blocks import ROWS, concat, decode, encode, longs, partition_by
from balajoin.core.hashing import homes
from balajoin.core.spec import Window
from balajoin.routing import policies
from balajoin.routing.rule import SkewRule
from balajoin.routing.source import Source

_ROW = dict.fromkeys(ROWS.names, 0) | {"key": b"k", "value": b"v"}


def load_kernels() -> None:
    # Decoded, so that the arrays are read-only: numba compiles a kernel for writable and read-only ones separately.
    rows = concat([decode(encode(pa.Table.from_pylist([_ROW, _ROW], ROWS)))])
    index = build(longs(rows, "hash"), longs(rows, "time"))
    list(matches(rows, index, rows, Window(0, 0)))
    rows_with(index, longs(rows, "hash")[:1])
    partition_by(rows, homes(longs(rows, "hash"), 2), 2)
    policy = policies.make("bala-join", 2, 0, SkewRule())
    Source(0, 2, 0, 1, policy).route(0, {"probe": [rows], "build": [rows]})

"""Joined rows: their columns, and how they are made from two tables and the numbers of matching rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balajoin.core.blocks import binary, longs
from balajoin.core.sides import Side

_MAX_PAIRS = 1 << 16
_MAX_PAIRS_BYTES = 64 << 20

PAIRS = pa.schema(
    [
        ("key", pa.binary()),
        ("probe_value", pa.binary()),
        ("probe_time", pa.int64()),
        ("probe_partition", pa.int32()),
        ("probe_offset", pa.int64()),
        ("build_value", pa.binary()),
        ("build_time", pa.int64()),
        ("build_partition", pa.int32()),
        ("build_offset", pa.int64()),
    ]
)
JOINED = PAIRS.append(pa.field("note", pa.string()))
"""The output of a node: joined rows, and in each batch one row that holds only the node's statistics."""


def at_once(one: pa.Table, other: pa.Table) -> int:
    """How many pairs to make at once: they fit even if each copies the largest key and value of both tables."""
    widest = sum(int(np.diff(binary(rows, column)[0]).max()) for rows in (one, other) for column in ("key", "value"))
    return max(1, min(_MAX_PAIRS, _MAX_PAIRS_BYTES // max(1, widest)))


def paired(probe: pa.Table, probe_rows: Any, build: pa.Table, build_rows: Any) -> pa.Table:
    columns = [_gather(probe, "key", probe_rows)]
    for table, rows in ((probe, probe_rows), (build, build_rows)):
        columns.append(_gather(table, "value", rows))
        columns.extend(pa.array(longs(table, column)[rows]) for column in ("time", "partition", "offset"))
    return pa.Table.from_arrays(columns, schema=PAIRS)


def alone(side: Side, rows: pa.Table) -> pa.Table:
    """Rows of one side as results; the columns of the other side are null."""
    columns = {"key": rows.column("key")}
    columns |= {f"{side}_{name}": rows.column(name) for name in ("value", "time", "partition", "offset")}
    return pa.table([columns.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in PAIRS], schema=PAIRS)


def count_alone(results: pa.Table) -> int:
    """How many of the results are rows of one side."""
    return int(results.column("probe_offset").null_count + results.column("build_offset").null_count)


def _gather(table: pa.Table, column: str, rows: Any) -> pa.Array:
    return pc.take(table.column(column).chunk(0), pa.array(rows), boundscheck=False)

"""Joined rows: which columns they have, and how two tables and their matching row numbers become one."""

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
"""What a node hands on: joined rows, and one row for each batch that holds nothing but the node's statistics."""


def at_once(one: pa.Table, other: pa.Table) -> int:
    """A large value may be copied into every pair: as many as fit, if all had the largest."""
    widest = sum(int(np.diff(binary(rows, column)[0]).max()) for rows in (one, other) for column in ("key", "value"))
    return max(1, min(_MAX_PAIRS, _MAX_PAIRS_BYTES // max(1, widest)))


def paired(probe: pa.Table, probe_rows: Any, build: pa.Table, build_rows: Any) -> pa.Table:
    columns = [_gather(probe, "key", probe_rows)]
    for table, rows in ((probe, probe_rows), (build, build_rows)):
        columns.append(_gather(table, "value", rows))
        columns.extend(pa.array(longs(table, column)[rows]) for column in ("time", "partition", "offset"))
    return pa.Table.from_arrays(columns, schema=PAIRS)


def alone(side: Side, rows: pa.Table) -> pa.Table:
    """Rows of one side as results; what would come from the other is null."""
    columns = {"key": rows.column("key")}
    columns |= {f"{side}_{name}": rows.column(name) for name in ("value", "time", "partition", "offset")}
    return pa.table([columns.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in PAIRS], schema=PAIRS)


def count_alone(results: pa.Table) -> int:
    """How many of the results are rows of one side."""
    return int(results.column("probe_offset").null_count + results.column("build_offset").null_count)


def _gather(table: pa.Table, column: str, rows: Any) -> pa.Array:
    return pc.take(table.column(column).chunk(0), pa.array(rows), boundscheck=False)

"""The rows that operators send each other. The fields of a class are the only definition of its columns.

`schema_of` makes the Arrow schema from them, and `spark.schemas.spark_schema` makes Spark's from that.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, get_type_hints

import pyarrow as pa

Int = Annotated[int, pa.int32()]
Long = Annotated[int, pa.int64()]
Text = Annotated[str, pa.string()]
OptionalText = Annotated[str | None, pa.string()]
OptionalBytes = Annotated[bytes | None, pa.binary()]


@dataclass(frozen=True, kw_only=True)
class Packed:
    """From a packer to a router: a block of one Kafka partition. A row without a block only counts dead records."""

    source: Long = -1
    """The source's label: see `spark.labels`."""
    side: Text
    partition: Int = -1
    first_offset: Long = -1
    rows: Long = 0
    dead: Long = 0
    ahead: Long = 0
    """The number of dead records whose time is too far in the future."""
    machine: Text = ""
    """Where the block was read: see `spark.worker.machine`."""
    block: OptionalBytes = None


@dataclass(frozen=True, kw_only=True)
class Addressed:
    """To a node, from a router, the control topic or the replica topic; `section` tells which."""

    node: Long
    """The node's label: see `spark.labels`."""
    section: Text
    source: Int = -1
    watermark: Long = 0
    now_ms: Long = 0
    rows: Long = 0
    bytes: Long = 0
    """The size of the block; 0 if it stays at its source's own node."""
    note: OptionalText = None
    """From a router: its statistics, in one row of each batch. From a topic: the record's header or value."""
    block: OptionalBytes = None


def schema_of(row: type) -> pa.Schema:
    hints = get_type_hints(row, include_extras=True)
    return pa.schema([(field.name, hints[field.name].__metadata__[0]) for field in fields(row)])


def defaults_of(row: type) -> dict[str, int | None]:
    """The default values of the columns that a sender may leave out."""
    return {field.name: field.default for field in fields(row) if field.default is not MISSING}

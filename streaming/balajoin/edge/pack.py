"""Packs rows before the first shuffle: thousands of rows of one Kafka partition become one row with a block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balajoin.control.rejects import count_ahead, dead_letters
from balajoin.core.blocks import ROWS, SENT_BLOCK_BYTES, encode_as_column, pieces
from balajoin.core.envelope import Packed, schema_of
from balajoin.core.sides import Side
from balajoin.kafka.producer import Publisher
from balajoin.spark.labels import source_label
from balajoin.spark.worker import machine, settle

_SCHEMA = schema_of(Packed)


@dataclass(frozen=True)
class Packer:
    side: Side
    topic: str
    nodes: int
    dead_letter_topic: str
    max_ahead_ms: int
    publisher: Publisher

    def as_function(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            for batch in batches:
                yield from self.pack(batch)

        return pack

    def pack(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """One row for each block. If any records are dead, a row without a block counts them."""
        is_dead = pc.is_valid(batch.column("dead"))
        if dead := pc.sum(is_dead).as_py():
            buried = batch.filter(is_dead)
            letters = dead_letters(self.side, self.topic, buried, self.max_ahead_ms)
            self.publisher.publish(self.dead_letter_topic, letters)
            yield _record_batch(Packed(side=self.side, dead=dead, ahead=count_ahead(buried)))
            batch = batch.filter(pc.invert(is_dead))
        for rows in _by_partition(pa.Table.from_batches([batch.select(ROWS.names)]).cast(ROWS)):
            for piece in pieces([rows], SENT_BLOCK_BYTES):
                partition = piece.column("partition")[0].as_py()
                packed = Packed(
                    source=source_label(partition, self.nodes),
                    side=self.side,
                    partition=partition,
                    first_offset=piece.column("offset")[0].as_py(),
                    rows=piece.num_rows,
                    machine=machine(),
                )
                yield _record_batch(packed, encode_as_column(piece))


def _record_batch(row: Packed, block: pa.BinaryArray | None = None) -> pa.RecordBatch:
    """The block is an Arrow array, so that nothing copies it."""
    columns = {name: [value] for name, value in vars(row).items()}
    return pa.record_batch(list((columns if block is None else columns | {"block": block}).values()), schema=_SCHEMA)


def _by_partition(rows: pa.Table) -> Iterator[pa.Table]:
    """One table for each Kafka partition. A task reads one partition, unless Spark was told to coalesce the input."""
    partitions = np.asarray(rows.column("partition"))
    for partition in np.unique(partitions):
        mine = partitions == partition
        yield rows if mine.all() else rows.filter(pa.array(mine))

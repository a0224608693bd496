"""Packing at the edge, before any shuffle: thousands of rows of one Kafka partition become one row with a block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balajoin.control.rejects import count_ahead, dead_letters
from balajoin.core.blocks import ROWS, SENT_BLOCK_BYTES, encode_all, pieces
from balajoin.core.sides import Side
from balajoin.kafka.producer import Publisher
from balajoin.spark.labels import source_label
from balajoin.spark.worker import settle

PACKED = (
    "source bigint, side string, partition int, first_offset bigint, rows bigint, dead bigint, ahead bigint, "
    "block binary"
)
_PACKED_SCHEMA = pa.schema(
    [
        ("source", pa.int64()),
        ("side", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("rows", pa.int64()),
        ("dead", pa.int64()),
        ("ahead", pa.int64()),
        ("block", pa.binary()),
    ]
)


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
        """A row a block; where records were dead, one that counts them, without a block."""
        is_dead = pc.is_valid(batch.column("dead"))
        if dead := pc.sum(is_dead).as_py():
            buried = batch.filter(is_dead)
            letters = dead_letters(self.side, self.topic, buried, self.max_ahead_ms)
            self.publisher.publish(self.dead_letter_topic, letters)
            counted = {"side": self.side, "dead": dead, "ahead": count_ahead(buried)}
            yield pa.RecordBatch.from_pylist([counted], _PACKED_SCHEMA)
            batch = batch.filter(pc.invert(is_dead))
        for rows in _by_partition(pa.Table.from_batches([batch.select(ROWS.names)]).cast(ROWS)):
            for piece in pieces([rows], SENT_BLOCK_BYTES):
                partition = piece.column("partition")[0].as_py()
                packed = [
                    [source_label(partition, self.nodes)],
                    [self.side],
                    [partition],
                    [piece.column("offset")[0].as_py()],
                    [piece.num_rows],
                    [0],
                    [0],
                    encode_all([piece]),
                ]
                yield pa.record_batch(packed, schema=_PACKED_SCHEMA)


def _by_partition(rows: pa.Table) -> Iterator[pa.Table]:
    """A task reads one Kafka partition, so this is the whole table but where a user coalesced the input."""
    partitions = np.asarray(rows.column("partition"))
    for partition in np.unique(partitions):
        mine = partitions == partition
        yield rows if mine.all() else rows.filter(pa.array(mine))

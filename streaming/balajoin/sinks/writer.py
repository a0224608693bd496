"""The sink's operator (`mapInArrow`): one task for each node, after the node's own task."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from balajoin.core.spec import Target
from balajoin.sinks.marker import Marker
from balajoin.sinks.transaction import Transaction
from balajoin.spark.worker import current_stamp, settle

PLANNED = "planned_us"
WRITTEN = "written boolean"
_WRITTEN_SCHEMA = pa.schema([pa.field("written", pa.bool_())])


@dataclass(frozen=True)
class Writer:
    """Takes the columns key, value, id, and PLANNED: the batch's own time, which is the same in a repeated batch.

    Yields one row for each result written, for Spark to count.
    """

    target: Target
    settings: Mapping[str, str]

    def as_function(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            filled = (batch for batch in batches if batch.num_rows)
            first = next(filled, None)
            if first is None:
                return
            with Transaction(self.target, self._now(first)) as transaction:
                transaction.write(first)
                for batch in filled:
                    transaction.write(batch)
                written = transaction.commit()
            yield pa.record_batch([pa.nulls(written, pa.bool_())], schema=_WRITTEN_SCHEMA)

        return write

    def _now(self, batch: pa.RecordBatch) -> Marker:
        context = TaskContext.get()
        assert context is not None
        stamp = current_stamp()
        planned_ms = batch.column(PLANNED)[0].as_py() // 1000
        return Marker(stamp.join, context.partitionId(), stamp.batch, planned_ms, settings=self.settings)

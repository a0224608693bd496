"""A node writes its results to Kafka itself, in the task that made them: they never become rows of Spark.

Each node writes one transaction a batch, with the same marker as the sink behind a DataFrame, so the same proof holds:
see docs/exactly-once.md. The node commits after all else of the batch is published and stored, before Spark commits.

Spark sends a `NodeSink` to its workers, also to one that only starts a query and writes nothing. So Kafka's client and
the kernels are imported by a batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from balajoin.core.spec import ResultFormat, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from balajoin.core.messages import Stamp
    from balajoin.sinks.transaction import Transaction


@dataclass(frozen=True)
class NodeSink:
    """`settings` are those that a marker names."""

    target: Target
    settings: Mapping[str, str]
    format: ResultFormat

    def transaction(self, stamp: "Stamp", node: int, planned_ms: int) -> "Transaction":
        """`planned_ms` is the batch's own time; a repeated batch has the same."""
        from balajoin.sinks.marker import Marker
        from balajoin.sinks.transaction import Transaction

        return Transaction(self.target, Marker(stamp.join, node, stamp.batch, planned_ms, settings=self.settings))

    def encoder(self) -> "Callable[[pa.Table], pa.RecordBatch]":
        """Turns results into the records that a transaction writes."""
        from balajoin.sinks.values import ResultEncoder

        return ResultEncoder(self.format).records

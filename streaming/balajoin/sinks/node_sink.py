"""A node writes its results to Kafka itself, in the task that made them: they never become rows of Spark's.

One transaction a node and batch, with the same marker as the sink behind a DataFrame, so the same proof holds: see
docs/exactly-once.md. The node commits it when all else of the batch is published and stored, and before Spark commits.

Travels to the workers, also to one that starts a query and writes nothing. So Kafka's client and the kernels are
imported when there is a batch.
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
        """`planned_ms` is the batch's own time, which a repeated batch has again."""
        from balajoin.sinks.marker import Marker
        from balajoin.sinks.transaction import Transaction

        return Transaction(self.target, Marker(stamp.join, node, stamp.batch, planned_ms, settings=self.settings))

    def encoder(self) -> "Callable[[pa.Table], pa.RecordBatch]":
        """Turns results into the records that a transaction writes."""
        from balajoin.sinks.values import ResultEncoder

        return ResultEncoder(self.format).records

"""A node as Spark runs it: `transformWithStateInPandas`, one group for each node.

When a query starts, Spark imports this module in a separate process, only to call `init`. So modules that only a batch
needs are imported by the batch: pandas, Arrow and numba would make every start half a second longer.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructType

from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.sinks.node_sink import NodeSink
from balajoin.spark.labels import node_labels
from balajoin.spark.partitions import require_place

if TYPE_CHECKING:
    import pandas as pd

# Not as text: Spark would ask the JVM to parse it, four times in each task.
_NUMBER = StructType().add("number", LongType())
_BLOCK = StructType().add("block", BinaryType())


class NodeProcessor(StatefulProcessor):
    def __init__(
        self, nodes: int, spec: JoinSpec, topics: SideTopics, cache_dir: str | None, sink: NodeSink | None = None
    ) -> None:
        self._node_of = {label: node for node, label in enumerate(node_labels(nodes))}
        self._spec = spec
        self._topics = topics
        self._cache_dir = cache_dir
        self._sink = sink

    def init(self, handle: StatefulProcessorHandle) -> None:
        # One variable for the head and all blocks: each variable costs every task a round trip or two, however small.
        self._state = handle.getMapState("state", _NUMBER, _BLOCK)

    def handleInputRows(self, key: Any, rows: Iterator["pd.DataFrame"], timerValues: Any) -> Iterator["pd.DataFrame"]:  # noqa: N802, N803
        from balajoin.compute import batch, cache_folder
        from balajoin.spark.worker import current_stamp

        stamp = current_stamp(self._spec.plan)
        require_place(key[0], self._spec.nodes, stamp.batch)
        node = self._node_of[key[0]]
        cache = cache_folder.place(self._cache_dir)
        yield from batch.process(self._spec, node, stamp, self._state, cache, self._topics, self._sink, rows)

    def handleInitialState(self, key: Any, initialState: "pd.DataFrame", timerValues: Any) -> None:  # noqa: N802, N803
        for entry in initialState.itertuples(index=False):
            self._state.updateValue((entry.number,), (entry.block,))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator["pd.DataFrame"]:  # noqa: N802, N803
        yield from ()

    def close(self) -> None:
        pass

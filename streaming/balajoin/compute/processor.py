"""A node as Spark runs it: `transformWithStateInPandas`, one group a node."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from balajoin import blocks
from balajoin.blocks import Side, decode
from balajoin.compute.join import Arrival, JoinSpec, Node
from balajoin.control.publisher import Publisher
from balajoin.control.rejects import late_records
from balajoin.hashing import node_labels
from balajoin.worker import settle

JOINED = (
    "key binary, probe_value binary, probe_time bigint, probe_partition int, probe_offset bigint, "
    "build_value binary, build_time bigint, build_partition int, build_offset bigint"
)


_FRAME_ROWS = 1 << 16
_FRAME_BYTES = 64 << 20


@dataclass(frozen=True)
class Late:
    """Where late rows go, and the topic that each side's rows came from."""

    topic: str
    publisher: Publisher
    origins: dict[Side, str]

    def publish(self, node: Node) -> None:
        for late in node.late:
            records = late_records(self.origins[late.side], late.rows, late.watermark)
            self.publisher.publish(self.topic, records)


class NodeProcessor(StatefulProcessor):
    def __init__(self, nodes: int, spec: JoinSpec, late: Late, cache: str) -> None:
        self._node_of = {label: node for node, label in enumerate(node_labels(nodes))}
        self._spec = spec
        self._late = late
        self._cache = Path(cache)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "state binary")
        self._blocks = StateBlocks(handle.getMapState("blocks", "number bigint", "block binary"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        settle()
        head = self._head.get()
        state = bytes(head[0]) if head is not None else None
        node = Node(self._spec, state, self._blocks, self._cache, self._node_of[key[0]])
        arrivals = [_arrival(row) for frame in rows for row in frame.itertuples(index=False)]
        for pairs in gathered(node.process(arrivals)):
            yield _frame(pairs)
        self._late.publish(node)
        self._head.update((node.state(),))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield from ()

    def close(self) -> None:
        pass


class StateBlocks:
    """Spark's map state as the store's `Durable`."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int) -> bytes | None:
        found = self._state.getValue((number,))
        return bytes(found[0]) if found is not None else None

    def put(self, number: int, block: bytes) -> None:
        self._state.updateValue((number,), (block,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))

    def items(self) -> Iterable[tuple[int, bytes]]:
        """One by one: a single answer with all of them could pass the 2 GiB that Spark's protocol allows."""
        for number in sorted(key[0] for key in self._state.keys()):  # noqa: SIM118 - not a dict
            yield number, bytes(self._state.getValue((number,))[0])


def _arrival(row: Any) -> Arrival:
    return Arrival(row.side, int(row.source), int(row.watermark), int(row.now_ms), [decode(row.block)])


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Each frame costs Spark a round trip, so that small ones wait for others."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= _FRAME_ROWS or sum(t.nbytes for t in waiting) >= _FRAME_BYTES:
            yield blocks.concat(waiting)
            waiting = []
    if waiting:
        yield blocks.concat(waiting)


def _frame(pairs: pa.Table) -> pd.DataFrame:
    """Arrow-typed columns reach Spark without becoming Python objects."""
    return pairs.to_pandas(types_mapper=pd.ArrowDtype)

"""One batch of a node: between Spark's frames and state on one side, and the pure `Node` on the other."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from balajoin import blocks
from balajoin.compute.join import Arrival, Node
from balajoin.compute.spec import JoinSpec, LateTopic
from balajoin.control.publisher import Publisher
from balajoin.control.rejects import late_records
from balajoin.worker import settle

_FRAME_ROWS = 1 << 16
_FRAME_BYTES = 64 << 20


def process(
    spec: JoinSpec, number: int, head: Any, stored: Any, cache: Path, late: LateTopic, frames: Iterator[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """Joined rows. `head` and `stored` are Spark's value and map state of node `number`."""
    settle()
    written = head.get()
    state = bytes(written[0]) if written is not None else None
    node = Node(spec, state, StateBlocks(stored), cache, number)
    arrivals = [_arrival(row) for frame in frames for row in frame.itertuples(index=False)]
    for pairs in gathered(node.process(arrivals)):
        yield _frame(pairs)
    _publish(node, late)
    head.update((node.state(),))


def _publish(node: Node, late: LateTopic) -> None:
    publisher = Publisher(late.options)
    for rows in node.late:
        publisher.publish(late.topic, late_records(late.origins[rows.side], rows.rows, rows.watermark))


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
    return Arrival(row.side, int(row.source), int(row.watermark), int(row.now_ms), [blocks.decode(row.block)])


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

"""The router as Spark runs it: `applyInPandasWithState`, one group a source."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from balajoin.blocks import ROWS, decode, encode, pieces
from balajoin.labels import node_labels
from balajoin.routing import policies
from balajoin.routing.source import Source
from balajoin.sides import Side
from balajoin.worker import settle

ROUTED = "node bigint, side string, source int, watermark bigint, now_ms bigint, rows bigint, block binary"
STATE = "state binary"


@dataclass(frozen=True)
class Router:
    policy: str
    nodes: int
    lateness_us: int

    def as_function(self) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
        def route(_: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
            yield from self.route(frames, state)

        return route

    def route(self, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        settle()
        # A shuffle delivers in any order; sorted by offset a replay makes the same blocks again.
        packed = sorted((row for frame in frames for row in frame.itertuples()), key=lambda row: row.first_offset)
        if not packed:
            return
        side, partition = packed[0].side, packed[0].partition
        source = Source.restore(
            side,
            policies.make(self.policy, self.nodes),
            self.nodes,
            self.lateness_us,
            state.get[0] if state.exists else None,
        )
        parcels = source.route([decode(row.block) for row in packed], max(row.latest for row in packed))
        state.update((source.state(),))
        yield self._frame(side, partition, source.watermark, state.getCurrentProcessingTimeMs(), parcels)

    def _frame(
        self, side: Side, partition: int, watermark: int, now_ms: int, parcels: list[list[pa.Table]]
    ) -> pd.DataFrame:
        """A row a block. A node without rows gets an empty block, for the watermark's sake."""
        addressed = [
            (label, piece)
            for label, parcel in zip(node_labels(self.nodes), parcels, strict=True)
            for piece in (list(pieces(parcel)) or [ROWS.empty_table()])
        ]
        return pd.DataFrame(
            {
                "node": [label for label, _ in addressed],
                "side": side,
                "source": partition,
                "watermark": watermark,
                "now_ms": now_ms,
                "rows": [piece.num_rows for _, piece in addressed],
                "block": [encode(piece) for _, piece in addressed],
            }
        )

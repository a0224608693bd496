"""The router as Spark runs it: `applyInPandasWithState`, one group a source."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from balajoin.control.announcements import ANNOUNCED, announcement
from balajoin.control.encoding import signal_record
from balajoin.core.blocks import ROWS, SENT_BLOCK_BYTES, decode, encode, pieces
from balajoin.core.hashing import home
from balajoin.core.messages import Stamp
from balajoin.core.sides import SECTIONS, SIDES, side_of
from balajoin.kafka.producer import Place, Publisher, Record, size
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Parcels, Source
from balajoin.spark.labels import node_labels
from balajoin.spark.partitions import require_place
from balajoin.spark.worker import current_stamp, settle

ROUTED = (
    "node bigint, section string, source int, watermark bigint, now_ms bigint, rows bigint, bytes bigint, "
    "note string, block binary"
)
STATE = "state binary"


@dataclass(frozen=True)
class Router:
    policy: PolicyName
    rule: SkewRule
    nodes: int
    lateness_us: int
    lease_us: int
    control_topic: str
    publisher: Publisher
    plan: str = ""
    first_states: Mapping[int, bytes] = field(default_factory=dict)
    """Of sources that Spark has no state of yet, where a checkpoint was made of another."""

    def as_function(self) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
        def route(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
            stamp = current_stamp(self.plan)
            require_place(int(key[0]), self.nodes, stamp.batch)
            yield from self.route(frames, state, stamp)

        return route

    def route(self, frames: Iterator[pd.DataFrame], state: Any, stamp: Stamp) -> Iterator[pd.DataFrame]:
        settle()
        # A shuffle delivers in any order; sorted by offset a replay makes the same blocks again.
        packed = sorted((row for frame in frames for row in frame.itertuples()), key=lambda row: row.first_offset)
        if not packed:
            return
        number, now_ms = int(packed[0].partition), state.getCurrentProcessingTimeMs()
        written = state.get[0] if state.exists else self.first_states.get(number)
        make_policy = partial(policies.make, self.policy, self.nodes, number, self.rule)
        source = Source.restore(number, self.nodes, self.lateness_us, self.lease_us, make_policy, written)
        blocks = {side: [decode(row.block) for row in packed if row.side == side] for side in SIDES}
        parcels = source.route(now_ms, {side: tables for side, tables in blocks.items() if tables})
        places = self._publish_signals(source, stamp)
        state.update((source.state(),))
        yield self._frame(source, [side for side in SIDES if blocks[side]], now_ms, parcels)
        if places:
            yield self._announcements(source, now_ms, places)

    def _publish_signals(self, source: Source, stamp: Stamp) -> dict[int, list[Place]]:
        """Where on the control topic each home finds those for it."""
        places: dict[int, list[Place]] = defaultdict(list)

        def note(record: Record, place: Place) -> None:
            places[int(record.key or b"")].append(place)  # its key is the home

        if source.signals:
            records = [signal_record(stamp, home(signal.hash, self.nodes), signal) for signal in source.signals]
            source.statistics.signal_bytes = sum(map(size, records))
            self.publisher.publish(self.control_topic, records, whole=True, note_place=note)
        return places

    def _frame(self, source: Source, sides: list[str], now_ms: int, parcels: Parcels) -> pd.DataFrame:
        """A row a block. A node without rows of a side gets an empty block, for the watermark's sake."""
        labels = node_labels(self.nodes)
        addressed = [
            (labels[node], section, piece)
            for section in SECTIONS
            for node in range(self.nodes)
            for piece in pieces(parcels[section][node], SENT_BLOCK_BYTES)
        ]
        told = {(label, side_of(section)) for label, section, _ in addressed}
        addressed += [
            (label, side, ROWS.empty_table())
            for side in SIDES
            if side in sides
            for label in labels
            if (label, side) not in told
        ]
        own = labels[source.number % self.nodes]
        notes = [source.statistics.to_json(), *[None] * (len(addressed) - 1)]
        return pd.DataFrame(
            {
                "node": [label for label, _, _ in addressed],
                "section": [section for _, section, _ in addressed],
                "source": source.number,
                "watermark": [source.watermark(side_of(section)) for _, section, _ in addressed],
                "now_ms": now_ms,
                "rows": [piece.num_rows for _, _, piece in addressed],
                "bytes": [0 if label == own else piece.nbytes for label, _, piece in addressed],
                "note": notes,
                "block": [encode(piece) for _, _, piece in addressed],
            }
        )

    def _announcements(self, source: Source, now_ms: int, places: Mapping[int, list[Place]]) -> pd.DataFrame:
        labels = node_labels(self.nodes)
        return pd.DataFrame(
            {
                "node": [labels[home_] for home_ in places],
                "section": ANNOUNCED,
                "source": source.number,
                "watermark": 0,
                "now_ms": now_ms,
                "rows": 0,
                "bytes": 0,
                "note": None,
                "block": [announcement(mine) for mine in places.values()],
            }
        )

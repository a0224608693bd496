"""The router as Spark runs it: `applyInPandasWithState`, one group for each source."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from balajoin.control.announcements import ANNOUNCED, announcement
from balajoin.control.encoding import signal_record
from balajoin.core.blocks import ROWS, SENT_BLOCK_BYTES, decode, encode, pieces
from balajoin.core.envelope import Addressed
from balajoin.core.hashing import home
from balajoin.core.messages import Signal, Stamp
from balajoin.core.sides import SECTIONS, SIDES, Section, Side, side_of
from balajoin.kafka.producer import PartitionOffset, Publisher, Record, size
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Parcels, Source
from balajoin.spark.labels import node_labels
from balajoin.spark.partitions import require_place
from balajoin.spark.worker import current_stamp, machine, settle

if TYPE_CHECKING:  # workers import this module, and need no pydantic
    from balajoin.config.models import JoinSettings

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
    """The states of sources in a checkpoint that `balajoin rescale` wrote, used until Spark has its own."""

    @classmethod
    def of(
        cls,
        settings: "JoinSettings",
        rule: SkewRule,
        publisher: Publisher,
        plan: str,
        first_states: Mapping[int, bytes],
    ) -> "Router":
        return cls(
            policy=settings.policy,
            rule=rule,
            nodes=settings.nodes,
            lateness_us=settings.lateness_ms * 1000,
            lease_us=settings.skew.lease_ms * 1000,
            control_topic=settings.control_topic,
            publisher=publisher,
            plan=plan,
            first_states=first_states,
        )

    def as_function(self) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
        def route(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
            stamp = current_stamp(self.plan)
            require_place(int(key[0]), self.nodes, stamp.batch)
            yield from self.route(frames, state, stamp)

        return route

    def route(self, frames: Iterator[pd.DataFrame], state: Any, stamp: Stamp) -> Iterator[pd.DataFrame]:
        settle()
        # A shuffle delivers in any order. Sorted by offset, a replay makes the same blocks again.
        packed = sorted((row for frame in frames for row in frame.itertuples()), key=lambda row: row.first_offset)
        if not packed:
            return
        number, now_ms = int(packed[0].partition), state.getCurrentProcessingTimeMs()
        written = state.get[0] if state.exists else self.first_states.get(number)
        make_policy = partial(policies.make, self.policy, self.nodes, number, self.rule)
        source = Source.restore(number, self.nodes, self.lateness_us, self.lease_us, make_policy, written)
        blocks = {side: [decode(row.block) for row in packed if row.side == side] for side in SIDES}
        outcome = source.route(now_ms, {side: tables for side, tables in blocks.items() if tables})
        signals = [self._record(signal, stamp) for signal in outcome.signals]
        places = self._publish(signals)
        state.update((source.state(),))
        fetched_bytes = sum(len(row.block) for row in packed if row.machine != machine())
        note = replace(outcome.statistics, signal_bytes=sum(map(size, signals)), fetched_bytes=fetched_bytes).to_json()
        sent = [*self._parcels(source, outcome.parcels, [side for side in SIDES if blocks[side]], now_ms)]
        sent[0] = replace(sent[0], note=note)
        sent += self._announcements(source, now_ms, places)
        yield pd.DataFrame(map(vars, sent))

    def _record(self, signal: Signal, stamp: Stamp) -> Record:
        return signal_record(stamp, home(signal.hash, self.nodes), signal)

    def _publish(self, signals: Sequence[Record]) -> dict[int, list[PartitionOffset]]:
        """Publishes signals. Returns where on the control topic each home finds its own."""
        places: dict[int, list[PartitionOffset]] = defaultdict(list)

        def note(record: Record, place: PartitionOffset) -> None:
            places[int(record.key or b"")].append(place)  # the record's key is the home

        if signals:
            self.publisher.publish(self.control_topic, signals, whole=True, note_place=note)
        return places

    def _parcels(self, source: Source, parcels: Parcels, sides: Sequence[Side], now_ms: int) -> Iterator[Addressed]:
        """A row for each block. A node without rows of a side gets an empty block, which brings it the watermark."""
        labels = node_labels(self.nodes)
        own = labels[source.number % self.nodes]

        def addressed(label: int, section: Section, piece: pa.Table) -> Addressed:
            block = encode(piece)
            return Addressed(
                node=label,
                section=section,
                source=source.number,
                watermark=source.watermark(side_of(section)),
                now_ms=now_ms,
                rows=piece.num_rows,
                bytes=0 if label == own else len(block),
                block=block,
            )

        told = set()
        for section in SECTIONS:
            for label, parcel in zip(labels, parcels[section], strict=True):
                for piece in pieces(parcel, SENT_BLOCK_BYTES):
                    told.add((label, side_of(section)))
                    yield addressed(label, section, piece)
        for side in sides:
            for label in labels:
                if (label, side) not in told:
                    yield addressed(label, side, ROWS.empty_table())

    def _announcements(
        self, source: Source, now_ms: int, places: Mapping[int, Sequence[PartitionOffset]]
    ) -> Iterator[Addressed]:
        labels = node_labels(self.nodes)
        for home_, mine in places.items():
            yield Addressed(
                node=labels[home_], section=ANNOUNCED, source=source.number, now_ms=now_ms, block=announcement(mine)
            )

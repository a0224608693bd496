"""Runs one batch of a node: connects Spark's frames and state with the pure `Node`."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from balajoin.compute.exchange import Arrival, NodeInputs, Outcome
from balajoin.compute.node import Node
from balajoin.compute.pairs import JOINED
from balajoin.compute.state import HEAD
from balajoin.control import announcements
from balajoin.control.encoding import (
    read_control,
    read_replica,
    report_records,
    shipment_records,
    signal_record,
)
from balajoin.control.rejects import late_records
from balajoin.core import blocks
from balajoin.core.codec import refusing_damage
from balajoin.core.hashing import home
from balajoin.core.messages import ForeignRecordError, Part, Report, Signal, Stamp, Tick
from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.kafka.producer import PartitionOffset, Publisher, size
from balajoin.sinks.node_sink import NodeSink
from balajoin.spark.worker import settle

_FRAME_ROWS = 1 << 16
_FRAME_BYTES = 64 << 20


def process(
    spec: JoinSpec,
    number: int,
    stamp: Stamp,
    state: Any,
    cache: Path,
    topics: SideTopics,
    sink: NodeSink | None,
    frames: Iterator[pd.DataFrame],
) -> Iterator[pd.DataFrame]:
    """Yields joined rows, unless a `sink` takes them, and one row that holds only statistics.

    `state` is Spark's map state of node `number`.
    """
    settle()
    began = time.process_time_ns()
    stored = StateBlocks(state)
    with refusing_damage("node"):
        node = Node(spec, stored.get(HEAD), stored, cache, number)
    inputs = Inputs.read(stamp, (row for frame in frames for row in frame.itertuples(index=False)), node.is_lost)
    inputs.signals += announcements.announced_signals(topics.options, topics.control, inputs.places, stamp)
    results = node.process(stamp.batch, inputs.of_node())

    def finish() -> _Published:
        published = _publish(results.outcome, stamp, spec.nodes, topics)
        stored.put(HEAD, results.outcome.state)
        return published

    if sink is None:
        for pairs in gathered(results):
            yield _frame(pairs.append_column(JOINED.field("note"), pa.nulls(pairs.num_rows, pa.string())))
        published = finish()
    else:
        with sink.transaction(stamp, number, inputs.planned_ms) as transaction:
            if inputs.bring_rows:
                transaction.expect_rows()
            encoded = sink.encoder()
            for pairs in gathered(results):
                if pairs.num_rows:
                    transaction.write(encoded(pairs))
            published = finish()
            transaction.commit()
    statistics = replace(
        results.outcome.statistics,
        signal_bytes=published.signal_bytes,
        replica_bytes=published.replica_bytes,
        foreign_records=results.outcome.statistics.foreign_records + inputs.foreign,
        stale_records=inputs.stale,
        busy_us=(time.process_time_ns() - began) // 1000,
    )
    yield _frame(pa.Table.from_pylist([{"note": statistics.to_json()}], JOINED))


@dataclass
class Inputs:
    """The rows that Spark hands a node, sorted by type."""

    arrivals: list[Arrival] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    ticks_ms: list[int] = field(default_factory=list)
    places: list[PartitionOffset] = field(default_factory=list)
    """Where the signals of this batch are."""

    planned_ms: int = 0
    """The batch's own time; a repeated batch has the same."""

    foreign: int = 0
    stale: int = 0
    """Records of another checkpoint, of a time line that this one has left, or of an abandoned attempt at a batch."""

    @property
    def bring_rows(self) -> bool:
        return bool(self.parts) or any(table.num_rows for arrival in self.arrivals for table in arrival.rows)

    def of_node(self) -> NodeInputs:
        return NodeInputs(self.arrivals, self.signals, self.parts, self.reports, self.ticks_ms)

    @classmethod
    def read(cls, stamp: Stamp, rows: Iterable[Any], is_lost: Callable[[Stamp], bool] = lambda _: False) -> "Inputs":
        """`is_lost` says whether a stamp is of an attempt at a batch from which the node's state does not continue."""
        inputs = cls()

        def is_ours(sent: Stamp) -> bool:
            ours = sent.may_precede(stamp) and not is_lost(sent)
            inputs.stale += not ours
            return ours

        for row in rows:
            inputs.planned_ms = max(inputs.planned_ms, int(getattr(row, "now_ms", 0)))
            try:
                inputs._add(row, is_ours)
            except ForeignRecordError:
                inputs.foreign += 1
        return inputs

    def _add(self, row: Any, is_ours: Callable[[Stamp], bool]) -> None:
        match row.section:
            case "signal":
                self._add_message(*read_control(row.note), is_ours)
            case "replica":
                self._add_message(*read_replica(row.note, row.block), is_ours)
            case announcements.ANNOUNCED:
                self.places += announcements.announced_places(row.block)
            case "foreign":
                self.foreign += 1
            case section:
                rows = [blocks.decode(row.block)]
                self.arrivals.append(Arrival(section, int(row.source), int(row.watermark), int(row.now_ms), rows))

    def _add_message(
        self, sent: Stamp, message: Signal | Tick | Part | Report, is_ours: Callable[[Stamp], bool]
    ) -> None:
        if not is_ours(sent):
            return
        match message:
            case Signal():
                self.signals.append(message)
            case Tick():
                self.ticks_ms.append(message.now_ms)
            case Part():
                self.parts.append(message)
            case Report():
                self.reports.append(message)


@dataclass(frozen=True)
class _Published:
    signal_bytes: int
    replica_bytes: int


def _publish(outcome: Outcome, stamp: Stamp, nodes: int, topics: SideTopics) -> _Published:
    publisher = Publisher(topics.options)
    for rows in outcome.late:
        publisher.publish(topics.late, late_records(rows.side, topics.origins[rows.side], rows.rows, rows.watermark))
    signals = [signal_record(stamp, home(signal.hash, nodes), signal) for signal in outcome.signals]
    if signals:
        publisher.publish(topics.control, signals, whole=True)
    replicas = [record for shipment in outcome.shipments for record in shipment_records(stamp, shipment)]
    replicas += [record for report in outcome.reports for record in report_records(stamp, report)]
    if replicas:
        publisher.publish(topics.replicas, replicas, whole=True)
    return _Published(sum(map(size, signals)), sum(map(size, replicas)))


class StateBlocks:
    """Makes Spark's map state the store's `Durable`. The state also holds the head."""

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
        """Reads blocks one by one: a single answer with all of them could exceed the 2 GiB of Spark's protocol."""
        for number in sorted(key[0] for key in self._state.keys() if key[0] >= 0):  # noqa: SIM118 - not a dict
            yield number, bytes(self._state.getValue((number,))[0])


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Joins small tables into larger ones, because each frame costs Spark a round trip."""
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

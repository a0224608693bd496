"""One batch of a node: between Spark's frames and state on one side, and the pure `Node` on the other."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from balajoin.compute.head import HEAD
from balajoin.compute.node import Arrival, Node
from balajoin.compute.pairs import PAIRS
from balajoin.control.announcements import ANNOUNCED, announced_places, announced_signals
from balajoin.control.encoding import (
    is_report,
    is_tick,
    read_part,
    read_report,
    read_signal,
    read_tick,
    report_records,
    shipment_records,
    signal_record,
)
from balajoin.control.rejects import late_records
from balajoin.core import blocks
from balajoin.core.codec import refusing_damage
from balajoin.core.hashing import home
from balajoin.core.messages import ForeignRecordError, Part, Report, Signal, Stamp
from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.kafka.producer import Place, Publisher, size
from balajoin.spark.worker import settle

_FRAME_ROWS = 1 << 16
_FRAME_BYTES = 64 << 20
_NOTED = PAIRS.append(pa.field("note", pa.string()))


def process(
    spec: JoinSpec,
    number: int,
    stamp: Stamp,
    state: Any,
    cache: Path,
    topics: SideTopics,
    frames: Iterator[pd.DataFrame],
) -> Iterator[pd.DataFrame]:
    """Joined rows, and one row that holds nothing but statistics.

    `state` is Spark's map state of node `number`.
    """
    settle()
    began = time.process_time_ns()
    stored = StateBlocks(state)
    with refusing_damage("node"):
        node = Node(spec, stored.get(HEAD), stored, cache, number)
    inputs = Inputs.read(stamp, (row for frame in frames for row in frame.itertuples(index=False)), node.is_lost)
    inputs.signals += announced_signals(topics.options, topics.control, inputs.places, stamp)
    for pairs in gathered(node.process(stamp.batch, **inputs.of_node)):
        yield _frame(pairs.append_column(_NOTED.field("note"), pa.nulls(pairs.num_rows, pa.string())))
    _publish(node, stamp, spec.nodes, topics)
    stored.put(HEAD, node.state())
    node.statistics.foreign_records += inputs.foreign
    node.statistics.stale_records = inputs.stale
    node.statistics.busy_us = (time.process_time_ns() - began) // 1000
    yield _frame(pa.Table.from_pylist([{"note": node.statistics.to_json()}], _NOTED))


@dataclass
class Inputs:
    arrivals: list[Arrival] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    ticks_ms: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """Where the signals of this batch are."""

    foreign: int = 0
    stale: int = 0
    """Of another checkpoint, of a time line that this one has left, or of an attempt at a batch that was given up."""

    @property
    def of_node(self) -> dict[str, Any]:
        """As `Node.process` takes them."""
        return {name: getattr(self, name) for name in ("arrivals", "signals", "parts", "reports", "ticks_ms")}

    @classmethod
    def read(cls, stamp: Stamp, rows: Iterable[Any], is_lost: Callable[[Stamp], bool] = lambda _: False) -> "Inputs":
        """`is_lost` tells which stamps are those of an attempt at a batch that the node's state does not go on from."""
        inputs = cls()

        def is_ours(sent: Stamp) -> bool:
            ours = sent.may_precede(stamp) and not is_lost(sent)
            inputs.stale += not ours
            return ours

        for row in rows:
            try:
                inputs._add(row, is_ours)
            except ForeignRecordError:
                inputs.foreign += 1
        return inputs

    def _add(self, row: Any, is_ours: Callable[[Stamp], bool]) -> None:
        if row.section == "signal" and is_tick(row.note):
            sent, tick_ms = read_tick(row.note)
            if is_ours(sent):
                self.ticks_ms.append(tick_ms)
        elif row.section == "signal":
            sent, signal = read_signal(row.note)
            if is_ours(sent):
                self.signals.append(signal)
        elif row.section == "replica" and is_report(row.note):
            sent, report = read_report(row.note, row.block)
            if is_ours(sent):
                self.reports.append(report)
        elif row.section == "replica":
            part = read_part(row.note, row.block)
            if is_ours(part.stamp):
                self.parts.append(part)
        elif row.section == ANNOUNCED:
            self.places += announced_places(row.block)
        elif row.section == "foreign":
            self.foreign += 1
        else:
            rows = [blocks.decode(row.block)]
            self.arrivals.append(Arrival(row.section, int(row.source), int(row.watermark), int(row.now_ms), rows))


def _publish(node: Node, stamp: Stamp, nodes: int, topics: SideTopics) -> None:
    publisher = Publisher(topics.options)
    for rows in node.late:
        publisher.publish(topics.late, late_records(rows.side, topics.origins[rows.side], rows.rows, rows.watermark))
    if node.signals:
        signals = [signal_record(stamp, home(signal.hash, nodes), signal) for signal in node.signals]
        node.statistics.signal_bytes = sum(map(size, signals))
        publisher.publish(topics.control, signals, whole=True)
    if node.shipments or node.reports:
        records = [record for shipment in node.shipments for record in shipment_records(stamp, shipment)]
        records += [record for report in node.reports for record in report_records(stamp, report)]
        node.statistics.replica_bytes = sum(map(size, records))
        publisher.publish(topics.replicas, records, whole=True)


class StateBlocks:
    """Spark's map state as the store's `Durable`, beside the head."""

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
        for number in sorted(key[0] for key in self._state.keys() if key[0] >= 0):  # noqa: SIM118 - not a dict
            yield number, bytes(self._state.getValue((number,))[0])


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

"""All sources, nodes and topics of a join in one process: the parts of `LocalCluster`, on tables of rows.

As on Spark, each batch restores states and writes them, and reads what the batch before has published. Homes read the
signals of their own batch as well. What Spark does with bytes is left out: records of the input topics become rows
elsewhere, and rows reach their node as tables.
"""

import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from balajoin.compute.batch import Inputs
from balajoin.compute.exchange import Arrival, Outcome
from balajoin.compute.node import Node
from balajoin.compute.store import Durable
from balajoin.control.encoding import read_signal
from balajoin.core.envelope import Addressed
from balajoin.core.messages import Signal, Stamp
from balajoin.core.sides import SECTIONS, Side, side_of
from balajoin.core.spec import JoinSpec
from balajoin.routing.policies import Policy
from balajoin.routing.source import Source
from balajoin.routing.statistics import SourceStatistics
from balajoin.testing import topics

_MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

Tables = Mapping[Side, Sequence[pa.Table]]
"""What a batch brings to one source."""


class Blocks:
    """The stored blocks of one node, which are in Spark's map state otherwise."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        return self._blocks.get(number)

    def put(self, number: int, block: bytes) -> None:
        self._blocks[number] = block

    def remove(self, number: int) -> None:
        del self._blocks[number]

    def items(self) -> Iterable[tuple[int, bytes]]:
        return self._blocks.items()


@dataclass(frozen=True)
class Sent:
    """What a source sends in one batch."""

    arrivals: Sequence[Sequence[Arrival]]
    """By node."""
    signals: Sequence[Signal]
    statistics: SourceStatistics

    @classmethod
    def by(cls, source: Source, now_ms: int, tables: Tables) -> "Sent":
        """Every node hears of the watermark of each side that has rows."""
        routed = source.route(now_ms, tables)

        def to(node: int) -> Iterator[Arrival]:
            for section in SECTIONS:
                side = side_of(section)
                if side in tables:
                    yield Arrival(section, source.number, source.watermark(side), now_ms, routed.parcels[section][node])

        return cls([list(to(node)) for node in range(source.nodes)], routed.signals, routed.statistics)


@dataclass(frozen=True)
class Task:
    """What a batch brings to one node."""

    node: int
    arrivals: Sequence[Arrival]
    records: Sequence[Addressed]
    """Of both topics: what earlier batches have published."""
    announced: Sequence[Addressed]
    """Signals that this batch has published."""


class Simulation(ABC):
    """`step` is one batch. A subclass says which policy routes, and takes the results; it may override any part."""

    def __init__(self, spec: JoinSpec, lease_us: int, join: str = "simulation") -> None:
        self.spec = spec
        self.lease_us = lease_us
        self.join = join
        self.batch = 0
        self.now_ms = 0
        self.topics = topics.Topics()
        self.source_states: list[bytes | None] = [None] * max(spec.sources.values())
        self.node_states: list[bytes | None] = [None] * spec.nodes
        self.blocks: list[Durable] = [Blocks() for _ in range(spec.nodes)]
        self.cache = Path(tempfile.mkdtemp(prefix="balajoin-", dir=_MEMORY_DISK))
        weakref.finalize(self, shutil.rmtree, self.cache, ignore_errors=True)

    @abstractmethod
    def policy(self, source: int, state: bytes | None) -> Policy:
        """The policy of a source, as `state` describes it."""

    @abstractmethod
    def take(self, node: int, results: Iterator[pa.Table]) -> None:
        """Takes all results of a node's batch."""

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.join, self.batch, self.spec.plan)

    def step(self, rows: Mapping[int, Tables]) -> None:
        """One batch, with new rows by source."""
        for task in self.tasks(self.topics.take(), rows, self.route):
            self.run(task)
        self.batch += 1

    def tasks(
        self, unread: Sequence[Addressed], rows: Mapping[int, Tables], route: Callable[[int, Tables], Sent]
    ) -> list[Task]:
        """Routes the rows, publishes signals, and sorts what has come by node. A node without inputs has no task."""
        nodes = self.spec.nodes
        sent = [route(number, tables) for number, tables in sorted(rows.items())]
        signals = [topics.of_signal(self.stamp, nodes, signal) for each in sent for signal in each.signals]
        self.topics.written += signals
        tasks = (
            Task(
                node,
                arrivals=[arrival for each in sent for arrival in each.arrivals[node]],
                # A record to a node that is no more goes to node 0, which skips it.
                records=[record for record in unread if node == (record.node if record.node < nodes else 0)],
                announced=[record for record in signals if record.node == node],
            )
            for node in range(nodes)
        )
        return [task for task in tasks if task.arrivals or task.records]

    def route(self, number: int, tables: Tables) -> Sent:
        source = self.source(number)
        sent = Sent.by(source, self.now_ms, tables)
        self.source_states[number] = source.state()
        return sent

    def run(self, task: Task) -> Outcome:
        node = self.node(task.node, self.blocks[task.node])
        results = node.process(self.batch, self.inputs(task, node).of_node())
        self.take(task.node, iter(results))
        outcome = results.outcome
        for signal in outcome.signals:
            self.topics.written.append(topics.of_signal(self.stamp, self.spec.nodes, signal))
        for shipment in outcome.shipments:
            self.topics.written += topics.of_shipment(self.stamp, shipment)
        for report in outcome.reports:
            self.topics.written += topics.of_report(self.stamp, report)
        self.node_states[task.node] = outcome.state
        return outcome

    def inputs(self, task: Task, node: Node) -> Inputs:
        inputs = Inputs.read(self.stamp, task.records, node.is_lost)
        inputs.signals += [read_signal(record.note)[1] for record in task.announced]
        inputs.arrivals += task.arrivals
        return inputs

    def source(self, number: int) -> Source:
        """As the last batch has left it."""
        spec, state = self.spec, self.source_states[number]
        return Source.restore(number, spec.nodes, spec.lateness_us, self.lease_us, partial(self.policy, number), state)

    def node(self, number: int, blocks: Durable) -> Node:
        """As the last batch has left it."""
        return Node(self.spec, self.node_states[number], blocks, self.cache, number)

"""What one batch did, read from the query's progress: Spark's own figures and the operators' statistics."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from balajoin.compute.statistics import NodeStatistics
from balajoin.core.sides import SIDES, Side
from balajoin.observe import observed
from balajoin.routing.statistics import SourceStatistics

Offsets = Mapping[int, int]  # by partition
Note = TypeVar("Note")


@dataclass(frozen=True)
class TopicProgress:
    """How far the query has read one topic. A join of a topic with itself has the topic twice."""

    topic: str
    consumed: Offsets
    """The offset of each partition's next record, after this batch."""

    latest: Offsets
    """The same at the broker when the batch began; empty where Spark did not ask the broker."""

    @property
    def lag(self) -> int:
        """How many offsets of the topic were unread.

        Where the topic is written in transactions, some of these are aborted records or the ends of transactions.
        """
        return sum(max(end - self.consumed.get(partition, 0), 0) for partition, end in self.latest.items())


@dataclass(frozen=True)
class BatchReport:
    batch: int
    run_id: str
    """Identifies this start of the query."""

    name: str | None
    began: datetime
    duration_ms: int
    phases_ms: Mapping[str, int]
    """By Spark's names of them: `latestOffset`, `addBatch`, `walCommit`, …. Their sum is less than the duration."""

    inputs: tuple[TopicProgress, ...]
    """Probe, build, control and replica topic, in this order. Topics that Spark has no offsets of yet are left out."""

    entered_rows: Mapping[Side, int]
    """Rows with a key and a time, by stream."""

    dead_letters: Mapping[Side, int]
    """Records without a key or a time, by stream."""

    rows_ahead: Mapping[Side, int]
    """Dead letters whose time is further ahead of the clock than is allowed, by stream."""

    routed_rows: tuple[int, ...]
    """Rows of both streams that the sources sent to each node; empty where they had no rows."""

    probe_bytes: int
    """Bytes of probe rows that were sent to another node than the source's own."""

    build_bytes: int
    """The same of build rows."""

    sources: tuple[SourceStatistics, ...]
    """Statistics of the sources that had rows."""

    nodes: tuple[NodeStatistics, ...]
    """Statistics of the nodes that had anything to do."""

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Self:
        sent, done = (observed.values(progress, name) for name in (observed.SOURCES, observed.NODES))
        entered = {side: observed.values(progress, observed.PACKED[side]) for side in SIDES}
        durations = {name: int(ms) for name, ms in progress["durationMs"].items()}
        duration_ms = durations.pop("triggerExecution", 0)
        return cls(
            batch=progress["batchId"],
            run_id=str(progress["runId"]),
            name=progress["name"],
            began=datetime.fromisoformat(progress["timestamp"]),
            duration_ms=duration_ms,
            phases_ms=durations,
            inputs=tuple(_inputs(progress["sources"])),
            entered_rows={side: entered[side].get("rows") or 0 for side in SIDES},
            dead_letters={side: entered[side].get("dead") or 0 for side in SIDES},
            rows_ahead={side: entered[side].get("ahead") or 0 for side in SIDES},
            routed_rows=tuple(sent.get(f"rows_{node}") or 0 for node in range(_count(sent, "rows_"))),
            probe_bytes=sent.get("probe_bytes") or 0,
            build_bytes=sent.get("build_bytes") or 0,
            sources=tuple(_notes(sent, "source_", SourceStatistics.from_json)),
            nodes=tuple(_notes(done, "node_", NodeStatistics.from_json)),
        )

    @property
    def ended(self) -> datetime:
        return self.began + timedelta(milliseconds=self.duration_ms)

    @property
    def rows_out(self) -> int:
        return sum(node.results for node in self.nodes)

    @property
    def fetched_bytes(self) -> int:
        return sum(source.fetched_bytes for source in self.sources)

    @property
    def replica_bytes(self) -> int:
        return sum(node.replica_bytes for node in self.nodes)

    @property
    def signal_bytes(self) -> int:
        return sum(teller.signal_bytes for tellers in (self.sources, self.nodes) for teller in tellers)

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes that left the node they were on, by kind. `fetched` left the machine that read them from Kafka."""
        return {
            "probe": self.probe_bytes,
            "build": self.build_bytes,
            "replica": self.replica_bytes,
            "signal": self.signal_bytes,
            "fetched": self.fetched_bytes,
        }

    @property
    def skewed_rows(self) -> tuple[int, ...]:
        """Rows that each node got because their key is skewed."""
        return _by_node(source.skewed_rows for source in self.sources)

    @property
    def balance(self) -> float | None:
        """B of the skewed rows of the sources that had rows."""
        return balance(self.sources)

    def work(self, pair_cost: float) -> tuple[float, ...]:
        """What each node did, in rows: the rows it took in, and its pairs."""
        return tuple(
            node.probe_rows + node.build_rows + node.replica_rows + pair_cost * node.pairs for node in self.nodes
        )

    @property
    def rows_in(self) -> int:
        """Records of both streams as the operators counted them. Not every offset is a record."""
        return sum(self.entered_rows.values()) + sum(self.dead_letters.values())


def balance(sources: Iterable[SourceStatistics]) -> float | None:
    """B of these sources' skewed rows, as their policy counts them or, where it does not, in their last batch."""
    return balance_factor(_by_node(source.loads or source.skewed_rows for source in sources))


def balance_factor(node_rows: Sequence[float]) -> float | None:
    """The paper's B: (most - least) / most rows on a node. None before the first row."""
    most = max(node_rows, default=0)
    return (most - min(node_rows)) / most if most else None


def _by_node(lists: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*lists, strict=True)))


def _inputs(sources: Sequence[Mapping[str, Any]]) -> Iterator[TopicProgress]:
    for source in sources:
        latest = _offsets(source.get("latestOffset"))
        for topic, consumed in _offsets(source.get("endOffset")).items():
            yield TopicProgress(topic, consumed, latest.get(topic, {}))


def _offsets(written: str | None) -> dict[str, Offsets]:
    """Reads offsets by topic. It is empty for sources other than Kafka, which a user may union."""
    by_topic = json.loads(written) if written else None
    if not isinstance(by_topic, dict):
        return {}
    return {
        topic: {int(partition): int(offset) for partition, offset in offsets.items()}
        for topic, offsets in by_topic.items()
        if isinstance(offsets, dict)
    }


def _count(values: Mapping[str, Any], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in values)


def _notes(values: Mapping[str, Any], prefix: str, read: Callable[[str], Note]) -> Iterator[Note]:
    for name, note in values.items():
        if name.startswith(prefix) and note:
            yield read(note)

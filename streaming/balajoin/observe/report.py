"""What one batch did, read from the query's progress: Spark's own figures, and the notes of the operators."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from balajoin.compute.statistics import NodeStatistics
from balajoin.core.sides import SIDES, Side
from balajoin.observe import observed
from balajoin.routing.statistics import SourceStatistics

Offsets = Mapping[int, int]  # by partition
Note = TypeVar("Note")


@dataclass(frozen=True)
class Input:
    """One topic that the query reads; a join of a topic with itself has it twice."""

    topic: str
    consumed: Offsets
    """The offset of each partition's next record, after this batch."""

    latest: Offsets
    """The same as the broker had it when the batch began; empty where it was not asked."""

    @property
    def lag(self) -> int:
        """Offsets that were in the topic and not yet read.

        Where the topic is written in transactions, some of them are aborted records or the ends of transactions.
        """
        return sum(max(end - self.consumed.get(partition, 0), 0) for partition, end in self.latest.items())


@dataclass(frozen=True)
class BatchReport:
    batch: int
    query_id: str
    """Of the checkpoint."""

    run_id: str
    """Of this start."""

    name: str | None
    began: datetime
    duration_ms: int
    phases_ms: Mapping[str, int]
    """Under Spark's names: `latestOffset`, `addBatch`, `walCommit`, …; they add up to less than the duration."""

    inputs: tuple[Input, ...]
    """Probe, build, control and replica topic, in this order; without those that nothing is known of yet."""

    entered_rows: Mapping[Side, int]
    """By stream, those with key and time."""

    dead_letters: Mapping[Side, int]
    """By stream, those without."""

    rows_ahead: Mapping[Side, int]
    """Of the dead letters, those with a time further ahead of the clock than is allowed."""

    routed_rows: tuple[int, ...]
    """Rows that the sources sent to each node, of both streams; empty where they had none."""

    probe_bytes: int
    """Sent to another node than the source's own; so are `build_bytes`."""

    build_bytes: int
    sources: tuple[SourceStatistics, ...]
    """Of those that had rows."""

    nodes: tuple[NodeStatistics, ...]
    """Of those that had anything to do."""

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Self:
        sent, done = (observed.values(progress, name) for name in (observed.SOURCES, observed.NODES))
        entered = {side: observed.values(progress, observed.PACKED[side]) for side in SIDES}
        durations = {name: int(ms) for name, ms in progress["durationMs"].items()}
        duration_ms = durations.pop("triggerExecution", 0)
        return cls(
            batch=progress["batchId"],
            query_id=str(progress["id"]),
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
    def replica_bytes(self) -> int:
        return sum(node.replica_bytes for node in self.nodes)

    @property
    def signal_bytes(self) -> int:
        return sum(teller.signal_bytes for tellers in (self.sources, self.nodes) for teller in tellers)

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes that left the node they were on, by kind."""
        return {
            "probe": self.probe_bytes,
            "build": self.build_bytes,
            "replica": self.replica_bytes,
            "signal": self.signal_bytes,
        }

    @property
    def skewed_rows(self) -> tuple[int, ...]:
        """Rows that each node got because their key is skewed."""
        return _by_node(source.skewed_rows for source in self.sources)

    @property
    def balance(self) -> float | None:
        """B of the sources that had rows."""
        return balance(self.sources)

    @property
    def balance_by_source(self) -> dict[int, float | None]:
        return {source.source: balance([source]) for source in self.sources}

    @property
    def rows_in(self) -> int:
        """Records of both streams, as the operators counted them: what lies between two offsets need not be records."""
        return sum(self.entered_rows.values()) + sum(self.dead_letters.values())


class Query(Protocol):
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    @property
    def recentProgress(self) -> Any: ...  # noqa: N802


Listener = Callable[[BatchReport], None]


@runtime_checkable
class Idles(Protocol):
    """A listener that also wants to know that a query without rows still looks for some."""

    def idle(self, at: datetime) -> None: ...


class Reports:
    """The batches of a running query, each once, as long as it is asked more often than Spark forgets them."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._last_batch = -1
        self._last_seen: str | None = None

    def new(self) -> list[BatchReport]:
        """Of the batches that ended since the last call."""
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last_seen:  # fetching all of them takes longer
            return []
        self._last_seen = last["timestamp"]
        reports = [BatchReport.of(progress) for progress in self._query.recentProgress if self._is_new(progress)]
        if reports:
            self._last_batch = reports[-1].batch
        return reports

    def tell(self, listeners: Iterable[Listener]) -> None:
        """The same to whoever listens."""
        seen = self._last_seen
        reports = self.new()
        for listener in listeners:
            for report in reports:
                listener(report)
            if isinstance(listener, Idles) and not reports and self._last_seen not in (None, seen):
                listener.idle(datetime.fromisoformat(self._last_seen))

    def _is_new(self, progress: Mapping[str, Any]) -> bool:
        """An idle query reports now and then too, under the number of the batch that is still to come."""
        return progress["batchId"] > self._last_batch and "addBatch" in progress["durationMs"]


def balance(sources: Iterable[SourceStatistics]) -> float | None:
    """B of what these sources sent: as their policy counts it or, where it does not, in the batch that they tell of."""
    return balance_factor(_by_node(source.loads or source.skewed_rows for source in sources))


def balance_factor(node_rows: Sequence[float]) -> float | None:
    """The paper's B: how far the least loaded node stays behind the most loaded; none before the first row."""
    most = max(node_rows, default=0)
    return (most - min(node_rows)) / most if most else None


def _by_node(lists: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*lists, strict=True)))


def _inputs(sources: Sequence[Mapping[str, Any]]) -> Iterator[Input]:
    for source in sources:
        latest = _offsets(source.get("latestOffset"))
        for topic, consumed in _offsets(source.get("endOffset")).items():
            yield Input(topic, consumed, latest.get(topic, {}))


def _offsets(written: str | None) -> dict[str, Offsets]:
    """Empty for what is not of Kafka: a user may union other streams."""
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

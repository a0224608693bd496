"""Each stream's watermark at a node: the smallest watermark of the stream's active sources.

Spark keeps one maximum over everything, so a partition that lags loses its rows as late. Here every source has its own
watermark, and leaves the minimum only after `idle_after` of processing time without a row. Processing time is Spark's
batch timestamp, which is the same when a batch is replayed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

BEGINNING = -(1 << 62)  # nothing is known yet: no row is late, no row expires
_REMEMBERED_BATCHES = 8


@dataclass
class ActivityClock:
    """The processing time by which sources count as idle. A pause of the whole query does not make a source idle.

    One gap between two batches counts as at most little more than half of `idle_after`. So after an hour's downtime
    every source has time to send again, and a query with few batches still drops a silent source after two of them.
    When the machine's clock is set back, this clock stands still once and then goes on counting.
    """

    idle_after_ms: int
    now_ms: int = 0
    batch_ms: int | None = None

    def tick(self, batch_ms: int) -> int:
        if self.batch_ms is not None:
            self.now_ms += min(max(0, batch_ms - self.batch_ms), self.idle_after_ms // 2 + 1)
        self.batch_ms = batch_ms
        return self.now_ms


Value = TypeVar("Value")


@dataclass
class Past(Generic[Value]):
    """A value as it was after earlier batches: `changes` holds each batch in which it changed, with the new value."""

    at_first: Value
    changes: list[tuple[int, Value]] = field(default_factory=list)

    def as_of(self, batch: int) -> Value:
        return next((value for at, value in reversed(self.changes) if at <= batch), self.at_first)

    def note(self, batch: int, value: Value) -> None:
        """Records the value after `batch`, and forgets changes that only much older batches would need."""
        if value != self.as_of(batch):
            self.changes.append((batch, value))
        old = [change for change in self.changes if change[0] <= batch - _REMEMBERED_BATCHES]
        self.changes = old[-1:] + self.changes[len(old) :]


def advance_both(one: "Watermark", other: "Watermark", now_ms: int) -> None:
    """A stream with no active source follows the other one. If both are silent, time goes on as fast as the clock does.

    Otherwise the last rows before a silence would wait for ever to find a match or to be known as unmatched.
    """
    active = [mark.advance(now_ms) for mark in (one, other)]
    if any(active):
        for silent, follower, leader in ((not active[0], one, other), (not active[1], other, one)):
            if silent:
                follower.reach(leader.current)
        return
    furthest = max(one.furthest, other.furthest)
    if furthest > BEGINNING:
        silent_ms = now_ms - max(one.silent_since_ms, other.silent_since_ms)
        for mark in (one, other):
            mark.reach(furthest + (silent_ms - mark.idle_after_ms) * 1000)


@dataclass(frozen=True)
class SourceProgress:
    watermark: int
    active_ms: int


@dataclass(frozen=True)
class WatermarkState:
    """The part of a watermark that is stored from batch to batch."""

    current: int
    sources: Mapping[int, SourceProgress]


@dataclass
class Watermark:
    """One stream's watermark at one node. Event times are in microseconds, processing times in milliseconds."""

    idle_after_ms: int
    current: int = BEGINNING
    sources: dict[int, SourceProgress] = field(default_factory=dict)

    def expect(self, sources: Iterable[int], now_ms: int) -> None:
        """Sources that exist but have sent nothing yet hold the watermark until they count as idle."""
        for source in sources:
            self.sources.setdefault(source, SourceProgress(BEGINNING, now_ms))

    def observe(self, source: int, watermark: int, now_ms: int) -> None:
        before = self.sources.get(source, SourceProgress(watermark, now_ms))
        self.sources[source] = SourceProgress(max(before.watermark, watermark), max(before.active_ms, now_ms))

    def advance(self, now_ms: int) -> bool:
        """Moves on to the minimum over the active sources, never back. Returns False if no source is active."""
        active = [s.watermark for s in self.sources.values() if now_ms - s.active_ms < self.idle_after_ms]
        self.reach(min(active, default=BEGINNING))
        return bool(active)

    def reach(self, mark: int) -> None:
        self.current = max(self.current, mark)

    @property
    def furthest(self) -> int:
        return max((source.watermark for source in self.sources.values()), default=BEGINNING)

    @property
    def silent_since_ms(self) -> int:
        return max((source.active_ms for source in self.sources.values()), default=0)

    def state(self) -> WatermarkState:
        return WatermarkState(self.current, dict(self.sources))

    @classmethod
    def of(cls, state: WatermarkState, idle_after_ms: int) -> "Watermark":
        return cls(idle_after_ms, state.current, dict(state.sources))

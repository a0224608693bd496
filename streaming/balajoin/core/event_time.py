"""How far time has come at a node, by stream: the slowest of its active sources.

Spark keeps one maximum over everything, so a partition that lags loses its rows as late. Here a source counts with its
own watermark, and leaves the minimum only after it was silent for `idle_after` of processing time. Processing time is
Spark's batch timestamp, which a replayed batch sees again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from balajoin.core.codec import whole

BEGINNING = -(1 << 62)  # nothing is known yet: no row is late, no row expires
_REMEMBERED_BATCHES = 8


@dataclass
class ActivityClock:
    """Processing time as sources are judged by it: a pause of the whole query is not a source's silence.

    One gap between two batches counts for little more than half of `idle_after`, so that after an hour's downtime every
    source has time to be heard again, and a query with few batches still lets go of a silent source after two of them.
    A clock that was set back goes on counting from where it is then.
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
    """A value as it was after earlier batches: `changes` are the batches in which it became another."""

    at_first: Value
    changes: list[tuple[int, Value]] = field(default_factory=list)

    def as_of(self, batch: int) -> Value:
        return next((value for at, value in reversed(self.changes) if at <= batch), self.at_first)

    def note(self, batch: int, value: Value) -> None:
        """Forgets what only batches before the last few would ask for."""
        if value != self.as_of(batch):
            self.changes.append((batch, value))
        old = [change for change in self.changes if change[0] <= batch - _REMEMBERED_BATCHES]
        self.changes = old[-1:] + self.changes[len(old) :]


def advance_both(one: "Watermark", other: "Watermark", now_ms: int) -> None:
    """A stream that is silent as a whole follows the other one. If both are, time goes on as fast as the clock does.

    Otherwise the last rows before a silence would wait for ever for a match, or for being sure that there is none.
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


@dataclass
class _Source:
    watermark: int
    active_ms: int


@dataclass
class Watermark:
    """One stream's watermark at one node. Times of rows in microseconds, processing times in milliseconds."""

    idle_after_ms: int
    current: int = BEGINNING
    sources: dict[int, _Source] = field(default_factory=dict)

    def expect(self, sources: Iterable[int], now_ms: int) -> None:
        """Sources that exist but have sent nothing yet hold the watermark until they count as idle."""
        for source in sources:
            self.sources.setdefault(source, _Source(BEGINNING, now_ms))

    def observe(self, source: int, watermark: int, now_ms: int) -> None:
        seen = self.sources.setdefault(source, _Source(watermark, now_ms))
        seen.watermark = max(seen.watermark, watermark)
        seen.active_ms = max(seen.active_ms, now_ms)

    def advance(self, now_ms: int) -> bool:
        """Moves on to the minimum over the active sources; never back. False if none is active."""
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

    def to_state(self) -> dict[str, Any]:
        return {
            "current": self.current,
            "sources": [[source, s.watermark, s.active_ms] for source, s in sorted(self.sources.items())],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], idle_after_ms: int) -> "Watermark":
        sources = {
            source: _Source(watermark, active)
            for source, watermark, active in (map(whole, s) for s in state["sources"])
        }
        return cls(idle_after_ms, whole(state["current"]), sources)

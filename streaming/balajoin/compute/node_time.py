"""The watermarks of both streams at a node, now and in the last batches.

A batch decides and evicts by watermarks of earlier batches, so that rows and messages that were on their way then have
arrived. docs/correctness.md says why each number of batches is enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from balajoin.compute.exchange import Arrival
from balajoin.compute.guest import ASK_AGAIN_AFTER
from balajoin.compute.state import NodeState
from balajoin.core.event_time import BEGINNING, ActivityClock, Past, Watermark, WatermarkState, advance_both
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import JoinSpec

# Batches from the last probe row that could match a build row until its home decides that it is unmatched: by then the
# home has heard of every match that a guest has found.
_REPORTED_AFTER = 5
_OVERDUE_AFTER = 3
_SETTLED_AFTER = 2
# A guest asks again, in batch b + 2, for build rows that a probe row of batch b needs. The home reads that in b + 3. So
# build rows are dropped by the watermark of four batches ago, which is the one before b.
_ASKED_AGAIN_WITHIN = ASK_AGAIN_AFTER + 2


@dataclass(frozen=True)
class Moment:
    """Time as one batch sees it, before its own inputs. All fields but `batch` are event times in microseconds."""

    batch: int
    watermarks: Mapping[Side, int]
    """A row older than its side's watermark is late."""
    probe_edge: int
    """No build row on time can match a probe row older than this."""
    build_edge: int
    """A build row older than this has met all its matches, and its home has heard of them."""
    overdue_edge: int
    """A new build row older than this came after all its matches."""
    settled: int
    """Every node's probe watermark has reached this."""
    asked_from: int
    """A guest may still ask for build rows that match probe rows from this time on."""


class NodeTime:
    def __init__(self, spec: JoinSpec, state: NodeState) -> None:
        self._spec = spec
        self._clock = ActivityClock(spec.idle_after_ms, state.clock_ms, state.batch_ms)
        self._watermarks = {side: Watermark.of(state.watermarks[side], spec.idle_after_ms) for side in SIDES}
        self._past = Past(BEGINNING, list(state.probe_watermarks))

    def watermark(self, side: Side) -> int:
        return self._watermarks[side].current

    def moment(self, batch: int) -> Moment:
        return Moment(
            batch=batch,
            watermarks={side: self.watermark(side) for side in SIDES},
            probe_edge=moved(self.watermark("build"), -self._spec.after_us),
            build_edge=moved(self._past.as_of(batch - _REPORTED_AFTER), -self._spec.before_us),
            overdue_edge=moved(self._past.as_of(batch - _OVERDUE_AFTER), -self._spec.before_us),
            settled=self._past.as_of(batch - _SETTLED_AFTER),
            asked_from=self._past.as_of(batch - _ASKED_AGAIN_WITHIN),
        )

    def advance(self, batch: int, arrivals: Sequence[Arrival], ticks_ms: Sequence[int]) -> None:
        """Only sources and ticks move time on. Every node hears all of them, so all nodes have the same time."""
        if arrivals or ticks_ms:
            now_ms = self._clock.tick(max(*(a.now_ms for a in arrivals), *ticks_ms, 0))
            for side, watermark in self._watermarks.items():
                watermark.expect(range(self._spec.sources[side]), now_ms)
            for arrival in arrivals:
                self._watermarks[arrival.side].observe(arrival.source, arrival.watermark, now_ms)
            advance_both(self._watermarks["probe"], self._watermarks["build"], now_ms)
        self._past.note(batch, self.watermark("probe"))

    # --- for the next state -------------------------------------------------------------------------------------------

    @property
    def clock_ms(self) -> int:
        return self._clock.now_ms

    @property
    def batch_ms(self) -> int | None:
        return self._clock.batch_ms

    @property
    def watermarks(self) -> dict[Side, WatermarkState]:
        return {side: watermark.state() for side, watermark in self._watermarks.items()}

    @property
    def probe_watermarks(self) -> Sequence[tuple[int, int]]:
        return self._past.changes


def moved(watermark: int, by: int) -> int:
    return watermark + by if watermark > BEGINNING else BEGINNING

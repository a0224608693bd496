"""What a batch brings to a node, and what the node hands back."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from balajoin.compute.statistics import NodeStatistics
from balajoin.core.messages import Part, Report, Shipment, Signal
from balajoin.core.sides import Section, Side, side_of


@dataclass(frozen=True)
class Arrival:
    """What one source sends a node in one batch: its watermark, and rows if it has any."""

    section: Section
    source: int
    watermark: int
    now_ms: int
    rows: Sequence[pa.Table]

    @property
    def side(self) -> Side:
        return side_of(self.section)


@dataclass(frozen=True)
class NodeInputs:
    arrivals: Sequence[Arrival] = ()
    signals: Sequence[Signal] = ()
    parts: Sequence[Part] = ()
    reports: Sequence[Report] = ()
    ticks_ms: Sequence[int] = ()


@dataclass(frozen=True)
class LateRows:
    """Rows older than the watermark. They are joined with the rows still stored, but some matches may have expired."""

    side: Side
    watermark: int
    rows: pa.Table


@dataclass(frozen=True)
class Outcome:
    """What a batch leaves besides its results: rows and messages to publish, and the node's next state."""

    late: Sequence[LateRows]
    signals: Sequence[Signal]
    shipments: Sequence[Shipment]
    reports: Sequence[Report]
    statistics: NodeStatistics
    state: bytes


class Results:
    """The results of a batch, made while the caller iterates: memory holds one table of them at a time."""

    def __init__(self, tables: Generator[pa.Table, None, Outcome]) -> None:
        self._tables = tables
        self._outcome: Outcome | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        self._outcome = yield from self._tables

    @property
    def outcome(self) -> Outcome:
        """Known only after all results were taken."""
        if self._outcome is None:
            raise RuntimeError("not all results of the batch were taken")
        return self._outcome

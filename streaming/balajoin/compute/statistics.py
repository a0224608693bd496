"""What a node tells of one batch. It travels with the results, as one row of its own, to the query's progress."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self


@dataclass(frozen=True)
class NodeStatistics:
    node: int
    probe_rows: int = 0
    build_rows: int = 0
    replica_rows: int = 0
    pairs: int = 0
    alone_rows: int = 0
    """Results that are one row: without a match, or, in a left_semi join, with one."""
    waiting_rows: int = 0
    """Rows that have met no match so far, and may yet."""
    late_rows: int = 0
    late_build_rows: int = 0
    """Of `late_rows`."""

    stored_rows: int = 0
    stored_bytes: int = 0
    pulls: int = 0
    pulled_rows: int = 0
    forwarded_rows: int = 0
    replica_bytes: int = 0
    repeated_signals: int = 0
    """For build rows that should have come by now."""

    signal_bytes: int = 0
    """Of the repeated ones."""

    pull_waits: list[int] = field(default_factory=list)
    """At index *b*, of how many keys probe rows waited *b* batches for the build rows that have come now."""

    leases: int = 0
    pins: int = 0
    """Keys with probe rows that no grant covers yet."""

    foreign_records: int = 0
    stale_records: int = 0
    delayed_shipments: int = 0
    incomplete_pulls: int = 0
    busy_us: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)

    @property
    def results(self) -> int:
        return self.pairs + self.alone_rows

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

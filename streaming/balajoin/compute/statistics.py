"""What a node reports of one batch. It travels with the results, as a separate row, to the query's progress."""

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
    """Results made of one row: a row without a match, or, in a left_semi join, a row with one."""
    waiting_rows: int = 0
    """Rows that have met no match so far, but still may."""
    late_rows: int = 0
    late_build_rows: int = 0
    """The build rows among `late_rows`."""

    stored_rows: int = 0
    stored_bytes: int = 0
    pulls: int = 0
    pulled_rows: int = 0
    forwarded_rows: int = 0
    replica_bytes: int = 0
    repeated_signals: int = 0
    """Signals that ask again for build rows which should have come by now."""

    signal_bytes: int = 0
    """Bytes of the repeated signals."""

    pull_waits: list[int] = field(default_factory=list)
    """At index *b*, the number of keys whose probe rows waited *b* batches for build rows that came in this batch."""

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

"""One node of the join, without Spark: (state, a batch of blocks) → (joined rows, state).

Rows are joined in the order they are taken in, each against what is stored of the other side, and stored then: so every
pair meets exactly once, whichever of its rows came first, in one batch or in two.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from balajoin import codec
from balajoin.blocks import binary, longs, pieces
from balajoin.compute.index import matches
from balajoin.compute.spec import JoinSpec
from balajoin.compute.store import BlockStore, Durable
from balajoin.compute.watermarks import BEGINNING, ActivityClock, Watermark
from balajoin.errors import StateError
from balajoin.sides import SIDES, Side

_STATE_VERSION = 1
_ABANDONED_AFTER_S = 3 * 86_400
_MAX_PAIRS = 1 << 16
_MAX_PAIRS_BYTES = 64 << 20

PAIRS = pa.schema(
    [
        ("key", pa.binary()),
        ("probe_value", pa.binary()),
        ("probe_time", pa.int64()),
        ("probe_partition", pa.int32()),
        ("probe_offset", pa.int64()),
        ("build_value", pa.binary()),
        ("build_time", pa.int64()),
        ("build_partition", pa.int32()),
        ("build_offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Arrival:
    """What one source sends a node in one batch: its watermark, and rows if it has any."""

    side: Side
    source: int
    watermark: int
    now_ms: int
    rows: Sequence[pa.Table]


@dataclass(frozen=True)
class LateRows:
    """Rows that came after the watermark: joined with what is still there, but matches may be gone."""

    side: Side
    watermark: int
    rows: pa.Table


class Node:
    def __init__(self, spec: JoinSpec, state: bytes | None, durable: Durable, cache: Path, node: int) -> None:
        self._spec = spec
        self.late: list[LateRows] = []
        if state is None:
            _remove_abandoned(cache)
            self._lineage = self._seal = uuid4().hex
            self._clock = ActivityClock(spec.idle_after_ms)
            self._watermarks = {side: Watermark(spec.idle_after_ms) for side in SIDES}
            next_number = 0
        else:
            head = codec.decode("node", _STATE_VERSION, state)
            _refuse_other_pins(head["pins"], spec.pins)
            self._lineage = head["lineage"]
            self._seal = head["seal"]
            self._clock = ActivityClock(spec.idle_after_ms, *head["clock"])
            self._watermarks = {
                side: Watermark.from_state(head["watermarks"][side], spec.idle_after_ms) for side in SIDES
            }
            next_number = head["next_number"]
        self.store = BlockStore(durable, cache / self._lineage / f"node-{node}", spec.slice_us)
        self.store.open(next_number, self._seal)

    def watermark(self, side: Side) -> int:
        return self._watermarks[side].current

    def process(self, arrivals: Sequence[Arrival]) -> Iterator[pa.Table]:
        """Joined rows. Only when all are taken has the batch happened, and `state` is that of after it.

        Inputs first, then eviction with the watermarks of the batch before: docs/architecture.md needs that order.
        """
        previous = {side: self.watermark(side) for side in SIDES}
        ordered = sorted(arrivals, key=lambda a: (SIDES.index(a.side), a.source), reverse=True)
        for arrival in ordered:
            self._set_aside_late(arrival, previous[arrival.side])
        for side in reversed(SIDES):
            for piece in pieces([rows for a in ordered if a.side == side for rows in a.rows]):
                yield from self._join(side, piece)
                self.store.add(side, piece)
        if previous["build"] > BEGINNING:
            self.store.expire("probe", previous["build"] - self._spec.after_us)
        if previous["probe"] > BEGINNING:
            self.store.expire("build", previous["probe"] - self._spec.before_us)
        self._advance(arrivals)
        self._seal = (
            uuid4().hex
        )  # names this very state: a repeat of the batch, or a copy of the checkpoint, has another
        self.store.close(self._seal)

    def state(self) -> bytes:
        return codec.encode(
            "node",
            _STATE_VERSION,
            {
                "pins": self._spec.pins,
                "lineage": self._lineage,
                "seal": self._seal,
                "clock": [self._clock.now_ms, self._clock.batch_ms],
                "next_number": self.store.next_number,
                "watermarks": {side: self._watermarks[side].to_state() for side in SIDES},
            },
        )

    def _join(self, side: Side, piece: pa.Table) -> Iterator[pa.Table]:
        other: Side = "build" if side == "probe" else "probe"
        window = self._spec.window(side)
        times = longs(piece, "time")
        for run in self.store.runs(other, int(times.min()) + window.lower, int(times.max()) + window.upper):
            for mine, theirs in matches(piece, run.index, run.rows, window, _pairs_at_once(piece, run.rows)):
                if side == "probe":
                    yield _pairs(piece, mine, run.rows, theirs)
                else:
                    yield _pairs(run.rows, theirs, piece, mine)

    def _set_aside_late(self, arrival: Arrival, watermark: int) -> None:
        for rows in arrival.rows:
            late = rows.column("time").to_numpy() < watermark
            if late.any():
                self.late.append(LateRows(arrival.side, watermark, rows.filter(pa.array(late))))

    def _advance(self, arrivals: Sequence[Arrival]) -> None:
        now_ms = self._clock.tick(max(a.now_ms for a in arrivals))
        for side, watermark in self._watermarks.items():
            watermark.expect(range(self._spec.sources[side]), now_ms)
        for arrival in arrivals:
            self._watermarks[arrival.side].observe(arrival.source, arrival.watermark, now_ms)
        for watermark in self._watermarks.values():
            watermark.advance(now_ms)


def _pairs_at_once(one: pa.Table, other: pa.Table) -> int:
    """A large value may be copied into every pair: as many as fit, if all had the largest."""
    widest = sum(int(np.diff(binary(rows, column)[0]).max()) for rows in (one, other) for column in ("key", "value"))
    return max(1, min(_MAX_PAIRS, _MAX_PAIRS_BYTES // max(1, widest)))


def _pairs(probe: pa.Table, probe_rows: Any, build: pa.Table, build_rows: Any) -> pa.Table:
    columns = [_gather(probe, "key", probe_rows)]
    for table, rows in ((probe, probe_rows), (build, build_rows)):
        columns.append(_gather(table, "value", rows))
        columns.extend(pa.array(longs(table, column)[rows]) for column in ("time", "partition", "offset"))
    return pa.Table.from_arrays(columns, schema=PAIRS)


def _gather(table: pa.Table, column: str, rows: Any) -> pa.Array:
    return pc.take(table.column(column).chunk(0), pa.array(rows), boundscheck=False)


def _remove_abandoned(cache: Path) -> None:
    """Local files of checkpoints that no longer run here, or of a first batch that failed."""
    with suppress(OSError):
        for folder in cache.glob("*/node-*"):
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    folder.parent.rmdir()  # with its last node


def _refuse_other_pins(written: dict[str, Any], given: dict[str, Any]) -> None:
    for setting, value in given.items():
        if written.get(setting) != value:
            raise StateError(
                f"{setting} is {value!r}, but the checkpoint was made with {written.get(setting)!r}: stored rows are "
                f"placed by it. Set it back, or use a new checkpoint location"
            )

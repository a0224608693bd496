"""One node of the join, without Spark: (state, a batch of inputs) → (joined rows, state, what to publish).

Rows are joined in the order they are taken in, each against what is stored of the other side, and stored then: so every
pair meets exactly once, whichever of its rows came first, in one batch or in two.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.blocks import concat, longs, pieces
from balajoin.compute import head, owed, pairs
from balajoin.compute.guest import Guest
from balajoin.compute.home import Home, in_fragment
from balajoin.compute.index import matches
from balajoin.compute.spec import JoinSpec
from balajoin.compute.statistics import NodeStatistics
from balajoin.compute.store import BlockStore, Durable
from balajoin.compute.watermarks import BEGINNING, ActivityClock, Past, Watermark
from balajoin.control.records import Part, Shipment, Signal
from balajoin.pins import refuse_others
from balajoin.sides import SECTIONS, SIDES, Section, Side, side_of

_ABANDONED_AFTER_S = 3 * 86_400
_NO_POSITIONS = np.empty(0, np.int64)


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
class LateRows:
    """Rows that came after the watermark: joined with what is still there, but matches may be gone."""

    side: Side
    watermark: int
    rows: pa.Table


class Node:
    def __init__(self, spec: JoinSpec, state: bytes | None, durable: Durable, cache: Path, node: int) -> None:
        self._spec = spec
        self._number = node
        self._durable = durable
        self.late: list[LateRows] = []
        self.signals: list[Signal] = []
        self.shipments: list[Shipment] = []
        self.statistics = NodeStatistics(node)
        if state is None:
            _remove_abandoned(cache)
            self._lineage = self._seal = uuid4().hex
            self._clock = ActivityClock(spec.idle_after_ms)
            self._watermarks = {side: Watermark(spec.idle_after_ms) for side in SIDES}
            self._home = Home(node, spec.nodes)
            self._guest = Guest(node, spec.nodes)
            self._past = Past()
            self._last, self._owed = [-1, 0], 0
            next_number = 0
        else:
            written = head.read(state)
            refuse_others(written["pins"], spec.pins)
            self._lineage = written["lineage"]
            self._seal = written["seal"]
            self._clock = ActivityClock(spec.idle_after_ms, *written["clock"])
            self._watermarks = {
                side: Watermark.from_state(written["watermarks"][side], spec.idle_after_ms) for side in SIDES
            }
            self._home = Home.from_state(node, spec.nodes, written["leases"])
            self._guest = Guest.from_state(node, spec.nodes, written["guest"])
            self._past = Past([(at, mark) for at, mark in written["past"]])
            self._last, self._owed = written.get("last", [-1, 0]), written.get("owed", 0)
            next_number = written["next_number"]
        self.store = BlockStore(durable, cache / self._lineage / f"node-{node}", spec.slice_us)
        self.store.open(next_number, self._seal)

    def watermark(self, side: Side) -> int:
        return self._watermarks[side].current

    def process(
        self, batch: int, arrivals: Sequence[Arrival], signals: Sequence[Signal] = (), parts: Sequence[Part] = ()
    ) -> Iterator[pa.Table]:
        """Joined rows. Only when all are taken has the batch happened, and `state` is that of after it.

        Inputs first, then eviction, with the build watermark of the batch before, and the probe watermark of the one
        before that: docs/architecture.md needs that order.
        """
        previous = {side: self.watermark(side) for side in SIDES}
        self._last = [batch, self.store.next_number]
        for results in owed.take(self._durable, self._owed):
            self.statistics.pairs += results.num_rows
            yield results
        self._owed = 0
        ordered = sorted(arrivals, key=lambda a: (SECTIONS.index(a.section), a.source), reverse=True)
        for arrival in ordered:
            self._set_aside_late(arrival, previous[arrival.side])
        rows: dict[Section, list[pa.Table]] = {
            section: [table for a in ordered if a.section == section for table in a.rows if table.num_rows]
            for section in SECTIONS
        }
        replicas = self._take_shipments(parts, batch)
        yield from self._take_build([*rows["build"], *replicas])
        yield from self._take_probe("probe", rows["probe"], previous["probe"], batch)
        yield from self._take_probe("fragment", rows["fragment"], previous["probe"], batch)
        for table in rows["build"]:
            self._home.forward(table)
        settled = self._past.as_of(batch - 2)
        self._home.answer(signals, self.store, settled, self._spec.before_us)
        self._evict(previous["build"], settled)
        if arrivals:
            self._advance(arrivals)
        self._past.note(batch, self.watermark("probe"))
        self.signals = self._guest.asks(batch)
        self.shipments = list(self._home.shipments())
        self._home.end_leases(self.watermark("build"), self._spec.after_us)
        self._guest.end_holds(self.watermark("probe"))
        self._seal = (
            uuid4().hex
        )  # names this very state: a repeat of the batch, or a copy of the checkpoint, has another
        self.store.close(self._seal)
        self._note_statistics(rows, replicas)

    def state(self) -> bytes:
        return head.write(
            {
                "pins": self._spec.pins,
                "lineage": self._lineage,
                "seal": self._seal,
                "clock": [self._clock.now_ms, self._clock.batch_ms],
                "next_number": self.store.next_number,
                "last": self._last,
                "owed": self._owed,
                "watermarks": {side: self._watermarks[side].to_state() for side in SIDES},
                "leases": self._home.to_state(),
                "guest": self._guest.to_state(),
                "past": self._past.changes,
            },
        )

    # --- taking rows in -----------------------------------------------------------------------------------------------

    def _take_build(self, tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces(tables):
            yield from self._join("build", piece, "probe")
            yield from self._join("build", piece, "fragment")
            self.store.add("build", piece)

    def _take_probe(
        self, section: Section, tables: Sequence[pa.Table], watermark: int, batch: int
    ) -> Iterator[pa.Table]:
        for piece in pieces(tables):
            yield from self._join(section, piece, "build")
            self.store.add(section, piece)
            self._guest.pin(piece, section == "fragment", watermark, batch)

    def _take_shipments(self, parts: Sequence[Part], batch: int) -> list[pa.Table]:
        """Build rows from other homes, without those that are here already."""
        tables: list[pa.Table] = []
        for shipment in self._guest.accept(parts, batch):
            self._guest.hold(shipment.grants)
            pulled = np.array(shipment.pulled, np.int64)
            tables.extend(self._without_known(shipment.rows, pulled) if len(pulled) else shipment.rows)
        return [table for table in tables if table.num_rows]

    def _without_known(self, tables: Sequence[pa.Table], pulled: NDArray[np.int64]) -> Iterator[pa.Table]:
        """A pull brings rows that came before, and again those that the same batch forwards."""
        known = np.concatenate([positions(rows) for rows in self.store.rows_with("build", pulled)] or [_NO_POSITIONS])
        for rows in tables:
            mine = positions(rows)
            new = np.zeros(len(mine), np.bool_)
            new[np.unique(mine, return_index=True)[1]] = True
            new &= ~np.isin(mine, known)
            known = np.concatenate([known, mine])
            yield rows if new.all() else concat([rows.filter(pa.array(new))])

    def _join(self, section: Section, piece: pa.Table, other: Section) -> Iterator[pa.Table]:
        side = side_of(section)
        window = self._spec.window(side)
        times = longs(piece, "time")
        for run in self.store.runs(other, int(times.min()) + window.lower, int(times.max()) + window.upper):
            chunk = pairs.at_once(piece, run.rows)
            for mine, theirs in matches(piece, run.index, run.rows, window, chunk):
                found = (piece, mine, run.rows, theirs) if side == "probe" else (run.rows, theirs, piece, mine)
                if "fragment" in (section, other):
                    found = self._of_this_fragment(*found)
                if len(found[1]):
                    self.statistics.pairs += len(found[1])
                    yield pairs.paired(*found)

    def _of_this_fragment(
        self, probe: pa.Table, probe_rows: NDArray[np.int32], build: pa.Table, build_rows: NDArray[np.int32]
    ) -> tuple[pa.Table, NDArray[np.int32], pa.Table, NDArray[np.int32]]:
        mine = in_fragment(build, self._number, self._spec.nodes)[build_rows]
        return probe, probe_rows[mine], build, build_rows[mine]

    def _set_aside_late(self, arrival: Arrival, watermark: int) -> None:
        for rows in arrival.rows:
            late = rows.column("time").to_numpy() < watermark
            if late.any():
                self.late.append(LateRows(arrival.side, watermark, rows.filter(pa.array(late))))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _evict(self, build_watermark: int, probe_watermark: int) -> None:
        """Pinned rows stay, and so does what may have been shipped here for them.

        Build rows of this batch stay too: they may be on their way to guests, where only their home would find them
        again if the join was stopped now and rescaled.
        """
        pinned = self._guest.earliest_pinned
        if build_watermark > BEGINNING:
            edge = build_watermark - self._spec.after_us
            for section in ("probe", "fragment"):
                self.store.expire(section, edge if pinned is None else min(edge, pinned))
        if probe_watermark > BEGINNING:
            edge = probe_watermark if pinned is None else min(probe_watermark, pinned)
            self.store.expire("build", edge - self._spec.before_us, spared=self._last[1])

    def _advance(self, arrivals: Sequence[Arrival]) -> None:
        """Only sources move time on. Every node hears all of them, so that all nodes agree on it."""
        now_ms = self._clock.tick(max(a.now_ms for a in arrivals))
        for side, watermark in self._watermarks.items():
            watermark.expect(range(self._spec.sources[side]), now_ms)
        for arrival in arrivals:
            self._watermarks[arrival.side].observe(arrival.source, arrival.watermark, now_ms)
        for watermark in self._watermarks.values():
            watermark.advance(now_ms)

    def _note_statistics(self, rows: dict[Section, list[pa.Table]], replicas: Sequence[pa.Table]) -> None:
        noted = self.statistics
        noted.probe_rows = sum(table.num_rows for section in ("probe", "fragment") for table in rows[section])
        noted.build_rows = sum(table.num_rows for table in rows["build"])
        noted.replica_rows = sum(table.num_rows for table in replicas)
        noted.late_rows = sum(late.rows.num_rows for late in self.late)
        noted.stored_rows = sum(map(self.store.rows_of, SECTIONS))
        noted.stored_bytes = self.store.bytes
        noted.forwarded_rows = self._home.forwarded_rows
        noted.pulled_rows = self._home.pulled_rows
        noted.pulls = self._home.pulls
        noted.leases = len(self._home.leases)
        noted.pins = len(self._guest.pins)
        noted.foreign_records += self._home.foreign_signals + self._guest.foreign_parts
        noted.delayed_shipments = self._guest.delayed_shipments
        noted.watermarks = {side: self.watermark(side) for side in SIDES}


def positions(rows: pa.Table) -> NDArray[np.int64]:
    """Partition and offset as one number: who a row is."""
    return longs(rows, "partition").astype(np.int64) << 48 | longs(rows, "offset")


def _remove_abandoned(cache: Path) -> None:
    """Local files of checkpoints that no longer run here, or of a first batch that failed."""
    with suppress(OSError):
        for folder in cache.glob("*/node-*"):
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    folder.parent.rmdir()  # with its last node

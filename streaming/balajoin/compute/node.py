"""One node of the join, without Spark: (state, a batch of inputs) → (joined rows, state, what to publish).

Rows are joined in the order they are taken in, each against what is stored of the other side, and stored then: so every
pair meets exactly once, whichever of its rows came first, in one batch or in two. What counts as a result is up to the
join's type; who has met nobody yet is kept apart where that matters: see `unmatched`.
"""

import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute import head, owed, pairs
from balajoin.compute.cache_folder import node_folder, remove_abandoned
from balajoin.compute.guest import ASK_AGAIN_AFTER, Guest
from balajoin.compute.home import Home
from balajoin.compute.matches import Found, find
from balajoin.compute.statistics import NodeStatistics
from balajoin.compute.store import BlockStore, Durable
from balajoin.compute.unmatched import Held, Lonely, Mask, Numbers, marks, positions
from balajoin.core.blocks import concat, longs, pieces
from balajoin.core.codec import whole, whole_or_none
from balajoin.core.event_time import BEGINNING, ActivityClock, Past, Watermark, advance_both
from balajoin.core.hashing import homes
from balajoin.core.messages import ANY_PLAN, Part, Report, Shipment, Signal, Stamp
from balajoin.core.pins import agreed
from balajoin.core.sides import SECTIONS, SHELVES, SIDES, Section, Shelf, Side, side_of
from balajoin.core.spec import JoinSpec

_NO_POSITIONS = np.empty(0, np.int64)
# So many batches after the last probe row that could match it, a build row is decided to be alone: by then its home has
# heard of every match that a guest has found. See docs/architecture.md.
_REPORTED_AFTER = 5
_OVERDUE_AFTER = 3
_REPORTED_AFTER_FORWARD = 2
# A guest asks again, in batch b + 2, for build rows that a probe row of batch b needs. Its home reads that in b + 3. So
# build rows are dropped by the watermark of four batches ago: that of before b.
_ASKED_AGAIN_WITHIN = ASK_AGAIN_AFTER + 2


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


Results = Generator[pa.Table, None, Mask]


class Node:
    def __init__(self, spec: JoinSpec, state: bytes | None, durable: Durable, cache: Path, node: int) -> None:
        self._spec = spec
        self._number = node
        self._durable = durable
        self.late: list[LateRows] = []
        self.signals: list[Signal] = []
        self.shipments: list[Shipment] = []
        self.reports: list[Report] = []
        self._met_replicas: dict[int, list[pa.Table]] = defaultdict(list)
        self.statistics = NodeStatistics(node)
        decided: dict[Side, int] = {}
        self._overdue: list[tuple[int, int]] = []
        if state is None:
            remove_abandoned(cache)
            self._pins = agreed(None, spec.pins)
            self._lineage = self._seal = uuid4().hex
            self._clock = ActivityClock(spec.idle_after_ms)
            self._watermarks = {side: Watermark(spec.idle_after_ms) for side in SIDES}
            self._home = Home(node, spec.nodes)
            self._guest = Guest(node, spec.nodes)
            self._past = Past(BEGINNING)
            self._plans = Past("")
            self._last, self._owed = [-1, 0], 0
            self._build_kept_from = BEGINNING
            next_number = 0
        else:
            written = head.read(state)
            self._pins = agreed(written["pins"], spec.pins)
            self._lineage = _checked_name(written["lineage"])
            self._seal = _checked_name(written["seal"])
            now_ms, batch_ms = written["clock"]
            self._clock = ActivityClock(spec.idle_after_ms, whole(now_ms), whole_or_none(batch_ms))
            self._watermarks = {
                side: Watermark.from_state(written["watermarks"][side], spec.idle_after_ms) for side in SIDES
            }
            self._home = Home.from_state(node, spec.nodes, written["leases"])
            self._guest = Guest.from_state(node, spec.nodes, written["guest"])
            self._past = Past(BEGINNING, [(whole(at), whole(mark)) for at, mark in written["past"]])
            self._plans = Past("", [(whole(at), str(plan)) for at, plan in written["plans"]])
            self._last, self._owed = list(map(whole, written["last"] or (-1, 0))), whole(written["owed"])
            self._build_kept_from = whole(written["build_kept_from"])
            next_number = whole(written["next_number"])
            decided = {side: whole(below) for side, below in written["decided"].items()}
            self._overdue = [(whole(batch), whole(number)) for batch, number in written["overdue"]]
        self.store = BlockStore(durable, node_folder(cache, self._lineage, node), spec.slice_us)
        self.store.open(next_number, self._seal)
        self._lonely = {
            side: Lonely(side, self.store, decided.get(side, BEGINNING)) for side in SIDES if side in spec.kind.awaited
        }

    def watermark(self, side: Side) -> int:
        return self._watermarks[side].current

    def is_lost(self, sent: Stamp) -> bool:
        """Whether a record is of an attempt at a batch that was given up, and made anew under another plan."""
        return sent.batch <= self._last[0] and sent.plan not in (self._plans.as_of(sent.batch), ANY_PLAN)

    def process(
        self,
        batch: int,
        arrivals: Sequence[Arrival],
        signals: Sequence[Signal] = (),
        parts: Sequence[Part] = (),
        reports: Sequence[Report] = (),
        ticks_ms: Sequence[int] = (),
    ) -> Iterator[pa.Table]:
        """Results. Only when all are taken has the batch happened, and `state` is that of after it.

        Inputs first, then decisions and eviction, with the build watermark of the batch before, and the probe watermark
        of earlier ones: docs/architecture.md needs that order.
        """
        previous = {side: self.watermark(side) for side in SIDES}
        self._last = [batch, self.store.next_number]
        self._plans.note(batch, self._spec.plan)
        for results in owed.take(self._durable, self._owed):
            yield self._result(results)
        self._owed = 0
        edges = self._edges(previous, batch)
        pinned_before = dict(self._guest.pins)
        ordered = sorted(arrivals, key=lambda a: (SECTIONS.index(a.section), a.source), reverse=True)
        for arrival in ordered:
            self._set_aside_late(arrival, previous[arrival.side])
        rows: dict[Section, list[pa.Table]] = {
            section: [table for a in ordered if a.section == section for table in a.rows if table.num_rows]
            for section in SECTIONS
        }
        replicas = self._take_shipments(parts, batch)
        self._take_reports(reports)
        held_before = partial(self._guest.holds_back, pins=pinned_before)
        for piece in pieces(rows["build"]):
            met = yield from self._join_build(piece, held_before)
            self._keep_build(piece, met, previous["build"], batch)
        for piece in pieces(replicas):
            met = yield from self._join_build(piece, held_before)
            self._note_replicas_met(piece, np.flatnonzero(met))
            self.store.add("build", piece)
        for section in ("probe", "fragment"):
            for piece in pieces(rows[section]):
                met = yield from self._join_probe(section, piece, edges["build"])
                self._guest.pin(piece, section == "fragment", previous["probe"], batch)
                yield from self._keep_probe(section, piece, met, previous["probe"], edges["probe"])
        for table in rows["build"]:
            self._home.forward(table)
        settled = self._past.as_of(batch - 2)
        self._home.answer(signals, self.store, settled, self._build_kept_from, self._spec.before_us)
        yield from self._decide(edges, held_before, batch)
        self._evict(previous["build"], self._past.as_of(batch - _ASKED_AGAIN_WITHIN), edges["build"])
        if arrivals or ticks_ms:
            self._advance(arrivals, ticks_ms)
        self._past.note(batch, self.watermark("probe"))
        self.signals = self._guest.asks(batch)
        self.shipments = list(self._home.shipments())
        self.reports = [Report(self._number, home, tables) for home, tables in sorted(self._met_replicas.items())]
        self._home.end_leases(self.watermark("build"), self._spec.after_us)
        self._guest.end_holds(self.watermark("probe"))
        for lonely in self._lonely.values():
            lonely.close()
        self._seal = (
            uuid4().hex
        )  # names this very state: a repeat of the batch, or a copy of the checkpoint, has another
        self.store.close(self._seal)
        self._note_statistics(rows, replicas)

    def _edges(self, previous: Mapping[Side, int], batch: int) -> dict[Side, int]:
        """Rows of a side that are older than this can meet no row any more that is on time."""
        return {
            "probe": _moved(previous["build"], -self._spec.after_us),
            "build": _moved(self._past.as_of(batch - _REPORTED_AFTER), -self._spec.before_us),
        }

    def state(self) -> bytes:
        return head.write(
            {
                "pins": self._pins,
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
                "plans": self._plans.changes,
                "build_kept_from": self._build_kept_from,
                "decided": {side: lonely.decided_below for side, lonely in self._lonely.items()},
                "overdue": self._overdue,
            },
        )

    # --- taking rows in -----------------------------------------------------------------------------------------------

    def _join_build(self, piece: pa.Table, held: Held) -> Results:
        """What build rows meet among the probe rows that are here. Returns which of them have met any."""
        met = np.zeros(piece.num_rows, np.bool_)
        for shelf in ("probe", "fragment"):
            for found in self._matches("build", piece, shelf):
                met[found.build_rows] = True
                yield self._result(found.paired())
        lonely = self._lonely.get("probe")
        if lonely is not None:
            for found in self._matches("build", piece, lonely.shelf):
                found = found.where(lonely.may_meet(found.probe, found.probe_rows, held))
                if not len(found.probe_rows):
                    continue
                met[found.build_rows] = True
                first = lonely.meet(found.probe, found.probe_rows)
                if self._spec.kind.pairs:
                    yield self._result(found.paired())
                elif self._spec.kind.first_match and len(first):
                    yield self._alone("probe", concat([found.probe.take(pa.array(first))]))
        return met

    def _keep_build(self, piece: pa.Table, met: Mask, watermark: int, batch: int) -> None:
        """Rows of this home. Who is late is not counted on to be alone: its matches may have expired."""
        if "build" not in self._lonely:
            self.store.add("build", piece)
            return
        times = longs(piece, "time")
        lonely = ~met & (times >= watermark)
        overdue = lonely & (times < _moved(self._past.as_of(batch - _OVERDUE_AFTER), -self._spec.before_us))
        self._store("build", piece, ~lonely)
        self._store("lonely_build", piece, lonely & ~overdue)
        if overdue.any():
            number = self.store.lay_aside("overdue_build", _only(piece, overdue))
            self._overdue.append((batch, number))

    def _join_probe(self, section: Section, piece: pa.Table, build_edge: int) -> Results:
        """What probe rows meet among the build rows that are here. Returns which of them have met any."""
        met = np.zeros(piece.num_rows, np.bool_)
        lonely = self._lonely.get("build")
        for shelf in ("build", "lonely_build"):
            for found in self._matches(section, piece, shelf):
                if lonely is not None:
                    found = self._noting_build_met(found, shelf, build_edge)
                if not len(found.probe_rows):
                    continue
                met[found.probe_rows] = True
                if self._spec.kind.pairs:
                    yield self._result(found.paired())
        return met

    def _noting_build_met(self, found: Found, shelf: Shelf, edge: int) -> Found:
        """Without build rows that their home may have decided to be alone."""
        old = longs(found.build, "time") < edge
        foreign = homes(longs(found.build, "hash"), self._spec.nodes) != self._number
        decided = old if shelf == "lonely_build" else old & foreign
        found = found.where(~decided[found.build_rows])
        if shelf == "lonely_build":
            self._lonely["build"].meet(found.build, found.build_rows)
        else:
            self._note_replicas_met(found.build, found.build_rows[foreign[found.build_rows]])
        return found

    def _note_replicas_met(self, build: pa.Table, numbers: Numbers) -> None:
        """For the home of each, which decides whether it is alone."""
        lonely = self._lonely.get("build")
        first = lonely.meet(build, numbers) if lonely is not None and len(numbers) else _NO_POSITIONS
        if len(first):
            met = marks(build, first)
            at = homes(longs(met, "hash"), self._spec.nodes)
            for home in np.unique(at).tolist():
                self._met_replicas[home].append(_only(met, at == home))

    def _keep_probe(
        self, section: Section, piece: pa.Table, met: Mask, watermark: int, edge: int
    ) -> Iterator[pa.Table]:
        """Who came too late to have a match is decided here and now, and not stored."""
        lonely = self._lonely.get("probe")
        if lonely is None:
            self.store.add(section, piece)
            return
        kind = self._spec.kind
        times = longs(piece, "time")
        alone = ~met & (times >= watermark)
        waits = alone & ((times >= edge) | self._guest.holds_back(piece, self._guest.pins))
        if kind.first_match and met.any():
            yield self._alone("probe", _only(piece, met))
        if "probe" in kind.alone and (alone & ~waits).any():
            yield self._alone("probe", _only(piece, alone & ~waits))
        self._store(lonely.shelf, piece, waits)
        if kind.pairs:
            self._store("probe", piece, ~alone)

    def _store(self, shelf: Shelf, piece: pa.Table, which: Mask) -> None:
        if which.any():
            self.store.add(shelf, _only(piece, which))

    def _take_reports(self, reports: Sequence[Report]) -> None:
        """Of guests that have met build rows of this home."""
        for report in reports:
            for rows in report.rows:
                if "build" in self._lonely and (homes(longs(rows, "hash"), self._spec.nodes) == self._number).all():
                    self._lonely["build"].meet(rows, np.arange(rows.num_rows, dtype=np.int32))
                else:
                    self.statistics.foreign_records += 1

    def _decide(self, edges: Mapping[Side, int], held_before: Held, batch: int) -> Iterator[pa.Table]:
        """Rows that are alone for good."""
        still_held = partial(self._guest.holds_back, pins=self._guest.pins)
        for side in SIDES:
            if side in self._spec.kind.alone:
                held = (held_before, still_held) if side == "probe" else (_none_held, _none_held)
                for rows in self._lonely[side].decide(edges[side], *held):
                    yield self._alone(side, rows)
        due = [(at, number) for at, number in self._overdue if at <= batch - _REPORTED_AFTER_FORWARD]
        for _, number in due:
            for rows in self._lonely["build"].alone(self.store.take_back(number)):
                yield self._alone("build", rows)
        self._overdue = [entry for entry in self._overdue if entry not in due]

    def _result(self, joined: pa.Table) -> pa.Table:
        self.statistics.pairs += joined.num_rows
        return joined

    def _alone(self, side: Side, rows: pa.Table) -> pa.Table:
        self.statistics.alone_rows += rows.num_rows
        return pairs.alone(side, rows)

    def _take_shipments(self, parts: Sequence[Part], batch: int) -> list[pa.Table]:
        """Build rows from other homes, without those that are here already."""
        tables: list[pa.Table] = []
        for shipment in self._guest.accept(parts, batch, _moved(self._build_kept_from, -self._spec.before_us)):
            self._guest.hold(shipment.grants, batch)
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

    def _matches(self, section: Section, piece: pa.Table, shelf: Shelf) -> Iterator[Found]:
        return find(self.store, self._spec, self._number, section, piece, shelf)

    def _set_aside_late(self, arrival: Arrival, watermark: int) -> None:
        for rows in arrival.rows:
            late = rows.column("time").to_numpy() < watermark
            if late.any():
                self.late.append(LateRows(arrival.side, watermark, rows.filter(pa.array(late))))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _evict(self, build_watermark: int, probe_watermark: int, build_edge: int) -> None:
        """Pinned rows stay, and so does what may have been shipped here for them.

        Build rows of this batch stay too: they may be on their way to guests, where only their home would find them
        again if the join was stopped now and rescaled.
        """
        pinned = self._guest.earliest_pinned
        if build_watermark > BEGINNING:
            edge = build_watermark - self._spec.after_us
            edge = edge if pinned is None else min(edge, pinned)
            for section in ("probe", "fragment"):
                self.store.expire(section, edge)
            if "probe" in self._lonely:
                self._lonely["probe"].expire(edge)
        if "build" in self._lonely:
            self._lonely["build"].expire(build_edge)
        if probe_watermark > BEGINNING:
            edge = probe_watermark if pinned is None else min(probe_watermark, pinned)
            self._build_kept_from = max(self._build_kept_from, edge)
            self.store.expire("build", edge - self._spec.before_us, spared=self._last[1])

    def _advance(self, arrivals: Sequence[Arrival], ticks_ms: Sequence[int]) -> None:
        """Only sources and ticks move time on. Every node hears all of them, so that all nodes agree on it."""
        now_ms = self._clock.tick(max(*(a.now_ms for a in arrivals), *ticks_ms, 0))
        for side, watermark in self._watermarks.items():
            watermark.expect(range(self._spec.sources[side]), now_ms)
        for arrival in arrivals:
            self._watermarks[arrival.side].observe(arrival.source, arrival.watermark, now_ms)
        advance_both(self._watermarks["probe"], self._watermarks["build"], now_ms)

    def _note_statistics(self, rows: dict[Section, list[pa.Table]], replicas: Sequence[pa.Table]) -> None:
        noted = self.statistics
        noted.probe_rows = sum(table.num_rows for section in ("probe", "fragment") for table in rows[section])
        noted.build_rows = sum(table.num_rows for table in rows["build"])
        noted.replica_rows = sum(table.num_rows for table in replicas)
        noted.late_rows = sum(late.rows.num_rows for late in self.late)
        noted.stored_rows = sum(map(self.store.rows_of, SHELVES))
        noted.waiting_rows = sum(self._lonely[side].waiting for side in self._spec.kind.alone) + len(self._overdue)
        noted.late_build_rows = sum(late.rows.num_rows for late in self.late if late.side == "build")
        noted.stored_bytes = self.store.bytes
        noted.forwarded_rows = self._home.forwarded_rows
        noted.pulled_rows = self._home.pulled_rows
        noted.pulls = self._home.pulls
        noted.leases = len(self._home.leases)
        noted.pins = len(self._guest.pins)
        noted.pull_waits = self._guest.waits
        noted.repeated_signals = len(self.signals)
        noted.foreign_records += self._home.foreign_signals + self._guest.foreign_parts
        noted.delayed_shipments = self._guest.delayed_shipments
        noted.incomplete_pulls = self._home.incomplete_pulls
        noted.watermarks = {side: self.watermark(side) for side in SIDES}


def _checked_name(name: str) -> str:
    """Of a folder and a file: what is in there is deleted, so that it must not lead elsewhere."""
    if not re.fullmatch(r"[0-9a-f]{32}", name):
        raise ValueError("not a name that a node gives")
    return name


def _only(rows: pa.Table, which: Mask) -> pa.Table:
    return rows if which.all() else concat([rows.filter(pa.array(which))])


def _moved(watermark: int, by: int) -> int:
    return watermark + by if watermark > BEGINNING else BEGINNING


def _none_held(rows: pa.Table) -> Mask:
    return np.zeros(rows.num_rows, np.bool_)
